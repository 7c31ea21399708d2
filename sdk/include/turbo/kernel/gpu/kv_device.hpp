// Host half of a KV codec of a device tier: a codec of the CPU tier (layout, fingerprint, decode_row, centers) that also
// launches kernels. Uploads tables at load, fills argument structs, chooses kernels; owns no memory of the pool.
//
// T derives from DeviceKvCodec<T, Base> and has
//   KvKernels kernels() const                                    the code objects and names of its kernels
//   void describe(const turbo_kv_shape&, KvSide&, KvTables&) const   sizes and tables of a shape whose layout is known
// attach, layout, set_center and check are [load]; the others are [engine].
#pragma once

#include <turbo/device.hpp>
#include <turbo/kernel/gpu/kv_side.hpp>
#include <turbo/kernel/rotated_kv/kernels.hpp>
#include <turbo/kv_codec.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <mutex>
#include <vector>

namespace turbo::gpu {

struct KvKernels {
  const turbo_code_object* objects;
  uint32_t n_objects;
  const char* name;           // attend_<name>_<lanes>_<queries>, scores_<name>_<lanes>, sums_<name>_<lanes>
  const char *key, *value;    // append_<..>, move_<..>
  const char* pack;           // or null
  bool few;                   // TB_ATTEND_KERNELS_FEW
};

/// Device copies of a codec's tables.
class KvTables {
 public:
  explicit KvTables(const DeviceKernels& device) : device_(device) {}
  KvTables(const KvTables&) = delete;
  void clear() { owned_.clear(); }
  /// Throws Failure.
  template <typename V>
  const V* add(const V* data, uint64_t n) {
    if (!data || n == 0) return nullptr;
    owned_.push_back(device_.upload(reinterpret_cast<const std::byte*>(data), n * sizeof(V), "kv tables"));
    return reinterpret_cast<const V*>(owned_.back().get());
  }
  void add_rotation(const rotated_kv::Rotation& r, KvSide& side) {
    const uint64_t d = r.d, square = d * d;
    side.turn = static_cast<uint32_t>(r.turn);
    side.seed = r.seed;
    side.block = r.block;
    side.factor = r.factor;
    switch (r.turn) {
      case rotated_kv::Turn::signs: side.first = add(r.first, d); break;
      case rotated_kv::Turn::givens: side.first = add(r.first, d / 2); side.second = add(r.second, d / 2); break;
      case rotated_kv::Turn::quaternion: side.first = add(r.first, 4 * d); break;
      case rotated_kv::Turn::dense: side.first = add(r.first, square); side.second = add(r.second, square); break;
    }
    if (r.seed > 1) {
      side.mix = add(r.mix[0], d * r.seed);
      side.mix_transposed = add(r.mix[1], d * r.seed);
    }
  }

 private:
  const DeviceKernels& device_;
  std::vector<DeviceArray<std::byte>> owned_;
};

template <class T, class Base>
class DeviceKvCodec : public Base, public DeviceClient<T> {
 public:
  template <class... Args>
  explicit DeviceKvCodec(Args&&... args) : Base(std::forward<Args>(args)...) {}

  void layout(const turbo_kv_shape& shape, turbo_kv_layout& layout) const override {
    if (shape.head_dim > 256 || shape.head_dim % 8 != 0)
      throw Failure(TURBO_UNSUPPORTED, std::string(self().kernels().name) + ": head size " + std::to_string(shape.head_dim) +
                                           " is no multiple of 8 up to 256", "run this model on the cpu tier");
    Base::layout(shape, layout);
    const std::lock_guard lock(mutex_);
    for (const Known& known : known_)
      if (known.is_of(shape.side, shape.head_dim)) return;
    known_.push_back({shape, {}, false});
    if (kernels_.device()) describe(known_.back());
  }

  void set_center(const turbo_kv_shape& shape, const float* center) override {
    Base::set_center(shape, center);
    const uint64_t n = uint64_t{shape.n_kv_heads} * shape.head_dim;
    if (centers_.size() <= shape.layer) centers_.resize(shape.layer + 1);
    centers_[shape.layer] = {std::vector<float>(center, center + n), nullptr};
    if (kernels_.device()) upload(centers_[shape.layer]);
  }

  void attach(const turbo_device& device) override {
    detach();
    Places places;
    kernels_.attach(&device, {{self().kernels().objects, self().kernels().n_objects, places.names(self().kernels())}});
    at_ = places;
    counters_ = DeviceArray<uint32_t>(device, TURBO_MEMORY_DEVICE, kMaxCounters, "kv counters");
    kernels_.fill(device.stream, counters_.get(), 0, counters_.bytes());
    kernels_.sync(device.stream);
    const std::lock_guard lock(mutex_);
    for (Known& known : known_) describe(known);
    for (Center& center : centers_) upload(center);
  }
  void detach() noexcept override {
    tables_.clear();
    counters_ = {};
    kernels_.detach();
    for (Known& known : known_) known.ready = false;
    for (Center& center : centers_) center.there = nullptr;
  }

  static const void* interface(std::string_view id) {
    static constexpr turbo_kv_codec_device table = make_table();
    if (id == TURBO_KV_CODEC_DEVICE_DRAFT) return &table;
    if (const void* client = DeviceClient<T>::interface(id)) return client;
    return Base::interface(id);
  }

 private:
  static constexpr uint32_t kLanes[3] = {8, 16, 32}, kQueries[4] = {1, 2, 4, 8};
  static constexpr uint32_t kMixedQueries = 4, kMaxCounters = 1u << 16, kAttendThreads = 256, kRowThreads = 128, kBlocksPerUnit = 2;

  struct Known {
    turbo_kv_shape shape;
    KvSide side;
    bool ready;
    bool is_of(uint32_t which, uint32_t d) const { return shape.side == which && shape.head_dim == d; }
  };
  struct Center {
    std::vector<float> host;
    const float* there = nullptr;
  };
  struct Plan {
    uint32_t lanes_index, queries_index;
    AttendArgs args;
    uint32_t grid[3];
    uint64_t workspace;
  };

  const T& self() const { return static_cast<const T&>(*this); }

  // Numbers of the kernels, by lanes and queries, by side; kNone where there is none.
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Places {
    uint32_t attend[3][4], scores[3], sums[3], append[2], move[2], pack = kNone;

    std::vector<std::string> names(const KvKernels& k) {
      std::vector<std::string> all;
      const auto add = [&all](uint32_t& place, const std::string& name) {
        place = static_cast<uint32_t>(all.size());
        all.push_back(name);
      };
      for (uint32_t l = 0; l < 3; ++l) {
        const std::string lanes = std::to_string(kLanes[l]);
        for (uint32_t q = 0; q < 4; ++q) {
          attend[l][q] = kNone;
          if (exists(k, l, q)) add(attend[l][q], std::string("attend_") + k.name + "_" + lanes + "_" + std::to_string(kQueries[q]));
        }
        add(scores[l], std::string("scores_") + k.name + "_" + lanes);
        add(sums[l], std::string("sums_") + k.name + "_" + lanes);
      }
      for (uint32_t side : {TURBO_KV_SIDE_K, TURBO_KV_SIDE_V}) {
        add(append[side], std::string("append_") + (side == TURBO_KV_SIDE_K ? k.key : k.value));
        add(move[side], std::string("move_") + (side == TURBO_KV_SIDE_K ? k.key : k.value));
      }
      if (k.pack) add(pack, k.pack);
      return all;
    }
  };

  void describe(Known& known) const {
    known.side = {};
    self().describe(known.shape, known.side, tables_);
    known.ready = true;
  }
  void upload(Center& center) const {
    if (!center.host.empty()) center.there = tables_.add(center.host.data(), center.host.size());
  }

  static bool exists(const KvKernels& k, uint32_t l, uint32_t q) {
    const uint32_t queries = kQueries[q];
    if (k.few) return queries == (l == 2 ? 4u : 8u) || (l == 1 && queries == 2);
    return l == 0 ? queries == 2 || queries == 8 : l == 1 || queries == 2 || queries == 4;
  }

  // Throws Failure where the shape is not known; addresses are those of the device.
  KvSide side_of(const turbo_device_kv& kv, uint32_t which) const {
    for (const Known& known : known_) {
      if (!known.is_of(which, kv.head_dim) || !known.ready) continue;
      KvSide side = known.side;
      if (which == TURBO_KV_SIDE_K && kv.layer < centers_.size() && centers_[kv.layer].there) {
        if (centers_[kv.layer].host.size() != uint64_t{kv.n_kv_heads} * kv.head_dim)
          throw Failure(TURBO_INVALID_ARGUMENT, std::string(self().kernels().name) + ": centers of layer " + std::to_string(kv.layer) + " are of another shape");
        side.center = centers_[kv.layer].there;
      }
      return side;
    }
    throw Failure(TURBO_INVALID_ARGUMENT, std::string(self().kernels().name) + ": attached to no device, or head size " + std::to_string(kv.head_dim) + " was not laid out");
  }
  static void check_places(const turbo_device_kv& kv) {
    if ((reinterpret_cast<uint64_t>(kv.base) | kv.stride | reinterpret_cast<uint64_t>(kv.open_base) | kv.open_stride) % 64 != 0)
      throw Failure(TURBO_INVALID_ARGUMENT, "blocks of the KV pool do not lie at multiples of 64 bytes");
  }

  /// Throws Failure where no kernel takes these arguments.
  void check_shape(const turbo_device_attend& a) const {
    const std::string name = self().kernels().name;
    const auto refuse = [&](const std::string& why) { throw Failure(TURBO_UNSUPPORTED, name + ": " + why); };
    if (a.k.head_dim != a.v.head_dim) refuse("keys of " + std::to_string(a.k.head_dim) + " and values of " + std::to_string(a.v.head_dim) + " elements");
    if (a.k.head_dim == 0 || a.k.head_dim % 8 != 0 || a.k.head_dim > 256) refuse("head size " + std::to_string(a.k.head_dim) + " is no multiple of 8 up to 256");
    if (a.k.n_kv_heads == 0 || a.k.n_kv_heads != a.v.n_kv_heads || a.n_heads == 0 || a.n_heads % a.k.n_kv_heads != 0)
      refuse(std::to_string(a.n_heads) + " heads on " + std::to_string(a.k.n_kv_heads) + " KV heads");
    if (a.rope_dims % 2 != 0 || a.rope_dims > a.k.head_dim || a.rope_style > 1) refuse("rotary positions of " + std::to_string(a.rope_dims) + " elements");
    if (a.max_rows == 0 || a.max_rows > 65535 || a.max_chunks == 0 || a.max_chunks > 65535)
      refuse(std::to_string(a.max_rows) + " rows of " + std::to_string(a.max_chunks) + " chunks");
    if (a.out_q8.rows && (a.k.head_dim % kQ8Tile != 0 || a.out_q8.rows < a.max_rows))
      refuse("bytes of heads of " + std::to_string(a.k.head_dim) + " elements and " + std::to_string(a.out_q8.rows) + " rows");
  }

  Plan plan_of(const turbo_device_attend& a) const {
    const KvKernels k = self().kernels();
    Plan plan{};
    const uint32_t d = a.k.head_dim, group = a.n_heads / a.k.n_kv_heads, rows = a.same_sequence ? a.max_rows : 1;
    const uint32_t units = kernels_.device() ? kernels_.device()->compute_units : 1;
    plan.lanes_index = d <= 64 ? 0 : d <= 128 ? 1 : 2;
    AttendArgs& g = plan.args;
    g.a = a;
    // The narrowest tiles whose blocks the device holds at once: they are done first. Wider ones read each key for more
    // queries. Of several chunks a plan has up to twice as many as there are keys for; tiles of one query, of which each reads
    // its keys alone, only gain while there are few.
    const uint64_t held = uint64_t{kBlocksPerUnit} * units;
    const auto most_blocks = [&](uint32_t queries) { return a.max_chunks > 1 && queries > 1 ? 2 * held : held; };
    for (uint32_t q = 0; q < 4; ++q) {
      if (!exists(k, plan.lanes_index, q)) continue;
      plan.queries_index = q;
      set_tiles(g, kQueries[q]);
      if (kQueries[q] >= uint64_t{group} * rows || tiles_of(g) * a.max_chunks <= most_blocks(kQueries[q])) break;
    }
    g.partial_stride = d + 4;
    const uint32_t x = a.k.n_kv_heads * g.head_tiles;
    const uint64_t tiles = tiles_of(g);
    g.loop = a.max_chunks > 1 && (tiles >= 4ull * units || uint64_t{x} * a.max_rows > kMaxCounters);
    plan.workspace = g.loop || a.max_chunks == 1 ? 0 : uint64_t{a.max_rows} * a.n_heads * a.max_chunks * g.partial_stride * sizeof(float);
    plan.grid[0] = x;
    // As many blocks as the device holds at once, each with every so many'th chunk.
    plan.grid[1] = g.loop ? 1 : std::min<uint32_t>(a.max_chunks, static_cast<uint32_t>(std::max<uint64_t>(1, kBlocksPerUnit * uint64_t{units} / tiles)));
    plan.grid[2] = a.max_rows;
    return plan;
  }
  static uint64_t tiles_of(const AttendArgs& g) { return uint64_t{g.a.k.n_kv_heads} * g.head_tiles * ((g.a.max_rows + g.tile_rows - 1) / g.tile_rows); }
  static void set_tiles(AttendArgs& g, uint32_t queries) {
    const uint32_t group = g.a.n_heads / g.a.k.n_kv_heads;
    g.group = group;
    g.tile_heads = std::min(queries, group);
    g.tile_rows = g.a.same_sequence ? queries / g.tile_heads : 1;
    g.head_tiles = (group + g.tile_heads - 1) / g.tile_heads;
  }

  template <typename Args>
  void launch(turbo_stream* stream, uint32_t kernel, uint32_t threads, uint32_t x, uint32_t y, uint32_t z, const Args& args) const {
    kernels_.launch(stream, kernel, {x, y, z}, threads, args);
  }

  void append(turbo_stream* stream, const turbo_device_kv& kv, const turbo_device_table& table, uint32_t max_rows, const float* rows,
              uint64_t row_stride, const turbo_device_attend* fused) const {
    AppendArgs args{};
    args.kv = kv;
    args.table = table;
    args.which = kv.side;
    args.side = side_of(kv, kv.side);
    check_places(kv);
    args.rows = rows;
    args.row_stride = row_stride;
    args.max_rows = max_rows;
    if (fused && kv.side == TURBO_KV_SIDE_K) {
      args.norm = fused->k_norm;
      args.eps = fused->eps;
      args.rope_dims = fused->rope_dims;
      args.rope_style = fused->rope_style;
      args.rope_magnitude = fused->rope_magnitude;
      args.rope_frequencies = fused->rope_frequencies;
    }
    launch(stream, at_.append[kv.side], kRowThreads, (kv.n_kv_heads + 3) / 4, max_rows, 1, args);
  }

  void attend(turbo_stream* stream, const turbo_device_attend& a, uint64_t v_fingerprint) const {
    check_pair(a, v_fingerprint);
    Plan plan = plan_of(a);
    AttendArgs& g = plan.args;
    g.k = side_of(a.k, TURBO_KV_SIDE_K);
    g.v = side_of(a.v, TURBO_KV_SIDE_V);
    check_places(a.k);
    check_places(a.v);
    if (plan.workspace && !a.workspace) throw Failure(TURBO_INVALID_ARGUMENT, "bad call: attend without its workspace");
    g.partials = static_cast<float*>(a.workspace);
    g.counters = counters_.get();
    if (a.out_q8.rows) g.out_q8 = q8_rows(a.out_q8, uint64_t{a.n_heads} * a.v.head_dim);
    if (a.k_rows && (g.loop || a.max_rows > kMaxFusedAppend)) {
      turbo_device_kv k = a.k, v = a.v;
      k.side = TURBO_KV_SIDE_K;
      v.side = TURBO_KV_SIDE_V;
      append(stream, k, a.table, a.max_rows, a.k_rows, a.k_stride, &a);
      append(stream, v, a.table, a.max_rows, a.v_rows, a.v_stride, &a);
      g.a.k_rows = g.a.v_rows = nullptr;
    }
    launch(stream, at_.attend[plan.lanes_index][plan.queries_index], kAttendThreads, plan.grid[0], plan.grid[1], plan.grid[2], g);
  }

  void check_pair(const turbo_device_attend& a, uint64_t v_fingerprint) const {
    if (v_fingerprint != this->fingerprint()) throw Failure(TURBO_UNSUPPORTED, std::string(self().kernels().name) + ": values of another codec");
    check_shape(a);
  }

  void mixed(turbo_stream* stream, const turbo_device_attend& a, uint32_t which, uint32_t chunk_begin, uint32_t n_chunks, float* scores,
             uint64_t score_stride, float* sums, uint64_t sum_stride) const {
    check_shape(a);
    AttendArgs g{};
    g.a = a;
    (which == TURBO_KV_SIDE_K ? g.k : g.v) = side_of(which == TURBO_KV_SIDE_K ? a.k : a.v, which);
    check_places(which == TURBO_KV_SIDE_K ? a.k : a.v);
    set_tiles(g, kMixedQueries);
    g.chunk_begin = chunk_begin;
    g.n_chunks = n_chunks;
    g.scores = scores;
    g.score_stride = score_stride;
    g.sums = sums;
    g.sum_stride = sum_stride;
    const uint32_t l = a.k.head_dim <= 64 ? 0 : a.k.head_dim <= 128 ? 1 : 2;
    launch(stream, which == TURBO_KV_SIDE_K ? at_.scores[l] : at_.sums[l], kAttendThreads, a.k.n_kv_heads * g.head_tiles, n_chunks, a.max_rows, g);
  }

  void pack(turbo_stream* stream, const turbo_device_kv* kv, uint32_t n, int32_t open_id, int32_t block_id) const {
    PackArgs args{};
    args.kv = kv[0];
    args.side = side_of(kv[0], kv->side);
    args.open_id = open_id;
    args.block_id = block_id;
    for (uint32_t begin = 0; begin < n; begin += kLaunchParts) {
      const uint32_t parts = std::min(n - begin, kLaunchParts);
      for (uint32_t i = 0; i < parts; ++i) args.part[i] = {kv[begin + i].open_base, kv[begin + i].base};
      launch(stream, at_.pack, kRowThreads, TURBO_KV_BLOCK / 4, kv->n_kv_heads, parts, args);
    }
  }

  void move_row(turbo_stream* stream, const turbo_device_kv* kv, uint32_t n, int32_t src_id, uint32_t src_row, int32_t dst_id, uint32_t dst_row) const {
    const uint64_t stride = T::kPacks ? kv->open_stride : kv->stride;
    MoveArgs args{};
    args.side = side_of(kv[0], kv->side);
    args.src = static_cast<uint64_t>(src_id) * stride;
    args.dst = static_cast<uint64_t>(dst_id) * stride;
    args.src_row = src_row;
    args.dst_row = dst_row;
    args.n_kv_heads = kv->n_kv_heads;
    args.head_dim = kv->head_dim;
    for (uint32_t begin = 0; begin < n; begin += kLaunchParts) {
      const uint32_t parts = std::min(n - begin, kLaunchParts);
      for (uint32_t i = 0; i < parts; ++i) args.base[i] = T::kPacks ? kv[begin + i].open_base : kv[begin + i].base;
      launch(stream, at_.move[kv->side], kRowThreads, (kv->n_kv_heads + 3) / 4, parts, 1, args);
    }
  }

  // ---- C tables

  static T* at(void* p) { return static_cast<T*>(p); }
  static bool good(const turbo_device_kv* kv) { return kv && kv->side <= TURBO_KV_SIDE_V && kv->n_kv_heads > 0; }
  // Parts of one side; throws where their blocks lie badly.
  static bool alike(const turbo_device_kv* kv, uint32_t n) {
    if (!good(kv) || n == 0) return false;
    for (uint32_t i = 0; i < n; ++i) {
      if (kv[i].side != kv->side || kv[i].n_kv_heads != kv->n_kv_heads || kv[i].head_dim != kv->head_dim || kv[i].stride != kv->stride ||
          kv[i].open_stride != kv->open_stride || !kv[i].base || (T::kPacks && !kv[i].open_base))
        return false;
      check_places(kv[i]);
    }
    return true;
  }

  static turbo_status c_append(void* p, turbo_stream* stream, const turbo_device_kv* kv, const turbo_device_table* table, uint32_t max_rows,
                               const float* rows, uint64_t row_stride, turbo_error* error) noexcept {
    return guarded(error, [&] {
      detail::check(p && good(kv) && table && rows && max_rows > 0 && max_rows <= 65535, "append");
      at(p)->append(stream, *kv, *table, max_rows, rows, row_stride, nullptr);
    });
  }
  static turbo_status c_pack(void* p, turbo_stream* stream, const turbo_device_kv* kv, uint32_t n, int32_t open_id, int32_t block_id,
                             turbo_error* error) noexcept {
    return guarded(error, [&] {
      detail::check(p && alike(kv, n) && open_id >= 0 && block_id >= 0 && at(p)->at_.pack != kNone, "pack");
      at(p)->pack(stream, kv, n, open_id, block_id);
    });
  }
  static turbo_status c_move_row(void* p, turbo_stream* stream, const turbo_device_kv* kv, uint32_t n, int32_t src_id, uint32_t src_row, int32_t dst_id,
                                 uint32_t dst_row, turbo_error* error) noexcept {
    return guarded(error, [&] {
      detail::check(p && alike(kv, n) && src_id >= 0 && dst_id >= 0 && src_row < TURBO_KV_BLOCK && dst_row < TURBO_KV_BLOCK, "move_row");
      at(p)->move_row(stream, kv, n, src_id, src_row, dst_id, dst_row);
    });
  }
  static turbo_status c_check(void* p, const turbo_device_attend* args, uint64_t v_fingerprint, turbo_error* error) noexcept {
    return guarded(error, [&] {
      detail::check(p && args && TURBO_HAS(args, out_q8), "check");
      at(p)->check_pair(*args, v_fingerprint);
    });
  }
  static uint64_t c_workspace_bytes(void* p, const turbo_device_attend* args, uint64_t v_fingerprint) noexcept {
    uint64_t bytes = 0;
    guarded(nullptr, [&] {
      detail::check(p && args && TURBO_HAS(args, out_q8), "workspace_bytes");
      at(p)->check_pair(*args, v_fingerprint);
      bytes = at(p)->plan_of(*args).workspace;
    });
    return bytes;
  }
  static turbo_status c_attend(void* p, turbo_stream* stream, const turbo_device_attend* args, uint64_t v_fingerprint, turbo_error* error) noexcept {
    return guarded(error, [&] {
      detail::check(p && args && TURBO_HAS(args, out_q8) && args->q && args->out, "attend");
      at(p)->attend(stream, *args, v_fingerprint);
    });
  }
  static turbo_status c_scores(void* p, turbo_stream* stream, const turbo_device_attend* args, uint32_t chunk_begin, uint32_t n_chunks, float* scores,
                               uint64_t score_stride, turbo_error* error) noexcept {
    return guarded(error, [&] {
      detail::check(p && args && TURBO_HAS(args, out_q8) && args->q && scores, "scores");
      at(p)->mixed(stream, *args, TURBO_KV_SIDE_K, chunk_begin, n_chunks, scores, score_stride, nullptr, 0);
    });
  }
  static turbo_status c_accumulate(void* p, turbo_stream* stream, const turbo_device_attend* args, uint32_t chunk_begin, uint32_t n_chunks,
                                   const float* weights, uint64_t weight_stride, float* partials, uint64_t partial_stride, turbo_error* error) noexcept {
    return guarded(error, [&] {
      detail::check(p && args && TURBO_HAS(args, out_q8) && weights && partials, "accumulate");
      at(p)->mixed(stream, *args, TURBO_KV_SIDE_V, chunk_begin, n_chunks, const_cast<float*>(weights), weight_stride, partials, partial_stride);
    });
  }
  static constexpr turbo_kv_codec_device make_table() {
    return {sizeof(turbo_kv_codec_device), 0, &c_append, T::kPacks ? &c_pack : nullptr, &c_move_row, &c_check, &c_workspace_bytes,
            &c_attend, &c_scores, &c_accumulate};
  }

  DeviceKernels kernels_;
  Places at_;
  DeviceArray<uint32_t> counters_;
  mutable std::mutex mutex_;
  mutable std::vector<Known> known_;
  mutable std::vector<Center> centers_;  // by layer
  mutable KvTables tables_{kernels_};
};

}  // namespace turbo::gpu
