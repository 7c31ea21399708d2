// kv_codec of integer codes with one binary16 scale per 32 elements: q8 (8.5 bits) and q4 (4.5 bits). One form only:
// append rounds at once. Bytes of a head: block_kernels.h.
//   q8   code = x / scale to nearest even, scale = largest magnitude / 127
//   q4   code = x / scale + 8 to nearest even, scale = -m / 8 with m the element of largest magnitude
// Codes are made with the scale as stored. A block whose scale rounds to zero is zeros.
// Centers are set at load; after that every call may run on any thread on disjoint ranges.
#pragma once

#include "block_kernels.h"
#include "common.h"

namespace turbo::kv_float {

class BlockCodec : public KvCodec<BlockCodec>, public Common {
 public:
  /// `bits` is 8 or 4. Reads the option rotate.
  BlockCodec(const Host& host, const char* name, uint32_t bits);

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
  // q8 turns keys only: values gain nothing from it at that precision.
  bool rotates(const turbo_kv_shape& shape) const { return rotate_ && (bits_ == 4 || shape.side == TURBO_KV_SIDE_K); }
  uint64_t code_bytes(const turbo_kv_shape& shape) const { return uint64_t{shape.head_dim} * bits_ / 8; }
  uint64_t scales_at(const turbo_kv_shape& shape) const { return code_bytes(shape) * TURBO_KV_BLOCK; }
  uint64_t head_bytes(const turbo_kv_shape& shape) const {
    return (code_bytes(shape) + 2 * row_blocks(shape.head_dim)) * TURBO_KV_BLOCK;
  }
 private:
  void round_row(const float* x, uint32_t n, int8_t* codes, uint16_t* scales) const;
  void write_codes(const turbo_kv_shape& shape, uint8_t* head, uint32_t row, const int8_t* codes) const;
  void read_codes(const turbo_kv_shape& shape, const uint8_t* head, uint32_t row, int8_t* codes) const;
  BlockRun block_run(const turbo_kv_shape& shape, const turbo_kv_run& run) const;

  const char* name_;
  uint32_t bits_;
  bool rotate_;
  const BlockKernels* kernels_;
};

struct CodecQ8 : BlockCodec { explicit CodecQ8(const Host& host) : BlockCodec(host, "q8", 8) {} };
struct CodecQ4 : BlockCodec { explicit CodecQ4(const Host& host) : BlockCodec(host, "q4", 4) {} };

}  // namespace turbo::kv_float
