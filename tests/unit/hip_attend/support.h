// A device of fibers, device codecs from the built libraries, steps with sequences and trees, and a reference of attention
// in double. Single-threaded.
#pragma once

#include "unit/kv_float/library.h"

#define TB_FIBER
#include <turbo/abi/draft/device.h>
#include <turbo/abi/draft/kv_codec.h>
#include <turbo/fake/host.hpp>
#include <turbo/kernel/gpu/device.hpp>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>

namespace turbo::test {

namespace fiber = turbo::gpu::fiber;

/// Host memory as device memory; a launch runs at once.
struct FiberDevice {
  turbo_device table{};
  uint32_t n_launches = 0, live_allocations = 0;

  FiberDevice() {
    table.struct_size = sizeof table;
    table.ctx = this;
    table.isa = "fiber";
    table.compute_units = 2;
    table.max_shared_bytes = 65536;
    table.module_load = [](void*, const turbo_code_object* objects, uint32_t n, turbo_module** module, turbo_error*) -> turbo_status {
      for (uint32_t i = 0; i < n; ++i)
        if (std::string(objects[i].isa) == "fiber") {
          *module = static_cast<turbo_module*>(const_cast<void*>(objects[i].data));
          return TURBO_OK;
        }
      return TURBO_UNSUPPORTED;
    };
    table.module_unload = [](void*, turbo_module*) {};
    table.kernel = [](void*, turbo_module* module, const char* name, turbo_kernel** kernel, turbo_error* error) -> turbo_status {
      const auto* list = *reinterpret_cast<const fiber::Kernel* const*>(module);
      const fiber::Kernel* found = fiber::Kernel::find(list, name);
      std::snprintf(error->message, sizeof error->message, "no kernel %s", name);
      *kernel = reinterpret_cast<turbo_kernel*>(const_cast<fiber::Kernel*>(found));
      return found ? TURBO_OK : TURBO_NOT_FOUND;
    };
    table.launch = [](void* ctx, turbo_stream*, turbo_kernel* kernel, const turbo_launch* l, turbo_error* error) -> turbo_status {
      ++static_cast<FiberDevice*>(ctx)->n_launches;
      const auto& k = *reinterpret_cast<const fiber::Kernel*>(kernel);
      EXPECT_EQ(k.argument_bytes, l->argument_bytes) << k.name;
      EXPECT_LE(l->argument_bytes, 4000u);
      const uint32_t grid[3] = {l->grid_x, l->grid_y, l->grid_z};
      try {
        k.launch(k, grid, l->threads, l->shared_bytes, l->arguments, l->resident != 0);
      } catch (const std::exception& e) {
        ADD_FAILURE() << e.what();
        std::snprintf(error->message, sizeof error->message, "%s", e.what());
        return TURBO_INTERNAL;
      }
      return TURBO_OK;
    };
    table.allocate = [](void* ctx, uint32_t, uint64_t bytes, const char*, turbo_error*) -> void* {
      void* p = nullptr;
      if (posix_memalign(&p, 256, bytes) != 0) return nullptr;
      std::memset(p, 0xa5, bytes);
      ++static_cast<FiberDevice*>(ctx)->live_allocations;
      return p;
    };
    table.release = [](void* ctx, void* p) {
      --static_cast<FiberDevice*>(ctx)->live_allocations;
      std::free(p);
    };
    table.copy = [](void*, turbo_stream*, void* dst, const void* src, uint64_t bytes, uint32_t, turbo_error*) -> turbo_status {
      std::memcpy(dst, src, bytes);
      return TURBO_OK;
    };
    table.fill = [](void*, turbo_stream*, void* dst, uint32_t byte, uint64_t bytes, turbo_error*) -> turbo_status {
      std::memset(dst, static_cast<int>(byte), bytes);
      return TURBO_OK;
    };
    table.sync = [](void*, turbo_stream*, turbo_error*) -> turbo_status { return TURBO_OK; };
  }
};

inline Library& device_library(const std::string& codec) {
  const auto path = [](const std::string& folder) { return std::string(TURBO_TEST_PLUGINS) + "/" + folder + "/libturbo_" + folder + "_hip.so"; };
  if (codec[0] == 't') {
    static Library tq(path("kv_turboquant"));
    return tq;
  }
  if (codec[0] == 'r') {
    static Library rq(path("kv_rotorquant"));
    return rq;
  }
  static Library floats(path("kv_float"));
  return floats;
}

using OptionMap = std::map<std::string, fake::Option>;

struct DeviceCodec {
  fake::Host host;
  Instance<turbo_kv_codec> instance;
  const turbo_kv_codec_device* device_table = nullptr;
  const turbo_device_client* client = nullptr;
  FiberDevice* device;

  DeviceCodec(FiberDevice& on, const std::string& name, const OptionMap& options = {})
      : instance((host.options = options, device_library(name).component(name)), TURBO_KV_CODEC_DRAFT, host.raw()), device(&on) {
    EXPECT_TRUE(instance.ok()) << instance.message();
    const turbo_component* c = device_library(name).component(name);
    device_table = static_cast<const turbo_kv_codec_device*>(c->query_interface(TURBO_KV_CODEC_DEVICE_DRAFT));
    client = static_cast<const turbo_device_client*>(c->query_interface(TURBO_DEVICE_CLIENT_DRAFT));
    turbo_error error{sizeof(turbo_error)};
    EXPECT_EQ(client->attach(self(), &on.table, &error), TURBO_OK) << error.message;
  }
  ~DeviceCodec() { client->detach(self()); }
  const turbo_kv_codec* operator->() const { return instance.table(); }
  void* self() const { return instance.self(); }
};

/// Memory of an exact size, so that a sanitizer sees what goes beyond.
struct Memory {
  uint8_t* data = nullptr;
  uint64_t bytes = 0;
  explicit Memory(uint64_t n, uint8_t garbage = 0xff) : bytes(n) {
    void* p = nullptr;
    if (posix_memalign(&p, 256, n ? n : 1) == 0) data = static_cast<uint8_t*>(p);
    std::memset(data, garbage, n);
  }
  Memory(const Memory&) = delete;
  ~Memory() { std::free(data); }
};

struct Sequence {
  uint32_t committed = 0;
  std::vector<int> parent;  // of each row: -1 or an earlier row of the sequence
  bool chain = true;        // rows follow each other; no path table
};
inline Sequence chain(uint32_t committed, uint32_t n) {
  Sequence s{committed, {}, true};
  for (uint32_t i = 0; i < n; ++i) s.parent.push_back(static_cast<int>(i) - 1);
  return s;
}
inline Sequence tree(uint32_t committed, uint32_t n, uint32_t seed) {
  std::mt19937 random(seed);
  Sequence s{committed, {}, false};
  for (uint32_t i = 0; i < n; ++i) s.parent.push_back(i ? static_cast<int>(random() % (i + 1)) - 1 : -1);
  return s;
}

struct Shape { uint32_t d = 128, kv_heads = 1, group = 2; };

/// One step over a cache of one layer. Keys of positions below `committed` are in the cache, packed where the codec packs,
/// the rows' own are appended by append() or by attend itself.
class StepUnderTest {
 public:
  Shape shape;
  std::vector<Sequence> sequences;
  uint32_t padded, n_rows = 0, max_rows = 0, block_capacity = 0, path_capacity = 64, max_chunks = 0, sinks = 0;
  bool open_uncommitted;
  std::vector<int32_t> position, row_seq, slot, path_length, path, committed, block_table, open_table;
  std::vector<std::vector<int32_t>> slots;  // of each row, by position
  uint32_t counts[4] = {};
  turbo_kv_layout layout[2];
  turbo_kv_shape kv_shape[2];
  std::unique_ptr<Memory> packed[2], open[2];
  std::vector<float> q, rows[2], out;
  const DeviceCodec* codec[2];

  StepUnderTest(const DeviceCodec& k, const DeviceCodec& v, Shape shape, std::vector<Sequence> seqs, uint32_t padded = 0, uint32_t seed = 1,
                bool open_uncommitted = false)
      : shape(shape), sequences(std::move(seqs)), padded(padded), open_uncommitted(open_uncommitted), codec{&k, &v}, random_(seed) {
    build_table();
    std::normal_distribution<float> normal;
    for (uint32_t side : {0u, 1u}) {
      kv_shape[side] = {sizeof(turbo_kv_shape), side, 0, 1, shape.kv_heads, shape.d};
      layout[side] = {};
      layout[side].struct_size = sizeof(turbo_kv_layout);
      turbo_error error{sizeof(turbo_error)};
      EXPECT_EQ((*codec[side])->layout(codec[side]->self(), &kv_shape[side], &layout[side], &error), TURBO_OK) << error.message;
      packed[side] = std::make_unique<Memory>(layout[side].packed_block_bytes * n_blocks_);
      open[side] = std::make_unique<Memory>(layout[side].open_block_bytes * n_blocks_);
      rows[side].resize(uint64_t{max_rows} * shape.kv_heads * shape.d);
      for (float& x : rows[side]) x = normal(random_);
    }
    sinks = layout[0].sinks;
    fill_cache();
    q.resize(uint64_t{max_rows} * heads() * shape.d);
    for (float& x : q) x = normal(random_);
    out.assign(q.size(), -7.0f);
  }

  uint32_t heads() const { return shape.kv_heads * shape.group; }
  bool two_forms(uint32_t side) const { return !(layout[side].flags & TURBO_KV_OPEN_IS_PACKED); }

  turbo_device_table table() const {
    turbo_device_table t{};
    t.counts = counts;
    t.position = position.data();
    t.row_seq = row_seq.data();
    t.slot = slot.data();
    t.path_length = path_length.data();
    t.path = path.data();
    t.committed = committed.data();
    t.block_table = block_table.data();
    t.open_table = open_table.data();
    t.path_capacity = path_capacity;
    t.block_capacity = block_capacity;
    return t;
  }
  turbo_device_kv device_kv(uint32_t side) const {
    turbo_device_kv kv{};
    kv.base = packed[side]->data;
    kv.open_base = open[side]->data;
    kv.stride = layout[side].packed_block_bytes;
    kv.open_stride = layout[side].open_block_bytes;
    kv.n_kv_heads = shape.kv_heads;
    kv.head_dim = shape.d;
    kv.sinks = layout[side].sinks;
    kv.side = side;
    return kv;
  }
  turbo_device_attend args() {
    turbo_device_attend a{};
    a.struct_size = sizeof a;
    a.max_rows = max_rows;
    a.table = table();
    a.k = device_kv(0);
    a.v = device_kv(1);
    a.n_heads = heads();
    a.max_chunks = max_chunks;
    a.scale = scale();
    a.same_sequence = 1;
    a.q = q.data();
    a.q_stride = a.out_stride = uint64_t{heads()} * shape.d;
    a.k_stride = a.v_stride = uint64_t{shape.kv_heads} * shape.d;
    a.out = out.data();
    return a;
  }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(shape.d)); }
  uint8_t* block(uint32_t side, uint32_t seq, uint32_t at, bool as_open) const {
    const uint64_t i = uint64_t{seq} * block_capacity + at / 64;
    return as_open ? open[side]->data + static_cast<uint64_t>(open_table[i]) * layout[side].open_block_bytes
                   : packed[side]->data + static_cast<uint64_t>(block_table[i]) * layout[side].packed_block_bytes;
  }

  void append() {
    const turbo_device_table t = table();
    turbo_error error{sizeof(turbo_error)};
    for (uint32_t side : {0u, 1u}) {
      const turbo_device_kv kv = device_kv(side);
      ASSERT_EQ(codec[side]->device_table->append(codec[side]->self(), nullptr, &kv, &t, max_rows, rows[side].data(), uint64_t{shape.kv_heads} * shape.d, &error),
                TURBO_OK) << error.message;
    }
  }
  /// attend of the same codec on both sides, with a workspace of the exact size.
  void attend(turbo_device_attend a) {
    turbo_error error{sizeof(turbo_error)};
    const uint64_t print = (*codec[1])->fingerprint(codec[1]->self());
    const auto* t = codec[0]->device_table;
    ASSERT_EQ(t->check(codec[0]->self(), &a, print, &error), TURBO_OK) << error.message;
    Memory workspace(t->workspace_bytes(codec[0]->self(), &a, print));
    a.workspace = workspace.data;
    out.assign(out.size(), -7.0f);
    ASSERT_EQ(t->attend(codec[0]->self(), nullptr, &a, print, &error), TURBO_OK) << error.message;
    for (uint64_t i = uint64_t{n_rows} * heads() * shape.d; i < out.size(); ++i) ASSERT_EQ(out[i], -7.0f) << "a padded row was written";
  }
  std::vector<float> live() const { return {out.begin(), out.begin() + static_cast<long>(uint64_t{n_rows} * heads() * shape.d)}; }

  /// Whether row r reads the key at position p in open form.
  bool reads_open(uint32_t side, uint32_t r, uint32_t p) const {
    if (!two_forms(side)) return false;
    const uint32_t seq = static_cast<uint32_t>(row_seq[r]);
    return p < layout[side].sinks || p / 64 == static_cast<uint32_t>(position[r]) / 64 ||
           (open_uncommitted && p / 64 >= static_cast<uint32_t>(committed[seq]) / 64);
  }

  /// Scores by the codec's own CPU half, softmax and values in double.
  std::vector<double> reference() const {
    std::vector<double> result(uint64_t{n_rows} * heads() * shape.d);
    std::vector<float> prepared[2] = {std::vector<float>(layout[0].query_floats), std::vector<float>(layout[0].query_floats)};
    std::vector<float> decoded(uint64_t{shape.kv_heads} * shape.d);
    for (uint32_t r = 0; r < n_rows; ++r) {
      const uint32_t seq = static_cast<uint32_t>(row_seq[r]), n = static_cast<uint32_t>(slots[r].size());
      std::vector<std::vector<double>> weight(heads(), std::vector<double>(n));
      for (uint32_t h = 0; h < heads(); ++h) {
        const float* query = &q[(uint64_t{r} * heads() + h) * shape.d];
        for (uint32_t form : {0u, 1u})
          if (form == TURBO_KV_FORM_PACKED || two_forms(0)) (*codec[0])->prepare_query(codec[0]->self(), &kv_shape[0], form, query, prepared[form].data());
        double most = -1e300, sum = 0;
        for (uint32_t p = 0; p < n; ++p) {
          const bool as_open = reads_open(0, r, p);
          const uint32_t at = static_cast<uint32_t>(slots[r][p]), form = as_open ? TURBO_KV_FORM_OPEN : TURBO_KV_FORM_PACKED;
          const turbo_kv_run run = {sizeof(turbo_kv_run), form, block(0, seq, at, as_open), at % 64, 1, h / shape.group, 1, nullptr};
          float score = 0;
          (*codec[0])->qk_scores(codec[0]->self(), &kv_shape[0], &run, prepared[form].data(), layout[0].query_floats, &score, 64);
          weight[h][p] = static_cast<double>(score) * static_cast<double>(scale());
          most = std::max(most, weight[h][p]);
        }
        for (double& w : weight[h]) sum += w = std::exp(w - most);
        for (double& w : weight[h]) w /= sum;
      }
      for (uint32_t p = 0; p < n; ++p) {
        const bool as_open = reads_open(1, r, p);
        const uint32_t at = static_cast<uint32_t>(slots[r][p]), form = as_open ? TURBO_KV_FORM_OPEN : TURBO_KV_FORM_PACKED;
        (*codec[1])->decode_row(codec[1]->self(), &kv_shape[1], form, block(1, seq, at, as_open), at % 64, decoded.data());
        for (uint32_t h = 0; h < heads(); ++h)
          for (uint32_t e = 0; e < shape.d; ++e)
            result[(uint64_t{r} * heads() + h) * shape.d + e] += weight[h][p] * static_cast<double>(decoded[h / shape.group * shape.d + e]);
      }
    }
    return result;
  }
  void expect_near(const std::vector<double>& expected, double bound) const {
    double worst = 0;
    for (uint64_t i = 0; i < expected.size(); ++i) {
      const double off = std::fabs(static_cast<double>(out[i]) - expected[i]);
      if (!(off <= worst)) worst = off;
    }
    EXPECT_LE(worst, bound);
  }

 private:
  void build_table() {
    uint32_t most = 0;
    for (const Sequence& s : sequences) most = std::max(most, s.committed + static_cast<uint32_t>(s.parent.size()));
    block_capacity = most / 64 + 2;
    max_chunks = (most + 255) / 256;
    for (uint32_t i = 0; i < sequences.size(); ++i) add_rows(i);
    n_blocks_ = block_capacity * static_cast<uint32_t>(sequences.size());
    std::vector<int32_t> ids(n_blocks_);
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), random_);
    block_table = ids;
    std::shuffle(ids.begin(), ids.end(), random_);
    open_table = ids;
    max_rows = n_rows + padded;
    position.resize(max_rows);
    row_seq.resize(max_rows);
    slot.resize(max_rows);
    path_length.resize(max_rows);
    path.resize(uint64_t{max_rows} * path_capacity, -1);
    counts[0] = n_rows;
    counts[1] = static_cast<uint32_t>(sequences.size());
    counts[3] = open_uncommitted;
  }
  void add_rows(uint32_t index) {
    const Sequence& s = sequences[index];
    committed.push_back(static_cast<int32_t>(s.committed));
    std::vector<std::vector<int32_t>> own;
    for (uint32_t i = 0; i < s.parent.size(); ++i) {
      std::vector<int32_t> p = s.parent[i] < 0 ? std::vector<int32_t>{} : own[static_cast<size_t>(s.parent[i])];
      p.push_back(static_cast<int32_t>(s.committed + i));
      own.push_back(p);
      position.push_back(static_cast<int32_t>(s.committed + p.size() - 1));
      row_seq.push_back(static_cast<int32_t>(index));
      slot.push_back(static_cast<int32_t>(s.committed + i));
      path_length.push_back(s.chain ? 0 : static_cast<int32_t>(p.size()));
      std::vector<int32_t> entries(path_capacity, -1);
      if (!s.chain) std::copy(p.begin(), p.end(), entries.begin());
      path.insert(path.end(), entries.begin(), entries.end());
      std::vector<int32_t> all(s.committed);
      std::iota(all.begin(), all.end(), 0);
      all.insert(all.end(), p.begin(), p.end());
      slots.push_back(all);
      ++n_rows;
    }
  }
  void fill_cache() {
    std::normal_distribution<float> normal;
    std::vector<float> row(uint64_t{shape.kv_heads} * shape.d);
    for (uint32_t side : {0u, 1u})
      for (uint32_t s = 0; s < sequences.size(); ++s) {
        const uint32_t n = sequences[s].committed;
        for (uint32_t p = 0; p < n; ++p) {
          for (float& x : row) x = normal(random_);
          EXPECT_EQ((*codec[side])->append(codec[side]->self(), &kv_shape[side], block(side, s, p, two_forms(side)), p % 64, row.data(), 0, shape.kv_heads), TURBO_OK);
        }
        if (!two_forms(side)) continue;
        turbo_error error{sizeof(turbo_error)};
        const turbo_device_kv kv = device_kv(side);
        for (uint32_t b = 0; (b + 1) * 64 <= n; ++b) {
          const uint64_t at = uint64_t{s} * block_capacity + b;
          ASSERT_EQ(codec[side]->device_table->pack(codec[side]->self(), nullptr, &kv, 1, open_table[at], block_table[at], &error), TURBO_OK) << error.message;
          std::vector<uint8_t> by_cpu(layout[side].packed_block_bytes, 0xff);
          EXPECT_EQ((*codec[side])->pack(codec[side]->self(), &kv_shape[side], block(side, s, b * 64, true), by_cpu.data()), TURBO_OK);
          EXPECT_EQ(std::memcmp(by_cpu.data(), block(side, s, b * 64, false), by_cpu.size()), 0) << "packed bytes differ from the CPU's, block " << b;
        }
      }
  }

  uint32_t n_blocks_ = 0;
  std::mt19937 random_;
};

}  // namespace turbo::test
