// What kernels of the rotated codecs work on, and their table: one per ISA, all with the same bits.
//
// Plain structs: this header is included by files compiled with ISA flags, so nothing here may leave a function behind
// for the linker to share. [team] Pure functions on the given ranges.
#pragma once

#include <turbo/kernel/rotated_kv/page.hpp>
#include <turbo/kernel/row_run.hpp>

#include <stdint.h>

namespace turbo::rotated_kv {

static constexpr uint32_t kMaxDim = 512;

enum class Turn : uint32_t { signs, givens, quaternion, dense };
enum class ScaleRule : uint32_t { unbiased, norm, least_squares, raw };

/// R x = factor * had(turn(x)); had is left out where seed is 0.
struct Rotation {
  uint32_t d;
  Turn turn;
  uint32_t seed, block;         // of the transform, see hadamard.hpp
  float factor;                 // 1 / sqrt d with the transform, else 1
  const float *first, *second;  // signs[d] | cos[d/2], sin[d/2] | matrix[16][d/4] | columns of R, rows of R
  const float* mix[2];          // seeds 12, 20: sign of (16-coordinate chunk, seed column, lane); of H and of its transpose
};

/// All that kernels need for one mode, side and head size.
struct Scheme {
  Rotation rotation;
  Page page;
  uint32_t d, bits, group;  // group 0: one scale per row
  ScaleRule rule;
  const float *level, *boundary;  // [16] each
  const int8_t* level8;           // [16]
  float level8_unit;
};

/// What encode says of a vector; saturated is a remark, the row is written.
enum : uint32_t { kEncoded = 0, kSaturated = 1, kNotFinite = 2 };

/// A prepared query of packed keys, in floats: round_up(d, 64) int8 with zeros behind d, then these two.
struct QueryTail {
  float unit;   // score = dot of integers * scale of the key * unit
  int32_t sum;  // of the int8
};

using OpenRun = kernel::RowRun;  // of halves, nothing ahead

struct PackedRun {
  const uint8_t* page;
  uint64_t row_begin, n_rows, n_queries;
  const uint8_t* ahead;  // page to fetch meanwhile, or null
};

struct Kernels {
  /// Rounds src - center (null: src) to halves, beyond +-65504 to that; false and nothing written when src is not finite.
  bool (*store_open)(const float* src, const float* center, uint64_t d, uint16_t* row);
  void (*load_open)(const uint16_t* row, uint64_t d, float* dst);
  /// scores[q * score_stride + i] = <query q, row i>
  void (*open_scores)(const OpenRun& run, const float* queries, uint64_t query_stride, float* scores, uint64_t score_stride);
  /// out[q * out_stride + e] += weights[q * weight_stride + i] * row i [e], i rising
  void (*open_values)(const OpenRun& run, const float* weights, uint64_t weight_stride, float* out, uint64_t out_stride);

  /// y = R x and x = R^T y; no overlap.
  void (*rotate)(const Rotation& r, const float* x, float* y);
  void (*unrotate)(const Rotation& r, const float* y, float* x);
  /// One vector to its codes and scales; kNotFinite leaves both alone.
  uint32_t (*encode)(const Scheme& s, const float* x, uint8_t* codes, uint8_t* scales);

  void (*prepare_query)(const Scheme& s, const float* query, float* prepared);
  void (*packed_scores)(const Scheme& s, const PackedRun& run, const float* queries, uint64_t query_stride, float* scores,
                        uint64_t score_stride);
  /// Sums of level * (weight * scale) in the order of values.inl; finish_output takes them back to the model's basis.
  void (*packed_values)(const Scheme& s, const PackedRun& run, const float* weights, uint64_t weight_stride, float* out,
                        uint64_t out_stride);
  void (*finish_output)(const Scheme& s, const float* accumulated, float* output);
};

const Kernels& scalar_kernels();
const Kernels& avx2_kernels();    // the scalar table where not compiled in
const Kernels& avx512_kernels();  // same
const Kernels& vbmi_kernels();    // AVX-512 with VBMI and VNNI; same

}  // namespace turbo::rotated_kv
