// Kernel tables of the float codecs: one per element type and ISA, all with the same bits.
// [team] Pure functions on the given ranges.
#pragma once

#include <turbo/kernel/row_run.hpp>

#include <cstdint>

namespace turbo::kv_float {

// e4m3 elements come out of the kernels times 2^-8: queries and outputs are multiplied by 2^8 outside.
// _scaled: every row has a binary16 scale beside it.
enum class Element : uint32_t { f32 = 0, f16 = 1, bf16 = 2, e4m3 = 3, e5m2 = 4, e4m3_scaled = 5, e5m2_scaled = 6 };

using KeyRun = kernel::RowRun;

struct Kernels {
  // Round n floats into a row, times 1 / scale where the element has one. False (and nothing written) when one is NaN
  // or, 8-bit elements only, infinite.
  bool (*encode)(const float* src, uint64_t n, uint8_t* row, uint16_t* scale);
  // scores[q * score_stride + i] = <query q, row i>
  void (*scores)(const KeyRun& run, const float* queries, uint64_t query_stride, float* scores, uint64_t score_stride);
  // out[q * out_stride + e] += weights[q * weight_stride + i] * row i [e], i rising. Writes whole 16-float chunks.
  void (*accumulate)(const KeyRun& run, const float* weights, uint64_t weight_stride, float* out, uint64_t out_stride);
};

const Kernels& scalar_kernels(Element element);
const Kernels& avx2_kernels(Element element);    // the scalar table where not compiled in
const Kernels& avx512_kernels(Element element);  // same

}  // namespace turbo::kv_float
