// Base class of KV codecs over abi/draft/kv_codec.h (draft). Calls on rows are [team]: several threads at once on
// disjoint ranges, so overrides are const, allocate nothing and do not throw.
#pragma once

#include <turbo/abi/draft/kv_codec.h>
#include <turbo/plugin.hpp>

#include <cstdint>
#include <cstring>

namespace turbo {

template <typename T>
class KvCodec {
 public:
  virtual ~KvCodec() = default;

  /// [load] Sizes of both forms for one layer and side. Throws Failure for shapes it cannot hold.
  virtual void layout(const turbo_kv_shape& shape, turbo_kv_layout& layout) const = 0;
  /// Heads [head_begin, head_end) of one position; src holds all n_kv_heads heads.
  virtual turbo_status append(const turbo_kv_shape& shape, void* block, uint32_t row, const float* src, uint32_t head_begin,
                              uint32_t head_end) const noexcept = 0;
  /// Not overridden: the open form is the packed form.
  virtual turbo_status pack(const turbo_kv_shape&, const void* /*open_block*/, void* /*packed_block*/) const noexcept {
    return TURBO_UNSUPPORTED;
  }
  /// K side; the default leaves the query as it is.
  virtual void prepare_query(const turbo_kv_shape& shape, uint32_t /*form*/, const float* query, float* prepared) const noexcept {
    std::memcpy(prepared, query, shape.head_dim * sizeof(float));
  }
  virtual void qk_scores(const turbo_kv_shape& shape, const turbo_kv_run& run, const float* queries, uint64_t query_stride,
                         float* scores, uint64_t score_stride) const noexcept = 0;
  virtual void pv_accumulate(const turbo_kv_shape& shape, const turbo_kv_run& run, const float* weights, uint64_t weight_stride,
                             float* out, uint64_t out_stride) const noexcept = 0;
  /// V side; the default leaves the sum as it is.
  virtual void finish_output(const turbo_kv_shape& shape, uint32_t /*form*/, const float* accumulated, float* output) const noexcept {
    std::memcpy(output, accumulated, shape.head_dim * sizeof(float));
  }
  virtual void move_row(const turbo_kv_shape& shape, const void* src_block, uint32_t src_row, void* dst_block,
                        uint32_t dst_row) const noexcept = 0;
  virtual void decode_row(const turbo_kv_shape& shape, uint32_t form, const void* block, uint32_t row, float* dst) const noexcept = 0;
  /// Of everything that decides stored bits, but for the centers.
  virtual uint64_t fingerprint() const noexcept = 0;
  /// [load] K side, before any append: subtract center [n_kv_heads][head_dim] from every key of the layer. Not
  /// overridden: the codec does not center.
  virtual void set_center(const turbo_kv_shape&, const float* /*center*/) {}

  static const void* interface(std::string_view id) {
    static constexpr turbo_kv_codec table = make_table();
    return id == TURBO_KV_CODEC_DRAFT ? &table : nullptr;
  }

 private:
  static const T& at(void* self) { return *static_cast<const T*>(self); }
  static constexpr bool checked = TURBO_SDK_CHECK != 0;

  static turbo_status c_layout(void* self, const turbo_kv_shape* shape, turbo_kv_layout* layout, turbo_error* error) noexcept {
    return guarded(error, [&] {
      detail::check(self && shape && TURBO_HAS(shape, head_dim) && layout && TURBO_HAS(layout, error_bound), "layout");
      detail::check(shape->n_kv_heads > 0 && shape->head_dim > 0 && shape->side <= TURBO_KV_SIDE_V, "KV shape");
      detail::fill_out(layout, [&](turbo_kv_layout& out) { at(self).layout(*shape, out); });
    });
  }
  static turbo_status c_append(void* self, const turbo_kv_shape* shape, void* block, uint32_t row, const float* src,
                               uint32_t head_begin, uint32_t head_end) noexcept {
    if (checked && (!self || !shape || !block || !src || row >= TURBO_KV_BLOCK || head_begin > head_end || head_end > shape->n_kv_heads))
      return TURBO_INVALID_ARGUMENT;
    return at(self).append(*shape, block, row, src, head_begin, head_end);
  }
  static turbo_status c_pack(void* self, const turbo_kv_shape* shape, const void* open_block, void* packed_block) noexcept {
    if (checked && (!self || !shape || !open_block || !packed_block)) return TURBO_INVALID_ARGUMENT;
    return at(self).pack(*shape, open_block, packed_block);
  }
  static void c_prepare_query(void* self, const turbo_kv_shape* shape, uint32_t form, const float* query, float* prepared) noexcept {
    if (checked && (!self || !shape || !query || !prepared)) return;
    at(self).prepare_query(*shape, form, query, prepared);
  }
  static bool good(const turbo_kv_shape* shape, const turbo_kv_run* run) {
    return shape && run && run->block && run->kv_head < shape->n_kv_heads && run->row_begin <= TURBO_KV_BLOCK &&
           run->n_rows <= TURBO_KV_BLOCK - run->row_begin;
  }
  static void c_qk_scores(void* self, const turbo_kv_shape* shape, const turbo_kv_run* run, const float* queries,
                          uint64_t query_stride, float* scores, uint64_t score_stride) noexcept {
    if (checked && (!self || !good(shape, run) || !queries || !scores)) return;
    at(self).qk_scores(*shape, *run, queries, query_stride, scores, score_stride);
  }
  static void c_pv_accumulate(void* self, const turbo_kv_shape* shape, const turbo_kv_run* run, const float* weights,
                              uint64_t weight_stride, float* out, uint64_t out_stride) noexcept {
    if (checked && (!self || !good(shape, run) || !weights || !out)) return;
    at(self).pv_accumulate(*shape, *run, weights, weight_stride, out, out_stride);
  }
  static void c_finish_output(void* self, const turbo_kv_shape* shape, uint32_t form, const float* accumulated, float* output) noexcept {
    if (checked && (!self || !shape || !accumulated || !output)) return;
    at(self).finish_output(*shape, form, accumulated, output);
  }
  static void c_move_row(void* self, const turbo_kv_shape* shape, const void* src_block, uint32_t src_row, void* dst_block,
                         uint32_t dst_row) noexcept {
    if (checked && (!self || !shape || !src_block || !dst_block || src_row >= TURBO_KV_BLOCK || dst_row >= TURBO_KV_BLOCK)) return;
    at(self).move_row(*shape, src_block, src_row, dst_block, dst_row);
  }
  static void c_decode_row(void* self, const turbo_kv_shape* shape, uint32_t form, const void* block, uint32_t row, float* dst) noexcept {
    if (checked && (!self || !shape || !block || !dst || row >= TURBO_KV_BLOCK)) return;
    at(self).decode_row(*shape, form, block, row, dst);
  }
  static turbo_status c_set_center(void* self, const turbo_kv_shape* shape, const float* center, turbo_error* error) noexcept {
    return guarded(error, [&] {
      detail::check(self && shape && TURBO_HAS(shape, head_dim) && shape->side == TURBO_KV_SIDE_K && center, "set_center");
      static_cast<T*>(self)->set_center(*shape, center);
    });
  }
  static uint64_t c_fingerprint(void* self) noexcept { return self ? at(self).fingerprint() : 0; }

  static constexpr turbo_kv_codec make_table() {
    constexpr bool centers = !std::is_same_v<decltype(&T::set_center), decltype(&KvCodec::set_center)>;
    constexpr bool packs = !std::is_same_v<decltype(&T::pack), decltype(&KvCodec::pack)>;
    return {sizeof(turbo_kv_codec), 0, &c_layout, &c_append, packs ? &c_pack : nullptr, &c_prepare_query, &c_qk_scores,
            &c_pv_accumulate, &c_finish_output, &c_move_row, &c_decode_row, &c_fingerprint, centers ? &c_set_center : nullptr};
  }
};

}  // namespace turbo
