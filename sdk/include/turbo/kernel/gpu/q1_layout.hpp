// Q1_0 on device tiers: layouts and argument structs, for host code and kernels. Includes no kernel language.
//
// Weights: groups of 128 of one row share an f16 scale; a set bit is +scale, a clear one -scale. Two planes in one buffer:
//   signs   [tile of 16 rows][group][row in tile]  16 bytes, see sign_place
//   scales  the same order, f16; behind the signs, which are a multiple of 256 bytes
// Tiles come in pairs; rows that fill the last pair have zero scales.
//
// Activations are rows of bytes (q8_layout.hpp): 32 columns share a scale, four of these tiles make a group. A tile of a
// group meets bit t of the low and of the high half of every byte of the 16, in the order of its columns: (word &
// 0x01010101 << bit) dotted with codes is 2^bit times the sum of the codes under set bits, and four values cost one dot.
#pragma once

#include <turbo/kernel/gpu/q8_layout.hpp>

namespace turbo::gpu::q1 {

constexpr uint32_t kGroup = 128;
constexpr uint32_t kTile = 16;                 // rows of a tile of weights
constexpr uint32_t kUnit = 2 * kTile;          // outputs that blocks deal among themselves, and a tile of the next row of bytes
constexpr uint32_t kSegments = 32;             // at most, of a row's groups
constexpr uint32_t kGroupTiles = kGroup / kQ8Tile;
constexpr uint32_t kSharedGroupBytes = 160;    // in shared memory: 128 codes, 4 scales
constexpr uint32_t kMatrices = 4;
constexpr uint32_t kNoUnit = 0xffffffffu;

TURBO_GPU_BOTH constexpr uint64_t units_of(uint64_t rows) { return rows / kUnit + (rows % kUnit != 0); }
TURBO_GPU_BOTH constexpr uint64_t sign_bytes(uint64_t rows, uint64_t n_groups) { return units_of(rows) * n_groups * (kUnit * 16); }
TURBO_GPU_BOTH constexpr uint64_t packed_bytes(uint64_t rows, uint64_t n_groups) { return units_of(rows) * n_groups * (kUnit * 18); }
/// Which 16-byte word of the signs, which f16 of the scales.
TURBO_GPU_BOTH constexpr uint64_t word_of(uint64_t row, uint64_t group, uint64_t n_groups) {
  return (row / kTile * n_groups + group) * kTile + row % kTile;
}
/// Byte of the word and bit of the byte that hold column c of a group.
struct SignPlace {
  uint32_t byte, bit;
};
TURBO_GPU_BOTH constexpr SignPlace sign_place(uint32_t c) { return {c % 16, c / 32 + (c / 16 & 1) * 4}; }

/// A row's groups are summed in segments of this many, and the segments in rising order.
TURBO_GPU_BOTH constexpr uint32_t segment_groups(uint32_t n_groups) { return (n_groups + kSegments - 1) / kSegments; }
TURBO_GPU_BOTH constexpr uint32_t segments_of(uint32_t n_groups) {
  return (n_groups + segment_groups(n_groups) - 1) / segment_groups(n_groups);
}

struct Matrix {
  const uint8_t* signs;
  const uint8_t* scales;
  const float* bias;  // [rows] or null
  float* out;
  uint64_t out_stride;  // floats
  uint32_t rows;
  uint32_t first_unit;  // of all matrices' units, in order; of an absent matrix kNoUnit
};

enum Fuse : uint32_t { fuse_none, fuse_add, fuse_silu, fuse_gelu };  // as TURBO_FUSE_*

/// Products of up to four matrices with the same rows of bytes. Rows at or beyond max_rows are neither read nor written.
struct Product {
  Matrix matrix[kMatrices];
  const uint32_t* n_rows;
  const int8_t* codes;     // [..][n_groups * 128]
  const Q8Scale* scales;   // [..][n_groups * 4]
  const float* squares;    // [..][n_groups * 4]; null: no norm, whose factor multiplies a finished product
  const int32_t* x_rows;   // [max_rows]: rows of the bytes; null: the same rows
  const float* residual;
  uint64_t residual_stride;
  Q8Rows out_q8;           // of matrix 0's outputs; codes null: not wanted
  const float* out_norm;   // weights of these, or null
  float eps;
  uint32_t n_groups, n_matrices, max_rows;
  uint32_t n_units;        // of all matrices; gated: of one of the two
  uint32_t fuse;
};

/// Rows of floats to rows of bytes.
struct Prepare {
  const float* x;        // [..][x_stride]
  uint64_t x_stride;
  const float* norm;     // weights, or null
  const uint32_t* n_rows;
  const int32_t* x_rows;
  Q8Rows q8;
};

/// The product of one matrix with floats as they are.
struct Exact {
  Matrix matrix;
  const float* x;
  uint64_t x_stride;
  const uint32_t* n_rows;
  const int32_t* x_rows;
  uint32_t n_groups, reserved;
};

struct Gather {
  const uint8_t* signs;
  const uint8_t* scales;
  const int32_t* ids;
  const uint32_t* n_rows;
  float* dst;
  uint64_t dst_stride;
  Q8Rows out_q8;
  const float* out_norm;
  uint32_t n_groups, rows;
};

// The matvec kernels: R rows of activations. A team of waves, a half of one a segment, takes a unit; a block has one team or,
// where these are small, two. Words of items_of(R) items are in flight, or fewer, and sums of kSumRounds rounds are kept apart.
TURBO_GPU_BOTH constexpr uint32_t items_of(uint32_t rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }
constexpr uint32_t kStepHeld = 2;  // in flight in a step kernel, which has fewer registers
constexpr uint32_t kSumRounds = 2;
TURBO_GPU_BOTH constexpr uint32_t team_waves(uint32_t n_groups) { return (segments_of(n_groups) + 1) / 2; }
TURBO_GPU_BOTH constexpr uint32_t most_teams(uint32_t n_groups) { return team_waves(n_groups) > kSegments / 4 ? 1 : 2; }
constexpr uint32_t kMatvecThreads = kSegments / 2 * 32;
/// Waves of a block beyond its teams': they make the factors of a norm while the others multiply. The block's waves tell the
/// number of its teams, so they are fewer than a team's. Blocks of which two fit a compute unit stay as small as they are: so
/// the next product's begin while this one's run.
TURBO_GPU_BOTH constexpr uint32_t spare_waves(uint32_t rows, uint32_t n_groups, uint32_t teams) {
  const uint32_t waves = teams * team_waves(n_groups), room = kMatvecThreads / 32 - waves;
  return rows < team_waves(n_groups) && 2 * waves > kMatvecThreads / 32 ? (rows < room ? rows : room) : 0;
}
/// What a block works out of a product's sizes, with divisions that a kernel had better not do.
struct MatvecShape {
  uint32_t length, per_team;          // groups of a segment; waves of a team
  uint32_t units_each, units_more;    // of a block, and how many blocks have one more
};
TURBO_GPU_BOTH constexpr MatvecShape matvec_shape(uint32_t n_groups, uint32_t n_units, uint32_t n_blocks) {
  return {segment_groups(n_groups), team_waves(n_groups), n_units / n_blocks, n_units % n_blocks};
}
/// Floats of one (tile, row) among the segment sums; both halves of a wave read without bank conflicts.
TURBO_GPU_BOTH constexpr uint32_t sum_stride(uint32_t n_groups) { return (2 * team_waves(n_groups) + 1) * kTile; }
TURBO_GPU_BOTH constexpr uint32_t matvec_shared_bytes(uint32_t rows, uint32_t n_groups, uint32_t n_teams) {
  return rows * (n_groups * kSharedGroupBytes + 4 * (1 + 2 * kUnit + n_teams * items_of(rows) * kSumRounds * 2 * sum_stride(n_groups)));
}

// The matrix-matrix kernels: a block of 4 waves computes 4 tiles of outputs; a lane one of each tile for R rows.
constexpr uint32_t kGemmTiles = 4, kGemmWaves = 4, kGemmThreads = kGemmWaves * 32;
TURBO_GPU_BOTH constexpr uint32_t gemm_rows(uint32_t lane_rows) { return kGemmWaves * 2 * lane_rows; }

constexpr uint32_t kPrepareThreads = 256, kGatherThreads = 256;

}  // namespace turbo::gpu::q1
