// Readable reference: defines the bits that the vector kernels repeat. Layout::words.
#include <turbo/kernel/lanes.h>

#include "kernels.h"

namespace turbo::q1 {
namespace {

// Activation row: scales, then cols signed bytes.
uint64_t activation_bytes(uint64_t cols) { return scale_bytes(cols) + round_up(cols, 64); }

float quantize_group(const float* x, int8_t* q) {
  uint32_t largest = 0;
  for (uint64_t j = 0; j < kBlock; ++j) {
    uint32_t bits;
    memcpy(&bits, x + j, 4);
    bits &= 0x7fffffffu;
    if (bits > largest) largest = bits;
  }
  const float scale = group_scale(largest);
  memset(q, 0, kBlock);
  if (!(scale > 0.0f)) return scale;
  const float inverse = 1.0f / scale;
  for (uint64_t j = 0; j < kBlock; ++j) {
    const float v = nearbyintf(x[j] * inverse);
    q[j] = (int8_t)(v > 127.0f ? 127.0f : v < -127.0f ? -127.0f : v);
  }
  return scale;
}

void prepare_i8(const float* x, uint64_t cols, void* dst) {
  float* scale = (float*)dst;
  int8_t* q = (int8_t*)dst + scale_bytes(cols);
  for (uint64_t b = 0; b < cols / kBlock; ++b) scale[b] = quantize_group(x + b * kBlock, q + b * kBlock);
}

// 1 when input j of the block has a + sign in this row.
int sign_bit(const uint8_t* block, uint64_t row_in_tile, uint64_t j) {
  return block[j / 16 * 64 + 2 * word_slot(row_in_tile) + j / 8 % 2] >> (j % 8) & 1;
}

float dot_i8(const turbo_matrix* m, uint64_t row, const uint8_t* activation) {
  const float* scale = (const float*)activation;
  const int8_t* q = (const int8_t*)activation + scale_bytes(m->cols);
  float acc = 0.0f;
  for (uint64_t b = 0; b < m->cols / kBlock; ++b, q += kBlock) {
    const uint8_t* block = tile_block(m, row / kTile, b);
    int32_t sum = 0;  // exact: |sum| <= 128 * 127
    for (uint64_t j = 0; j < kBlock; ++j) sum += sign_bit(block, row % kTile, j) ? q[j] : -q[j];
    acc = fmaf((float)sum, load_scale(block, row % kTile) * scale[b], acc);
  }
  return acc;
}

float dot_f32(const turbo_matrix* m, uint64_t row, const float* x) {
  float lane[TURBO_LANES] = {0};
  for (uint64_t b = 0; b < m->cols / kBlock; ++b, x += kBlock) {
    const uint8_t* block = tile_block(m, row / kTile, b);
    const float s = load_scale(block, row % kTile);
    for (uint64_t j = 0; j < kBlock; ++j) {
      float* l = lane + j % TURBO_LANES;
      *l = fmaf(sign_bit(block, row % kTile, j) ? s : -s, x[j], *l);
    }
  }
  return turbo_lane_sum(lane);
}

void matmul_i8(const turbo_matmul* args) {
  for (uint64_t r = 0; r < args->n_rows; ++r)
    for (uint64_t o = args->out_begin; o < args->out_end; ++o)
      args->out[r * args->out_stride + o] =
          dot_i8(args->matrix, o, (const uint8_t*)args->activations + r * args->activation_stride);
}

void matmul_f32(const turbo_matmul* args) {
  for (uint64_t r = 0; r < args->n_rows; ++r)
    for (uint64_t o = args->out_begin; o < args->out_end; ++o)
      args->out[r * args->out_stride + o] =
          dot_f32(args->matrix, o, (const float*)((const uint8_t*)args->activations + r * args->activation_stride));
}

}  // namespace

const Kernels* scalar_kernels() {
  static const Kernels kernels = {Layout::words, activation_bytes, prepare_i8, matmul_i8, matmul_f32};
  return &kernels;
}

}  // namespace turbo::q1
