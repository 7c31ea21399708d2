// Activations as signed bytes with one scale a group.
//
// largest = max |x| of the group; scale = largest * (1 / 127); q = rint(x * (127 / largest)), ties to even, within +-127.
// A scale below the normal range counts as 0 with all q 0; a NaN or infinity in the group makes it NaN, and so every
// output of the row.
#pragma once

#include <turbo/kernel/gpu/device.hpp>

namespace turbo::gpu {

#if defined(TB_NVIDIA)
TB_DEVICE uint32_t wave_largest(uint32_t v) { return __reduce_max_sync(kAllLanes, v); }
TB_DEVICE int32_t wave_total(int32_t v) { return __reduce_add_sync(kAllLanes, v); }
#else
TB_DEVICE uint32_t wave_largest(uint32_t v) {
  TB_UNROLL
  for (uint32_t m = kWave / 2; m; m >>= 1) {
    const uint32_t other = shuffle_xor(v, m);
    v = other > v ? other : v;
  }
  return v;
}
TB_DEVICE int32_t wave_total(int32_t v) { return wave_sum(v); }
#endif

struct ByteScale {
  float scale, inverse;  // inverse 0: all bytes are 0
};

/// Of the largest |x| of a group, given as its bits, so that NaN > infinity > finite.
TB_DEVICE ByteScale byte_scale(uint32_t largest) {
  const bool finite = largest < 0x7f800000u;
  const float scale = from_bits(largest) * (1.f / 127.f);
  const bool usable = finite && scale >= 1.17549435e-38f;
  return {usable ? scale : finite ? 0.f : from_bits(0x7fc00000u), usable ? 127.f / from_bits(largest) : 0.f};
}

TB_DEVICE int32_t byte_of(float x, ByteScale by) {
  // The product may end a rounding beyond 127; adding 1.5 * 2^23 rounds to an integer, ties to even.
  float scaled = by.inverse > 0.f ? x * by.inverse : 0.f;
  scaled = scaled > 127.f ? 127.f : scaled < -127.f ? -127.f : scaled;
  return static_cast<int32_t>(bits(scaled + 12582912.f)) - 0x4b400000;
}

}  // namespace turbo::gpu
