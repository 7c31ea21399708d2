// What the files of this plugin share: the packed layouts, the kernel table, and the arithmetic that fixes the bits.
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

namespace turbo::q1 {

constexpr uint64_t kBlock = 128;           // weights that share a scale, along the row
constexpr uint64_t kBlockBytes = 18;       // in the file: f16 scale, 16 bytes of sign bits
constexpr uint64_t kTile = 32;             // output rows interleaved in the packed form
constexpr uint64_t kTileSignBytes = 512;   // sign bits of one block of a tile
constexpr uint64_t kTileBlockBytes = 576;  // with its 32 f16 scales after them: the size of the source

// Packed form: tile after tile of 32 rows (the last one filled up with zero scales), in a tile block after block,
// in a block 512 bytes of signs and 32 f16 scales in row order. The signs come in one of two orders:
enum class Layout {
  words,  // 8 x (16-bit word i of each of the 32 rows, rows at word_slot(row)): word i holds inputs 16i .. 16i+15
  bytes,  // 16 x (byte i of each of the 32 rows), rows at byte_slot(row): byte i holds inputs 8i .. 8i+7
};

// Place of a row among the 32 words of Layout::words: even places hold rows 0..15, odd ones rows 16..31, so that
// widening the even or the odd 16-bit sums gives rows in order.
static inline uint64_t word_slot(uint64_t row) { return (row & 15u) << 1 | row >> 4; }

// Place of a row among the 32 bytes of Layout::bytes: unpacking byte pairs inside 128-bit lanes then gives rows
// 0..15 and 16..31 in order.
static inline uint64_t byte_slot(uint64_t row) { return (row & 7u) | ((row & 8u) << 1) | ((row & 16u) >> 1); }

struct Kernels {
  Layout layout;
  // int8 activations: bytes of a row (multiple of 64), its preparation, and the product.
  uint64_t (*activation_bytes)(uint64_t cols);
  void (*prepare_i8)(const float* x, uint64_t cols, void* dst);
  void (*matmul_i8)(const turbo_matmul* args);
  // f32 activations, kept as they are: products +-s * x in the lane order of turbo/kernel/lanes.h.
  void (*matmul_f32)(const turbo_matmul* args);
};

const Kernels* scalar_kernels();
const Kernels* avx2_kernels();
const Kernels* avx512_kernels();

static inline uint64_t round_up(uint64_t n, uint64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Every activation row starts with one f32 scale per block, filled up to 64 bytes.
static inline uint64_t scale_bytes(uint64_t cols) { return round_up(cols / kBlock * sizeof(float), 64); }

static inline const uint8_t* tile_block(const turbo_matrix* m, uint64_t tile, uint64_t block) {
  return (const uint8_t*)m->packed + (tile * (m->cols / kBlock) + block) * kTileBlockBytes;
}

static inline float load_scale(const uint8_t* tile_block_address, uint64_t row_in_tile) {
  uint16_t h;
  memcpy(&h, tile_block_address + kTileSignBytes + 2 * row_in_tile, 2);
  return turbo_f16_to_f32(h);
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

}  // namespace turbo::q1
