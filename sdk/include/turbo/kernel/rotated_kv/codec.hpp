// The codec of every rotated mode on the CPU tier: a mode and its options over the kernels of an ISA.
//
// Open form: rows of halves, keys minus their center, [kv_head][64][d]. Packed form: a page per kv head (page.hpp), encoded
// from the open rows: what is rotated and coded is the half read as f32, so a block's bytes follow from its open rows
// alone. Tables of a head size are built by layout(), which therefore comes before any other call with that shape.
// Rows may be worked on by any thread on disjoint ranges; layout and set_center are [load].
#pragma once

#include <turbo/kernel/cpu_isa.hpp>
#include <turbo/kernel/rotated_kv/codebooks.hpp>
#include <turbo/kernel/rotated_kv/options.hpp>
#include <turbo/kv_codec.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace turbo::rotated_kv {

/// Tables of one mode, side and head size, and the scheme that points into them.
class SchemeTables {
 public:
  SchemeTables(const Mode& mode, const Options& options, uint32_t side, uint32_t d)
      : rotation_({mode.turn, options.mix, options.dense, options.left_only, options.seed}, side, d), book_(make_codebook(d, mode.bits)) {
    scheme_.rotation = rotation_.rotation();
    scheme_.page = page_of(d, mode.bits, options.group, options.wide_scale);
    scheme_.d = d;
    scheme_.bits = mode.bits;
    scheme_.group = options.group;
    scheme_.rule = options.rule;
    scheme_.level = book_.level;
    scheme_.boundary = book_.boundary;
    scheme_.level8 = book_.level8;
    scheme_.level8_unit = book_.level8_unit;
  }
  SchemeTables(const SchemeTables&) = delete;
  const Scheme& scheme() const { return scheme_; }
  const Codebook& book() const { return book_; }

 private:
  RotationTables rotation_;
  Codebook book_;
  Scheme scheme_{};
};

class RotatedCodec : public KvCodec<RotatedCodec> {
 public:
  /// Throws Failure for options that are none, and when TURBO_CPU_ISA cannot be met.
  RotatedCodec(const Host& host, const Mode& mode) : host_(host), mode_(mode), options_(read_options(host, mode)) {
    const CpuIsaChoice choice = choose_cpu_isa();
    if (!choice.problem.empty()) throw Failure(TURBO_UNSUPPORTED, choice.problem, "unset TURBO_CPU_ISA");
    kernels_ = choice.isa == CpuIsa::scalar ? &scalar_kernels()
               : choice.isa == CpuIsa::avx2 ? &avx2_kernels()
               : choice.features.vbmi       ? &vbmi_kernels()
                                            : &avx512_kernels();
  }
  RotatedCodec(const RotatedCodec&) = delete;

  static void probe(const Host&, const turbo_probe_facts&, Probe& answer) {
    const CpuIsaChoice choice = choose_cpu_isa();
    answer.score = choice.problem.empty() ? 100 : 0;
    answer.reason = choice.problem.empty() ? cpu_isa_name(choice.isa) : choice.problem;
  }

  void layout(const turbo_kv_shape& shape, turbo_kv_layout& layout) const override {
    if (shape.head_dim == 0 || shape.head_dim % 16 != 0 || shape.head_dim > kMaxDim)
      throw Failure(TURBO_UNSUPPORTED, std::string(mode_.name) + ": head size " + std::to_string(shape.head_dim) + " is no multiple of 16 up to " +
                                           std::to_string(kMaxDim), "use a plain codec, such as f16, for this model");
    if (shape.n_kv_heads == 0 || shape.n_kv_heads > kMaxHeads)
      throw Failure(TURBO_UNSUPPORTED, std::string(mode_.name) + ": " + std::to_string(shape.n_kv_heads) + " KV heads are not in 1.." + std::to_string(kMaxHeads));
    const SchemeTables& tables = build(shape.side, shape.head_dim);
    const Page& page = tables.scheme().page;
    const uint64_t tail = (uint64_t{shape.head_dim} + 63) / 64 * 16 + sizeof(QueryTail) / sizeof(float);
    const double distortion = tables.book().distortion;
    layout.packed_block_bytes = page.bytes * shape.n_kv_heads;
    layout.open_block_bytes = open_head_bytes(shape) * shape.n_kv_heads;
    layout.alignment = 64;
    layout.query_floats = static_cast<uint32_t>(std::max<uint64_t>(shape.head_dim, (tail + 15) / 16 * 16));
    layout.truncate_granularity = 1;
    layout.sinks = options_.sinks;
    layout.bits_per_element = static_cast<float>(page.bytes * 8) / static_cast<float>(kPageRows * shape.head_dim);
    layout.error_bound = 2.0f * static_cast<float>(std::sqrt(distortion / (1.0 - distortion)));  // twice the mean: holds for one vector
  }

  turbo_status append(const turbo_kv_shape& shape, void* block, uint32_t row, const float* src, uint32_t head_begin,
                      uint32_t head_end) const noexcept override {
    const float* center;
    if (!find_center(shape, center) || !scheme(shape)) return TURBO_INVALID_ARGUMENT;
    for (uint32_t head = head_begin; head < head_end; ++head) {
      const uint64_t at = uint64_t{head} * shape.head_dim;
      if (!kernels_->store_open(src + at, center ? center + at : nullptr, shape.head_dim, open_row(shape, block, head, row)))
        return TURBO_CORRUPT_INPUT;
    }
    return TURBO_OK;
  }

  turbo_status pack(const turbo_kv_shape& shape, const void* open_block, void* packed_block) const noexcept override {
    const Scheme* s = scheme(shape);
    if (!s) return TURBO_INVALID_ARGUMENT;
    float x[kMaxDim];
    uint64_t n_saturated = 0;
    for (uint32_t head = 0; head < shape.n_kv_heads; ++head) {
      uint8_t* page = static_cast<uint8_t*>(packed_block) + head * s->page.bytes;
      for (uint64_t row = 0; row < kPageRows; ++row) {
        kernels_->load_open(open_row(shape, open_block, head, row), s->d, x);
        const uint32_t said = kernels_->encode(*s, x, page + code_offset(s->page, row), page + scale_offset(s->page, row));
        if (said & kNotFinite) return TURBO_CORRUPT_INPUT;
        n_saturated += (said & kSaturated) != 0;
      }
    }
    if (n_saturated) host_.counter_add("kv_scale_saturations", static_cast<double>(n_saturated));
    return TURBO_OK;
  }

  void prepare_query(const turbo_kv_shape& shape, uint32_t form, const float* query, float* prepared) const noexcept override {
    if (form == TURBO_KV_FORM_OPEN) std::memcpy(prepared, query, shape.head_dim * sizeof(float));
    else if (const Scheme* s = scheme(shape)) kernels_->prepare_query(*s, query, prepared);
  }

  void qk_scores(const turbo_kv_shape& shape, const turbo_kv_run& run, const float* queries, uint64_t query_stride, float* scores,
                 uint64_t score_stride) const noexcept override {
    if (run.form == TURBO_KV_FORM_OPEN) kernels_->open_scores(open_run(shape, run), queries, query_stride, scores, score_stride);
    else if (const Scheme* s = scheme(shape)) kernels_->packed_scores(*s, packed_run(*s, run), queries, query_stride, scores, score_stride);
  }

  void pv_accumulate(const turbo_kv_shape& shape, const turbo_kv_run& run, const float* weights, uint64_t weight_stride, float* out,
                     uint64_t out_stride) const noexcept override {
    if (run.form == TURBO_KV_FORM_OPEN) kernels_->open_values(open_run(shape, run), weights, weight_stride, out, out_stride);
    else if (const Scheme* s = scheme(shape)) kernels_->packed_values(*s, packed_run(*s, run), weights, weight_stride, out, out_stride);
  }

  void finish_output(const turbo_kv_shape& shape, uint32_t form, const float* accumulated, float* output) const noexcept override {
    if (form == TURBO_KV_FORM_OPEN) std::memmove(output, accumulated, shape.head_dim * sizeof(float));
    else if (const Scheme* s = scheme(shape)) kernels_->finish_output(*s, accumulated, output);
  }

  void move_row(const turbo_kv_shape& shape, const void* src_block, uint32_t src_row, void* dst_block, uint32_t dst_row) const noexcept override {
    for (uint32_t head = 0; head < shape.n_kv_heads; ++head)
      std::memmove(open_row(shape, dst_block, head, dst_row), open_row(shape, src_block, head, src_row), shape.head_dim * sizeof(uint16_t));
  }

  void decode_row(const turbo_kv_shape& shape, uint32_t form, const void* block, uint32_t row, float* dst) const noexcept override {
    const Scheme* s = scheme(shape);
    const float* center;
    if (!s || !find_center(shape, center)) return;
    for (uint32_t head = 0; head < shape.n_kv_heads; ++head, dst += shape.head_dim) {
      if (form == TURBO_KV_FORM_OPEN) kernels_->load_open(open_row(shape, block, head, row), s->d, dst);
      else decode_packed(*s, static_cast<const uint8_t*>(block) + head * s->page.bytes, row, dst);
      if (center)
        for (uint32_t e = 0; e < shape.head_dim; ++e) dst[e] += center[uint64_t{head} * shape.head_dim + e];
    }
  }

  uint64_t fingerprint() const noexcept override { return fingerprint_of(mode_, options_); }

  void set_center(const turbo_kv_shape& shape, const float* center) override {
    if (shape.layer >= kMaxLayers || shape.n_kv_heads > kMaxHeads || shape.head_dim > kMaxDim)
      throw Failure(TURBO_UNSUPPORTED, std::string(mode_.name) + ": centers of layer " + std::to_string(shape.layer) + ": out of range");
    const uint64_t n = uint64_t{shape.n_kv_heads} * shape.head_dim;
    for (uint64_t i = 0; i < n; ++i)
      if (!std::isfinite(center[i]))
        throw Failure(TURBO_INVALID_ARGUMENT, std::string(mode_.name) + ": centers of layer " + std::to_string(shape.layer) + ": not finite");
    if (centers_.size() <= shape.layer) centers_.resize(shape.layer + 1);
    centers_[shape.layer].assign(center, center + n);
  }

 protected:
  // Null before layout() of the shape.
  const Scheme* scheme(const turbo_kv_shape& shape) const noexcept {
    if (shape.head_dim > kMaxDim || shape.head_dim % 16 != 0 || shape.side > TURBO_KV_SIDE_V) return nullptr;
    const SchemeTables* tables = tables_[shape.side][shape.head_dim / 16].load(std::memory_order_acquire);
    return tables ? &tables->scheme() : nullptr;
  }

 private:
  static constexpr uint32_t kMaxHeads = 4096, kMaxLayers = 1 << 16;

  static uint64_t open_head_bytes(const turbo_kv_shape& shape) { return kPageRows * shape.head_dim * sizeof(uint16_t); }
  static uint16_t* open_row(const turbo_kv_shape& shape, const void* block, uint64_t head, uint64_t row) {
    return static_cast<uint16_t*>(const_cast<void*>(block)) + (head * kPageRows + row) * shape.head_dim;
  }
  static OpenRun open_run(const turbo_kv_shape& shape, const turbo_kv_run& run) {
    const uint16_t* first = open_row(shape, run.block, run.kv_head, run.row_begin);
    return {reinterpret_cast<const uint8_t*>(first), shape.head_dim * sizeof(uint16_t), run.n_rows, shape.head_dim, run.n_queries, nullptr, nullptr};
  }
  static PackedRun packed_run(const Scheme& s, const turbo_kv_run& run) {
    const uint64_t at = run.kv_head * s.page.bytes;
    return {static_cast<const uint8_t*>(run.block) + at, run.row_begin, run.n_rows, run.n_queries,
            run.ahead ? static_cast<const uint8_t*>(run.ahead) + at : nullptr};
  }

  void decode_packed(const Scheme& s, const uint8_t* page, uint64_t row, float* dst) const {
    float y[kMaxDim];
    const uint8_t* codes = page + code_offset(s.page, row);
    for (uint32_t i = 0; i < s.d; ++i) y[i] = scale_of_row(s.page, page, row, s.group ? i / s.group : 0) * s.level[code_at(codes, s.bits, i)];
    kernels_->unrotate(s.rotation, y, dst);
  }

  const SchemeTables& build(uint32_t side, uint32_t d) const {
    const std::lock_guard lock(build_mutex_);
    std::atomic<const SchemeTables*>& slot = tables_[side][d / 16];
    if (!slot.load(std::memory_order_relaxed)) {
      built_.push_back(std::make_unique<SchemeTables>(mode_, options_, side, d));
      if (built_.back()->scheme().rotation.turn == Turn::dense && !options_.dense)
        host_.log(TURBO_LOG_INFO, std::string(mode_.name) + ": head size " + std::to_string(d) + " has no fast transform; a dense rotation is used");
      if (mode_.bits == 2 && side == TURBO_KV_SIDE_K)
        host_.log(TURBO_LOG_WARN, std::string(mode_.name) + ": keys of 2 bits are for large models; small ones lose quality");
      slot.store(built_.back().get(), std::memory_order_release);
    }
    return *slot.load(std::memory_order_relaxed);
  }

  // Center of the layer's keys, or null for none; false when it was set for another shape.
  bool find_center(const turbo_kv_shape& shape, const float*& center) const noexcept {
    center = nullptr;
    if (shape.side != TURBO_KV_SIDE_K || shape.layer >= centers_.size() || centers_[shape.layer].empty()) return true;
    center = centers_[shape.layer].data();
    return centers_[shape.layer].size() == uint64_t{shape.n_kv_heads} * shape.head_dim;
  }

  Host host_;
  Mode mode_;
  Options options_;
  const Kernels* kernels_;
  std::vector<std::vector<float>> centers_;  // by layer
  mutable std::mutex build_mutex_;
  mutable std::vector<std::unique_ptr<const SchemeTables>> built_;
  mutable std::atomic<const SchemeTables*> tables_[2][kMaxDim / 16 + 1] = {};
};

}  // namespace turbo::rotated_kv
