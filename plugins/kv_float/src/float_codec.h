// kv_codec of plain floats of 32, 16 and 8 bits. One form only: open rows are final. A block of one layer and side is
// [kv_head][64 rows][pitch bytes]; with a scale per row, every head has [64] binary16 behind its rows. Rows of 32 and
// 16 bits are padded to 64 bytes, rows of 8 bits are not padded; the padding is never read or written.
// Centers are set at load; after that every call may run on any thread on disjoint ranges.
#pragma once

#include "common.h"
#include "kernels.h"

namespace turbo::kv_float {

class FloatCodec : public KvCodec<FloatCodec>, public Common {
 public:
  /// 8-bit elements read the options scale and rotate.
  FloatCodec(const Host& host, const char* name, Element element);

  void layout(const turbo_kv_shape& shape, turbo_kv_layout& layout) const override;
  turbo_status append(const turbo_kv_shape& shape, void* block, uint32_t row, const float* src, uint32_t head_begin,
                      uint32_t head_end) const noexcept override;
  void prepare_query(const turbo_kv_shape& shape, uint32_t form, const float* query, float* prepared) const noexcept override;
  void qk_scores(const turbo_kv_shape& shape, const turbo_kv_run& run, const float* queries, uint64_t query_stride, float* scores,
                 uint64_t score_stride) const noexcept override;
  void pv_accumulate(const turbo_kv_shape& shape, const turbo_kv_run& run, const float* weights, uint64_t weight_stride, float* out,
                     uint64_t out_stride) const noexcept override;
  void finish_output(const turbo_kv_shape& shape, uint32_t form, const float* accumulated, float* output) const noexcept override;
  void move_row(const turbo_kv_shape& shape, const void* src_block, uint32_t src_row, void* dst_block, uint32_t dst_row) const noexcept override;
  void decode_row(const turbo_kv_shape& shape, uint32_t form, const void* block, uint32_t row, float* dst) const noexcept override;
  uint64_t fingerprint() const noexcept override;
  void set_center(const turbo_kv_shape& shape, const float* center) override { keep_center(shape, center); }

 protected:
  bool is_fp8() const { return element_ >= Element::e4m3; }
  bool scaled() const { return element_ >= Element::e4m3_scaled; }
  bool is_e4m3() const { return element_ == Element::e4m3 || element_ == Element::e4m3_scaled; }
  bool rotates(const turbo_kv_shape& shape) const { return rotate_keys_ && shape.side == TURBO_KV_SIDE_K; }
  uint32_t element_bytes() const { return element_ == Element::f32 ? 4 : is_fp8() ? 1 : 2; }
  uint64_t pitch(const turbo_kv_shape& shape) const;
  uint64_t head_bytes(const turbo_kv_shape& shape) const { return (pitch(shape) + (scaled() ? 2 : 0)) * TURBO_KV_BLOCK; }
  uint64_t scales_at(const turbo_kv_shape& shape) const { return pitch(shape) * TURBO_KV_BLOCK; }
 private:
  KeyRun key_run(const turbo_kv_shape& shape, const turbo_kv_run& run) const;
  float decode(const uint8_t* row, uint32_t e) const;

  const char* name_;
  Element element_;
  bool rotate_keys_ = false;
  const Kernels* kernels_;
};

struct CodecF32 : FloatCodec { explicit CodecF32(const Host& host) : FloatCodec(host, "f32", Element::f32) {} };
struct CodecF16 : FloatCodec { explicit CodecF16(const Host& host) : FloatCodec(host, "f16", Element::f16) {} };
struct CodecBf16 : FloatCodec { explicit CodecBf16(const Host& host) : FloatCodec(host, "bf16", Element::bf16) {} };
struct CodecE4m3 : FloatCodec { explicit CodecE4m3(const Host& host) : FloatCodec(host, "fp8_e4m3", Element::e4m3) {} };
struct CodecE5m2 : FloatCodec { explicit CodecE5m2(const Host& host) : FloatCodec(host, "fp8_e5m2", Element::e5m2) {} };

}  // namespace turbo::kv_float
