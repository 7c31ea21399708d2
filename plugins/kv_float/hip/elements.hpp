// Element types of the plain float codecs beside halves: binary32, bfloat16 and the two 8-bit floats, as the CPU half of
// this folder stores them (src/fp8.h, src/float_codec.h).
#pragma once

#include <turbo/kernel/gpu/kv_kernels.hpp>
#include <turbo/kernel/gpu/kv_rows.hpp>

namespace turbo::kv_float {

using namespace turbo::gpu;

struct NoScale {
  static constexpr bool kScaled = false, kFinishes = false;
  static constexpr float kGain = 1.0f;
  TB_DEVICE static void prepare(const KvSide&, float*, float*, uint32_t) {}
  TB_DEVICE static void finish(const KvSide&, float*, float*, uint32_t) {}
};

struct F32Element : NoScale {
  struct Raw { Float4 a, b; };
  TB_DEVICE static uint32_t offset(uint32_t element) { return 4 * element; }
  TB_DEVICE static uint32_t row_bytes(uint32_t d) { return 4 * d; }
  TB_DEVICE static Raw load(const uint8_t* p) { return {reinterpret_cast<const Float4*>(p)[0], reinterpret_cast<const Float4*>(p)[1]}; }
  TB_DEVICE static void convert(const Raw& r, float (&x)[8]) {
    x[0] = r.a.x;
    x[1] = r.a.y;
    x[2] = r.a.z;
    x[3] = r.a.w;
    x[4] = r.b.x;
    x[5] = r.b.y;
    x[6] = r.b.z;
    x[7] = r.b.w;
  }
  using Raw4 = Float4;
  TB_DEVICE static uint32_t offset4(uint32_t index) { return 16 * index; }
  TB_DEVICE static Raw4 load4(const uint8_t* p) { return *reinterpret_cast<const Float4*>(p); }
  TB_DEVICE static void convert4(const Raw4& r, float (&x)[4]) {
    x[0] = r.x;
    x[1] = r.y;
    x[2] = r.z;
    x[3] = r.w;
  }
  TB_DEVICE static void store(const KvSide& side, uint8_t* head, uint32_t row, float* x, float*, uint32_t d) {
    float* const to = reinterpret_cast<float*>(head + uint64_t{row} * side.pitch);
    for (uint32_t e = lane(); e < d; e += kWave) to[e] = x[e];
  }
};

struct Bf16Element : NoScale {
  using Raw = Words4;
  TB_DEVICE static uint32_t offset(uint32_t element) { return 2 * element; }
  TB_DEVICE static uint32_t row_bytes(uint32_t d) { return 2 * d; }
  TB_DEVICE static Raw load(const uint8_t* p) { return *reinterpret_cast<const Words4*>(p); }
  TB_DEVICE static void convert(const Raw& w, float (&x)[8]) {
    const uint32_t words[4] = {w.x, w.y, w.z, w.w};
    TB_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      x[2 * i] = from_bits(words[i] << 16);
      x[2 * i + 1] = from_bits(words[i] & 0xffff0000u);
    }
  }
  using Raw4 = Words2;
  TB_DEVICE static uint32_t offset4(uint32_t index) { return 8 * index; }
  TB_DEVICE static Raw4 load4(const uint8_t* p) { return *reinterpret_cast<const Words2*>(p); }
  TB_DEVICE static void convert4(const Raw4& w, float (&x)[4]) {
    x[0] = from_bits(w.x << 16);
    x[1] = from_bits(w.x & 0xffff0000u);
    x[2] = from_bits(w.y << 16);
    x[3] = from_bits(w.y & 0xffff0000u);
  }
  TB_DEVICE static uint16_t round(float x) {
    const uint32_t u = bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(u >> 16 | 0x40u);
    const uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
    return static_cast<uint16_t>((rounded & 0x7fffu) >= 0x7f80u ? (rounded & 0x8000u) | 0x7f7fu : rounded);  // saturates
  }
  TB_DEVICE static void store(const KvSide& side, uint8_t* head, uint32_t row, float* x, float*, uint32_t d) {
    uint16_t* const to = reinterpret_cast<uint16_t*>(head + uint64_t{row} * side.pitch);
    for (uint32_t e = lane(); e < d; e += kWave) to[e] = round(x[e]);
  }
};

/// To nearest even, saturating; NaN to 0x7f.
template <bool kE4m3>
TB_DEVICE uint8_t to_fp8(float x) {
  constexpr uint32_t kMantissa = kE4m3 ? 3 : 2, kBias = kE4m3 ? 7 : 15, kShift = 23 - kMantissa;
  constexpr float kLargest = kE4m3 ? 448.0f : 57344.0f, kSmallestNormal = kE4m3 ? 0x1p-6f : 0x1p-14f;
  constexpr float kMagic = kE4m3 ? 0x1p14f : 0x1p7f;  // its last place is the smallest subnormal
  const uint32_t sign = bits(x) >> 24 & 0x80u;
  if (!(x == x)) return 0x7f;
  const float magnitude = from_bits(bits(x) & 0x7fffffffu), a = magnitude < kLargest ? magnitude : kLargest;
  const uint32_t u = bits(a), rounded = u + ((1u << (kShift - 1)) - 1u) + (u >> kShift & 1u);
  const uint32_t code = a < kSmallestNormal ? bits(a + kMagic) - bits(kMagic) : (rounded >> kShift) - ((127 - kBias) << kMantissa);
  return static_cast<uint8_t>(code | sign);
}

TB_DEVICE float held(float x) { return x > 0x1p60f ? 0x1p60f : x < -0x1p60f ? -0x1p60f : x; }

template <bool kE4m3>
struct Fp8Element {
  static constexpr bool kScaled = true, kFinishes = kE4m3;
  static constexpr float kGain = kE4m3 ? 256.0f : 1.0f;
  using Raw = Words2;
  TB_DEVICE static uint32_t offset(uint32_t element) { return element; }
  TB_DEVICE static uint32_t row_bytes(uint32_t d) { return d; }
  TB_DEVICE static Raw load(const uint8_t* p) { return *reinterpret_cast<const Words2*>(p); }
  TB_DEVICE static float scale(const KvSide& side, const uint8_t* head, uint32_t row, uint32_t) {
    return side.n_scales ? half_to_float(reinterpret_cast<const uint16_t*>(head + side.scales_at)[row]) : 1.0f;
  }
  TB_DEVICE static void convert4(uint32_t c, float (&x)[4]) {  // bytes 0, 2 and 1, 3 as halves
    const uint32_t even = kE4m3 ? (c & 0x00800080u) << 8 | (c & 0x007f007fu) << 7 : (c & 0x00ff00ffu) << 8;
    const uint32_t odd = kE4m3 ? (c & 0x80008000u) | (c & 0x7f007f00u) >> 1 : c & 0xff00ff00u;
    x[0] = half_to_float(static_cast<uint16_t>(even));
    x[1] = half_to_float(static_cast<uint16_t>(odd));
    x[2] = half_to_float(static_cast<uint16_t>(even >> 16));
    x[3] = half_to_float(static_cast<uint16_t>(odd >> 16));
  }
  TB_DEVICE static void convert(const Raw& w, float (&x)[8]) {
    float half[4];
    convert4(w.x, half);
    TB_UNROLL
    for (uint32_t i = 0; i < 4; ++i) x[i] = half[i];
    convert4(w.y, half);
    TB_UNROLL
    for (uint32_t i = 0; i < 4; ++i) x[4 + i] = half[i];
  }
  using Raw4 = uint32_t;
  TB_DEVICE static uint32_t offset4(uint32_t index) { return 4 * index; }
  TB_DEVICE static Raw4 load4(const uint8_t* p) { return *reinterpret_cast<const uint32_t*>(p); }
  TB_DEVICE static uint16_t scale4(const KvSide& side, const uint8_t* head, uint32_t row, uint32_t) {
    return side.n_scales ? reinterpret_cast<const uint16_t*>(head + side.scales_at)[row] : static_cast<uint16_t>(0);
  }
  TB_DEVICE static float scale_of(const KvSide& side, uint16_t stored) { return side.n_scales ? half_to_float(stored) : 1.0f; }
  TB_DEVICE static void prepare(const KvSide& side, float* query, float* spare, uint32_t d) {
    if (side.rotated) rotate_head(side, query, spare, d);
    for (uint32_t e = lane(); e < d; e += kWave) query[e] *= kGain;
    sync_wave();
  }
  TB_DEVICE static void finish(const KvSide&, float* row, float*, uint32_t d) {
    for (uint32_t e = lane(); e < d; e += kWave) row[e] *= kGain;
  }
  TB_DEVICE static void store(const KvSide& side, uint8_t* head, uint32_t row, float* x, float* spare, uint32_t d) {
    if (side.rotated) {
      for (uint32_t e = lane(); e < d; e += kWave) x[e] = held(x[e]);
      sync_wave();
      rotate_head(side, x, spare, d);
    }
    float divisor = 1.0f;
    if (side.n_scales) {
      float largest = 0.0f;
      for (uint32_t e = lane(); e < d; e += kWave) largest = max_of(largest, from_bits(bits(x[e]) & 0x7fffffffu));
      const float s = wave_max(largest) / 448.0f;
      const uint16_t stored = float_to_half(s < 65504.0f ? s : 65504.0f);
      if (lane() == 0) reinterpret_cast<uint16_t*>(head + side.scales_at)[row] = stored;
      divisor = half_to_float(stored);
      if (divisor == 0.0f) divisor = __builtin_inff();  // too small for a scale: zeros
    }
    uint8_t* const to = head + uint64_t{row} * side.pitch;
    for (uint32_t e = lane(); e < d; e += kWave) to[e] = to_fp8<kE4m3>(x[e] / divisor);
  }
};

}  // namespace turbo::kv_float
