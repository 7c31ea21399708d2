// Layouts on the device and argument structs, for host code and kernels. Includes no kernel language.
//
//   F32, F16, BF16   rows as in the file, each filled up with zeros to 16 bytes
//   Q8_0, Q4_0       codes [row][group] of 32 or 16 bytes as in the file, then from a multiple of 256 bytes on the f16
//                    scales [row][group]
//
// Prepared rows: f32 [row][cols] (F32, F16, BF16 behind a norm), or signed bytes [row][group][32] and then, from a multiple
// of 256 bytes on, f32 scales [row][group].
#pragma once

#include <stdint.h>


namespace turbo::basic {

constexpr uint32_t kGroup = 32;

struct Product {
  const uint8_t* codes;    // or float weights
  const uint8_t* scales;   // f16
  const float* bias;       // [rows] or null
  float* out;
  const float* residual;   // or null
  const uint32_t* n_rows;
  const float* x;
  uint64_t x_stride, out_stride, residual_stride;  // floats
  uint64_t row_bytes;      // of the codes
  const float* norm;       // prepare alone
  uint8_t* prepared;       // bytes; or floats with prepared_stride
  float* prepared_scales;
  uint64_t prepared_stride;  // bytes of a prepared row
  uint32_t rows, cols, max_rows;
  float eps;
};

struct Gather {
  const uint8_t *codes, *scales;
  const int32_t* ids;
  const uint32_t* n_rows;
  float* dst;
  uint64_t dst_stride, row_bytes;
  uint32_t rows, cols;
};

constexpr uint32_t kThreads = 128, kWaves = kThreads / 32;
constexpr uint32_t kWaveOutputs = 4;                       // outputs of a wave at a time
constexpr uint32_t kBlockOutputs = kWaves * kWaveOutputs;
constexpr uint32_t kPrepareThreads = 256;

}  // namespace turbo::basic
