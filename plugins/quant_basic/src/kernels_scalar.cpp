// Readable reference: defines the bits that the vector kernels repeat.
#include <turbo/kernel/lanes.h>

#include "kernels.h"

namespace turbo::basic {
namespace {

float quantize_group(const float* x, int8_t* q, int32_t* sum) {
  uint32_t largest = 0;
  for (uint64_t j = 0; j < kGroup; ++j) {
    uint32_t bits;
    memcpy(&bits, x + j, 4);
    bits &= 0x7fffffffu;
    if (bits > largest) largest = bits;
  }
  const float scale = group_scale(largest);
  memset(q, 0, kGroup);
  *sum = 0;
  if (!(scale > 0.0f)) return scale;
  const float inverse = 1.0f / scale;
  for (uint64_t j = 0; j < kGroup; ++j) {
    const float v = nearbyintf(x[j] * inverse);
    q[j] = (int8_t)(v > 127.0f ? 127.0f : v < -127.0f ? -127.0f : v);
    *sum += q[j];
  }
  return scale;
}

void prepare_i8(const float* x, uint64_t cols, void* dst) {
  const uint64_t part = per_group_bytes(cols);
  float* scale = (float*)dst;
  int32_t* sum = (int32_t*)((uint8_t*)dst + part);
  int8_t* q = (int8_t*)dst + 2 * part;
  for (uint64_t g = 0; g < cols / kGroup; ++g) scale[g] = quantize_group(x + g * kGroup, q + g * kGroup, sum + g);
}

float dot_i8(const turbo_matrix* m, uint64_t row, Activation a) {
  float acc = 0.0f;
  for (uint64_t group = 0; group < m->cols / kGroup; ++group) {
    const Group g = tile_group(m, row / kTile, group);
    int8_t w[kGroup];
    group_integers(m->type, g, row % kTile, w);
    int32_t sum = 0;
    for (uint64_t j = 0; j < kGroup; ++j) sum += w[j] * a.q[group * kGroup + j];
    acc = fmaf((float)sum, load_scale(g, row % kTile) * a.scale[group], acc);
  }
  return acc;
}

float dot_f32(const turbo_matrix* m, uint64_t row, const float* x) {
  float lane[TURBO_LANES] = {0};
  if (!is_packed(m->type)) {
    const uint8_t* w = float_row(m, row);
    for (uint64_t j = 0; j < m->cols; ++j)
      lane[j % TURBO_LANES] = fmaf(float_weight(m->type, w, j), x[j], lane[j % TURBO_LANES]);
    return turbo_lane_sum(lane);
  }
  for (uint64_t group = 0; group < m->cols / kGroup; ++group, x += kGroup) {
    const Group g = tile_group(m, row / kTile, group);
    const float scale = load_scale(g, row % kTile);
    int8_t w[kGroup];
    group_integers(m->type, g, row % kTile, w);
    for (uint64_t j = 0; j < kGroup; ++j)
      lane[j % TURBO_LANES] = fmaf((float)w[j] * scale, x[j], lane[j % TURBO_LANES]);
  }
  return turbo_lane_sum(lane);
}

void matmul_i8(const turbo_matmul* args) {
  for (uint64_t r = 0; r < args->n_rows; ++r)
    for (uint64_t o = args->out_begin; o < args->out_end; ++o)
      args->out[r * args->out_stride + o] = dot_i8(args->matrix, o, activation_row(args, r));
}

void matmul_f32(const turbo_matmul* args) {
  for (uint64_t r = 0; r < args->n_rows; ++r)
    for (uint64_t o = args->out_begin; o < args->out_end; ++o)
      args->out[r * args->out_stride + o] = dot_f32(args->matrix, o, activation_f32(args, r));
}

}  // namespace

const Kernels* scalar_kernels() {
  static const Kernels kernels = {prepare_i8, matmul_i8, matmul_f32};
  return &kernels;
}

}  // namespace turbo::basic
