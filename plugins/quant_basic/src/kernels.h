// What the files of this plugin share: layouts, the kernel table, and the arithmetic that fixes the bits.
//
// Only `static` functions and plain C types here: files compiled for different instruction sets include it, and a
// shared inline function could otherwise be taken from the wrong one.
#pragma once

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <turbo/abi/weight_format.h>
#include <turbo/kernel/half.h>

namespace turbo::basic {

// F32, F16 and BF16 are read in place, at whatever alignment the file gives them.
//
// Q8_0 and Q4_0 are packed: tiles of 16 output rows (the last one filled up with zero scales), in a tile group after
// group of 32 inputs. First all codes, then all scales:
//   codes, Q8_0: 8 x (inputs 4i .. 4i+3 of each of the 16 rows, signed bytes)                       512 bytes a group
//   codes, Q4_0: 4 x (bytes 4i .. 4i+3 of each of the 16 rows: low nibble input j, high j + 16)     256 bytes a group
//   scales: 16 f16 in row order                                                                      32 bytes a group
constexpr uint64_t kGroup = 32;
constexpr uint64_t kTile = 16;
constexpr uint64_t kGroupScaleBytes = 32;

static inline bool is_packed(uint32_t type) { return type == TURBO_TYPE_Q8_0 || type == TURBO_TYPE_Q4_0; }
static inline uint64_t group_code_bytes(uint32_t type) { return type == TURBO_TYPE_Q8_0 ? 512 : 256; }
static inline uint64_t round_up(uint64_t n, uint64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

struct Kernels {
  // int8 activations of Q8_0 and Q4_0 (layout below).
  void (*prepare_i8)(const float* x, uint64_t cols, void* dst);
  void (*matmul_i8)(const turbo_matmul* args);
  // f32 activations, every type: products in the lane order of turbo/kernel/lanes.h.
  void (*matmul_f32)(const turbo_matmul* args);
};

const Kernels* scalar_kernels();
const Kernels* avx2_kernels();
const Kernels* avx512_kernels();

// Packed codes and scales of one group of a tile.
struct Group {
  const uint8_t* codes;
  const uint8_t* scales;
};

static inline Group tile_group(const turbo_matrix* m, uint64_t tile, uint64_t group) {
  const uint64_t n_groups = m->cols / kGroup, n_tiles = (m->rows + kTile - 1) / kTile;
  const uint8_t* base = (const uint8_t*)m->packed;
  const uint64_t bytes = group_code_bytes(m->type);
  Group g;
  g.codes = base + (tile * n_groups + group) * bytes;
  g.scales = base + n_tiles * n_groups * bytes + (tile * n_groups + group) * kGroupScaleBytes;
  return g;
}

static inline float load_scale(Group g, uint64_t row_in_tile) {
  uint16_t h;
  memcpy(&h, g.scales + 2 * row_in_tile, 2);
  return turbo_f16_to_f32(h);
}

// The 32 integer weights of one row of a group, in input order.
static inline void group_integers(uint32_t type, Group g, uint64_t row_in_tile, int8_t* w) {
  if (type == TURBO_TYPE_Q8_0) {
    for (int i = 0; i < 8; ++i) memcpy(w + 4 * i, g.codes + 64 * i + 4 * row_in_tile, 4);
    return;
  }
  uint8_t bytes[16];
  for (int i = 0; i < 4; ++i) memcpy(bytes + 4 * i, g.codes + 64 * i + 4 * row_in_tile, 4);
  for (int j = 0; j < 16; ++j) {
    w[j] = (int8_t)((bytes[j] & 15) - 8);
    w[j + 16] = (int8_t)((bytes[j] >> 4) - 8);
  }
}

// int8 activation row: one f32 scale per group, one int32 sum of the group's q, then the q; each part filled up to
// 64 bytes.
struct Activation {
  const float* scale;
  const int32_t* sum;
  const int8_t* q;
};

static inline uint64_t per_group_bytes(uint64_t cols) { return round_up(cols / kGroup * 4, 64); }
static inline uint64_t activation_i8_bytes(uint64_t cols) { return 2 * per_group_bytes(cols) + round_up(cols, 64); }

static inline Activation activation_row(const turbo_matmul* a, uint64_t row) {
  const uint8_t* p = (const uint8_t*)a->activations + row * a->activation_stride;
  const uint64_t part = per_group_bytes(a->matrix->cols);
  Activation activation;
  activation.scale = (const float*)p;
  activation.sum = (const int32_t*)(p + part);
  activation.q = (const int8_t*)(p + 2 * part);
  return activation;
}

static inline const float* activation_f32(const turbo_matmul* a, uint64_t row) {
  return (const float*)((const uint8_t*)a->activations + row * a->activation_stride);
}

// The scale of an activation group, from the largest |x| of the group given as its bit pattern (so NaN > inf > finite):
//   not finite -> NaN (all q are 0, every output becomes NaN, as float arithmetic would have it);
//   largest / 127 below the normal range -> 0 (all q are 0); else largest / 127.
// When the scale is a positive number, q = clamp(rint(x * (1 / scale)), -127, 127), ties to even; 1 / scale is finite.
static inline float group_scale(uint32_t largest_bits) {
  if (largest_bits > 0x7f7fffffu) return __builtin_nanf("");
  float largest;
  memcpy(&largest, &largest_bits, 4);
  const float scale = largest / 127.0f;
  return scale >= FLT_MIN ? scale : 0.0f;
}

// Bytes of one row of an in-place type, and one weight of it.
static inline uint64_t float_bytes(uint32_t type) { return type == TURBO_TYPE_F32 ? 4 : 2; }

static inline float float_weight(uint32_t type, const uint8_t* row, uint64_t j) {
  if (type == TURBO_TYPE_F32) {
    float f;
    memcpy(&f, row + 4 * j, 4);
    return f;
  }
  uint16_t h;
  memcpy(&h, row + 2 * j, 2);
  return type == TURBO_TYPE_F16 ? turbo_f16_to_f32(h) : turbo_bf16_to_f32(h);
}

static inline const uint8_t* float_row(const turbo_matrix* m, uint64_t row) {
  return (const uint8_t*)m->packed + row * m->cols * float_bytes(m->type);
}

static inline uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

}  // namespace turbo::basic
