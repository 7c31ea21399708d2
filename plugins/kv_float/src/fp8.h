// The two 8-bit floats of the OCP standard, rounded to nearest even and saturating. Pure, [any] thread.
//
// e4m3 has no infinity and its largest number is 448; e5m2 is the upper half of a binary16, largest 57344. Codes of
// NaN and infinity are never made.
#pragma once

#include <turbo/kernel/half.h>

#include <cstdint>
#include <cstring>

namespace turbo::kv_float {
namespace {

// kMantissa bits, kBias of the exponent, kMagic: a power of two whose last place is the smallest subnormal.
template <int kMantissa, int kBias>
uint8_t to_fp8(float x, float largest, float smallest_normal, float magic) {
  uint32_t bits, magnitude, small, base;
  std::memcpy(&bits, &x, 4);
  magnitude = bits & 0x7fffffffu;
  float a;
  std::memcpy(&a, &magnitude, 4);
  a = a < largest ? a : largest;
  std::memcpy(&magnitude, &a, 4);
  const float shifted = a + magic;  // the addition rounds to a multiple of the smallest subnormal
  std::memcpy(&small, &shifted, 4);
  std::memcpy(&base, &magic, 4);
  constexpr int kShift = 23 - kMantissa;
  const uint32_t rounded = magnitude + ((1u << (kShift - 1)) - 1u) + ((magnitude >> kShift) & 1u);
  const uint32_t code = a < smallest_normal ? small - base : (rounded >> kShift) - (static_cast<uint32_t>(127 - kBias) << kMantissa);
  return static_cast<uint8_t>(code | ((bits >> 24) & 0x80u));
}

inline uint8_t to_e4m3(float x) { return to_fp8<3, 7>(x, 448.0f, 0x1p-6f, 0x1p14f); }
inline uint8_t to_e5m2(float x) { return to_fp8<2, 15>(x, 57344.0f, 0x1p-14f, 0x1p7f); }

// A binary16 of 2^-8 times the number: the exponent keeps its bits and takes the other bias.
inline uint16_t e4m3_as_f16(uint8_t code) { return static_cast<uint16_t>((code & 0x80u) << 8 | (code & 0x7fu) << 7); }
constexpr float kE4m3Gain = 256.0f;

inline float from_e4m3(uint8_t code) { return turbo_f16_to_f32(e4m3_as_f16(code)) * kE4m3Gain; }
inline float from_e5m2(uint8_t code) { return turbo_f16_to_f32(static_cast<uint16_t>(code << 8)); }

}  // namespace
}  // namespace turbo::kv_float
