// Kernels of the float codecs on Vec16, included once per ISA file (which names the table function).
//
// Attention is turbo/kernel/row_tiles.inl with the element types below.
#include "fp8.h"
#include "kernels.h"

#include <turbo/kernel/fetch.hpp>
#include <turbo/kernel/row_run.hpp>
#include <turbo/kernel/vec16.hpp>

namespace turbo::kv_float {
namespace {

using namespace turbo::kernel;

#include <turbo/kernel/row_tiles.inl>

struct F32 {
  using Stored = float;
  static constexpr bool kFinite = false, kScaled = false;
  static Vec16 load(const float* p) { return kernel::load(p); }
  static Vec16 load_n(const float* p, uint64_t n) { return kernel::load_n(p, n); }
  static void store_n(float* p, Vec16 a, uint64_t n) { kernel::store_n(p, a, n); }
};
struct Bf16 {
  using Stored = uint16_t;
  static constexpr bool kFinite = false, kScaled = false;
  static constexpr float largest = 3.38953138925153547590470800371487866880e+38f;
  static Vec16 load(const uint16_t* p) { return load_bf16(p); }
  static Vec16 load_n(const uint16_t* p, uint64_t n) { return load_bf16_n(p, n); }
  static void store_n(uint16_t* p, Vec16 a, uint64_t n) {
    store_bf16_n(p, max_gt(min_lt(a, set1(largest)), set1(-largest)), n);
  }
};

// Sixteen bytes as binary16 numbers: e4m3 moves under the other exponent bias, e5m2 gains eight zero bits.
template <bool kE4m3>
Vec16 load_fp8(const uint8_t* p) {
#if TURBO_VEC_WIDTH == 512 || TURBO_VEC_WIDTH == 256
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  // The sign fills bits 14 and 15 after the shift; the lower copy goes.
  const __m256i half = kE4m3 ? _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7), _mm256_set1_epi16(static_cast<short>(0xbf80)))
                             : _mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 8);
#if TURBO_VEC_WIDTH == 512
  return {_mm512_cvtph_ps(half)};
#else
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(half)), _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1))};
#endif
#else
  Vec16 out;
  for (int i = 0; i < TURBO_LANES; ++i) out.lane[i] = turbo_f16_to_f32(kE4m3 ? e4m3_as_f16(p[i]) : static_cast<uint16_t>(p[i] << 8));
  return out;
#endif
}

template <bool kE4m3>
struct Fp8 {
  using Stored = uint8_t;
  static constexpr bool kFinite = true, kScaled = false;
  static Vec16 load(const uint8_t* p) { return load_fp8<kE4m3>(p); }
  static Vec16 load_n(const uint8_t* p, uint64_t n) {
    uint8_t padded[16] = {0};
    memcpy(padded, p, n);
    return load_fp8<kE4m3>(padded);
  }
  static void store_n(uint8_t* p, Vec16 a, uint64_t n) {
    float x[16];
    uint8_t codes[16];
    store(x, a);
    for (int i = 0; i < 16; ++i) codes[i] = kE4m3 ? to_e4m3(x[i]) : to_e5m2(x[i]);
    memcpy(p, codes, n);
  }
};
template <bool kE4m3>
struct ScaledFp8 : Fp8<kE4m3> {
  static constexpr bool kScaled = true;
};

// The row's scale: the largest magnitude comes to lie at 448.
inline uint16_t row_scale(const float* src, uint64_t n) {
  Vec16 largest = zero();
  for (uint64_t j = 0; j < n; j += 16) {
    const Vec16 x = load_n(src + j, n - j < 16 ? n - j : 16);
    largest = max_gt(max_gt(x, negate(x)), largest);
  }
  const float scale = max_lanes(largest) / 448.0f;
  return turbo_f32_to_f16(scale < 65504.0f ? scale : 65504.0f);
}

template <class E>
bool encode(const float* src, uint64_t n, uint8_t* row, uint16_t* scale) {
  for (uint64_t j = 0; j < n; j += 16) {
    const Vec16 x = load_n(src + j, n - j < 16 ? n - j : 16);
    if (any_nan(E::kFinite ? sub(x, x) : x)) return false;  // infinity less infinity is NaN
  }
  float divisor = 1.0f;
  if constexpr (E::kScaled) {
    *scale = row_scale(src, n);
    divisor = turbo_f16_to_f32(*scale);
    if (divisor == 0.0f) divisor = HUGE_VALF;  // too small for a scale: zeros
  }
  typename E::Stored* dst = reinterpret_cast<typename E::Stored*>(row);
  for (uint64_t j = 0; j < n; j += 16) {
    const uint64_t m = n - j < 16 ? n - j : 16;
    const Vec16 x = load_n(src + j, m);
    E::store_n(dst + j, E::kScaled ? div(x, set1(divisor)) : x, m);
  }
  return true;
}

template <class E>
constexpr Kernels table = {&encode<E>, &scores<E>, &accumulate<E>};

const Kernels& pick(Element element) {
  switch (element) {
    case Element::f32: return table<F32>;
    case Element::f16: return table<F16>;
    case Element::bf16: return table<Bf16>;
    case Element::e4m3: return table<Fp8<true>>;
    case Element::e5m2: return table<Fp8<false>>;
    case Element::e4m3_scaled: return table<ScaledFp8<true>>;
    default: return table<ScaledFp8<false>>;
  }
}

}  // namespace
}  // namespace turbo::kv_float
