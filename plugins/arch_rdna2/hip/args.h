// Argument structs of the pack's own kernels (ops.hip), shared with the host code that fills them.
#pragma once

#include <turbo/abi/draft/device.h>

namespace turbo::arch_rdna2 {

constexpr uint32_t kThreads = 256;     // of a block, in every kernel here

/// Rows at or beyond *n_rows are padding: nothing is written for them.
struct NormArgs {
  const uint32_t* n_rows;
  const float *x, *weight;
  float* out;                    // may be x
  uint64_t x_stride, out_stride;  // floats
  uint32_t width, groups;        // of one group; of a row
  float eps;
  uint32_t reserved;
};

struct RopeArgs {
  const uint32_t* n_rows;
  const int32_t* position;
  const float* frequencies;
  float* x;
  uint64_t stride;
  uint32_t n_heads, head_dim, dims, style;
  float magnitude;
  uint32_t reserved;
};

enum : uint32_t { kAdd, kSilu, kGelu, kCopy, kConcat };

/// out[r][i] = f(a[source][i], b[r][i]); source is rows[r], or r without `rows`. Concat: b follows the first a_width.
struct ElementArgs {
  const uint32_t* n_rows;
  const int32_t* rows;
  const float *a, *b;
  float* out;
  uint64_t a_stride, b_stride, out_stride;  // floats; b_stride 0: one row for all
  uint64_t width, a_width;
  uint32_t kind;
  uint32_t reserved;
};

struct TopKArgs {
  const uint32_t* n_rows;
  const float* x;
  float *ids, *values;
  uint64_t x_stride, ids_stride, values_stride;
  uint32_t n, k;
};

/// The step table's arrays lie in the same order in host and device memory (pack::StepArrays). Of each only what the step
/// uses is copied. `head` is in pinned memory: n_rows, n_seqs, n_logit_rows, open_uncommitted, then how many entries of
/// every path and of every block table are used, then the number of the step for step kernels. counts takes the first four
/// and that number.
struct TableArgs {
  const uint32_t* head;
  const int32_t* source;
  uint32_t* counts;
  int32_t* target;
  uint32_t rows, sequences, logit_rows, blocks, path;  // capacities
  uint32_t reserved;
};
constexpr uint32_t kHeadWords = 7, kHeadTag = 6, kCountsTag = 4;

/// Attention taken apart, for chunks [chunk_begin, chunk_begin + n_chunks) of every row and head: as MixedArgs of
/// turbo/kernel/gpu/attend_mixed.hpp.
struct WindowArgs {
  turbo_device_table table;
  uint32_t n_heads, head_dim, chunk_begin, n_chunks, max_chunks, reserved;
  float* scores;
  float* partials;
  float* state;
  float* out;
  uint64_t score_stride, partial_stride, out_stride;  // floats
};

// ---- the plain f32 format and codec of the self-test (reference.hip)

struct PlainMatmulArgs {
  const uint32_t* n_rows;
  const float *x, *w;
  float* out;
  uint64_t x_stride, out_stride;
  uint32_t n_out, cols;
};
struct PlainGatherArgs {
  const uint32_t* n_rows;
  const int32_t* ids;
  const float* w;
  float* out;
  uint64_t out_stride;
  uint32_t cols, reserved;
};
struct PlainAppendArgs {
  turbo_device_table table;
  turbo_device_kv kv;
  const float* rows;
  uint64_t stride;
};
struct PlainMoveArgs {
  const float* source;  // a block
  float* target;
  uint32_t source_row, target_row, n_kv_heads, head_dim;
};
/// Scores of a chunk (K side), or weighted values of one (V side).
struct PlainAttendArgs {
  turbo_device_table table;
  turbo_device_kv kv;
  const float* q;        // K side
  const float* weights;  // V side
  float* out;
  uint64_t q_stride, in_stride, out_stride;
  uint32_t n_heads, chunk_begin, n_chunks;
  float scale;
};

}  // namespace turbo::arch_rdna2
