// Kernel tables of the float codecs: one per element type and ISA, all with the same bits.
// [team] Pure functions on the given ranges.
#pragma once

#include <cstdint>

namespace turbo::kv_float {

enum class Element : uint32_t { f32 = 0, f16 = 1, bf16 = 2 };

struct KeyRun {
  const uint8_t* rows;  // first row of the run, one head
  uint64_t pitch;       // bytes between rows
  uint64_t n_rows, head_dim;
  uint64_t n_queries;
  const uint8_t* ahead;  // rows of another block to fetch meanwhile, or null
};

struct Kernels {
  // Round n floats into a row; false (and nothing written) when one is NaN.
  bool (*encode)(const float* src, uint64_t n, uint8_t* row);
  // scores[q * score_stride + i] = <query q, row i>
  void (*scores)(const KeyRun& run, const float* queries, uint64_t query_stride, float* scores, uint64_t score_stride);
  // out[q * out_stride + e] += weights[q * weight_stride + i] * row i [e], i rising. Writes whole 16-float chunks.
  void (*accumulate)(const KeyRun& run, const float* weights, uint64_t weight_stride, float* out, uint64_t out_stride);
};

const Kernels& scalar_kernels(Element element);
const Kernels& avx2_kernels(Element element);    // the scalar table where not compiled in
const Kernels& avx512_kernels(Element element);  // same

}  // namespace turbo::kv_float
