// Q1_0 on device tiers: layouts and argument structs, for host code and kernels. Includes no kernel language.
//
// Weights: groups of 128 of one row share an f16 scale; a set bit is +scale, a clear one -scale. Two planes in one buffer:
//   signs   [tile of 16 rows][group][row in tile]  16 bytes: bit i of byte b of word v is weight 32 v + 8 b + i
//   scales  the same order, f16; behind the signs, which are a multiple of 256 bytes
// Rows that fill the last tile have zero scales.
//
// Activations, prepared: per row and group 128 bytes in 8 planes of 16: byte b of word v of plane i is the value that
// meets bit i of that byte of that word. So (word & 0x01010101 << i) dotted with plane i is 2^i times the sum of the
// plane's values under set bits, and four values cost one dot.
#pragma once

#include <stdint.h>

#if defined(__CUDACC__) || defined(__HIP__)
#define TURBO_Q1_BOTH __host__ __device__
#else
#define TURBO_Q1_BOTH
#endif

namespace turbo::gpu::q1 {

constexpr uint32_t kGroup = 128;
constexpr uint32_t kTile = 16;
constexpr uint32_t kSegments = 16;             // at most, of a row's groups
constexpr uint32_t kGroupBytes = 128;          // prepared activations of a group
constexpr uint32_t kSharedGroupBytes = 144;    // in shared memory: both halves of a wave read without bank conflicts
constexpr uint32_t kMatrices = 4;
constexpr uint32_t kNoTile = 0xffffffffu;

TURBO_Q1_BOTH constexpr uint64_t tiles_of(uint64_t rows) { return rows / kTile + (rows % kTile != 0); }
TURBO_Q1_BOTH constexpr uint64_t sign_bytes(uint64_t rows, uint64_t n_groups) { return tiles_of(rows) * n_groups * (kTile * 16); }
TURBO_Q1_BOTH constexpr uint64_t packed_bytes(uint64_t rows, uint64_t n_groups) { return tiles_of(rows) * n_groups * (kTile * 18); }
/// Which 16-byte word of the signs, which f16 of the scales.
TURBO_Q1_BOTH constexpr uint64_t word_of(uint64_t row, uint64_t group, uint64_t n_groups) {
  return (row / kTile * n_groups + group) * kTile + row % kTile;
}

/// A row's groups are summed in segments of this many, and the segments in rising order.
TURBO_Q1_BOTH constexpr uint32_t segment_groups(uint32_t n_groups) { return (n_groups + kSegments - 1) / kSegments; }
TURBO_Q1_BOTH constexpr uint32_t segments_of(uint32_t n_groups) {
  return (n_groups + segment_groups(n_groups) - 1) / segment_groups(n_groups);
}

/// Of one prepared group: value i is scale * q[i].
struct alignas(8) GroupScale {
  float scale;
  int32_t base;  // kFloatBase - sum of q
};
/// Bits of 12582912.0f: adding an integer of less than 2^22 and subtracting the number again is the integer as float.
constexpr int32_t kFloatBase = 0x4b400000;

struct Matrix {
  const uint8_t* signs;
  const uint8_t* scales;
  const float* bias;  // [rows] or null
  float* out;
  uint64_t out_stride;  // floats
  uint32_t rows;
  uint32_t first_tile;  // of all matrices' tiles, in order; of an absent matrix kNoTile
};

enum Fuse : uint32_t { fuse_none, fuse_add, fuse_silu, fuse_gelu };  // as TURBO_FUSE_*

/// Products of up to four matrices with the same rows of x. Rows at or beyond max_rows are neither read nor written.
struct Product {
  Matrix matrix[kMatrices];
  const uint32_t* n_rows;
  const float* x;        // [max_rows][x_stride]
  uint64_t x_stride;
  const float* norm;     // [cols] or null
  const float* residual;
  uint64_t residual_stride;
  uint8_t* planes;       // prepared activations [max_rows][n_groups][128], or null: each block prepares its own
  GroupScale* scales;    // [max_rows][n_groups]
  float eps;
  uint32_t n_groups, n_matrices, max_rows;
  uint32_t n_tiles;      // of all matrices
  uint32_t n_units;      // what blocks deal among themselves: tiles, or pairs of a gate and an up tile
  uint32_t fuse;
  uint32_t reserved;
};

struct Gather {
  const uint8_t* signs;
  const uint8_t* scales;
  const int32_t* ids;
  const uint32_t* n_rows;
  float* dst;
  uint64_t dst_stride;
  uint32_t n_groups, rows;
};

// The matvec kernels: R rows of activations; a block holds pairs_of(R) pairs of tiles' words in flight, a power of two.
TURBO_Q1_BOTH constexpr uint32_t pairs_of(uint32_t rows) { return rows == 1 ? 4 : rows <= 4 ? 2 : 1; }
TURBO_Q1_BOTH constexpr uint32_t matvec_threads(uint32_t n_groups) { return (segments_of(n_groups) + 1) / 2 * 32; }
constexpr uint32_t kMatvecThreads = kSegments / 2 * 32;
constexpr uint32_t kSumStride = kSegments * kTile + kTile;  // floats of one (tile, row) among the segment sums
TURBO_Q1_BOTH constexpr uint32_t matvec_shared_bytes(uint32_t rows, uint32_t n_groups) {
  return rows * n_groups * (kSharedGroupBytes + uint32_t{sizeof(GroupScale)}) + rows * 8 * 4 + rows * pairs_of(rows) * 2 * kSumStride * 4;
}

// The matrix-matrix kernels: a block of 4 waves computes 4 tiles of outputs for gemm_rows rows; a lane 4 or 8 of them.
constexpr uint32_t kGemmTiles = 4, kGemmWaves = 4, kGemmThreads = kGemmWaves * 32;
TURBO_Q1_BOTH constexpr uint32_t gemm_rows(uint32_t lane_rows) { return kGemmWaves * 2 * lane_rows; }

constexpr uint32_t kPrepareThreads = 256, kGatherThreads = 128;

}  // namespace turbo::gpu::q1
