// Rows as signed bytes on device tiers, for host code and kernels: turbo_device_q8 taken apart. Includes no kernel language.
#pragma once

#include <turbo/abi/draft/device.h>

#include <stdint.h>

#if defined(__CUDACC__) || defined(__HIP__)
#define TURBO_GPU_BOTH __host__ __device__
#else
#define TURBO_GPU_BOTH
#endif

namespace turbo::gpu {

constexpr uint32_t kQ8Tile = TURBO_DEVICE_Q8_TILE;
/// Bits of 12582912.0f: adding an integer of less than 2^22 and subtracting the number again is the integer as float.
constexpr int32_t kFloatBase = 0x4b400000;

struct alignas(8) Q8Scale {
  float scale;
  float sum;  // of the codes
};

struct Q8Rows {
  int8_t* codes;     // [rows][n_tiles * 32]; null: there are none
  Q8Scale* scales;   // [rows][n_tiles]
  float* squares;    // [rows][n_tiles]
  uint64_t n_tiles;  // of a row
};

TURBO_GPU_BOTH inline Q8Rows q8_rows(const turbo_device_q8& q8, uint64_t cols) {
  const uint64_t n_tiles = cols / kQ8Tile;
  uint8_t* const scales = q8.base + q8.rows * cols;
  return {reinterpret_cast<int8_t*>(q8.base), reinterpret_cast<Q8Scale*>(scales),
          reinterpret_cast<float*>(scales + q8.rows * n_tiles * sizeof(Q8Scale)), n_tiles};
}

}  // namespace turbo::gpu
