// Vec16: sixteen f32 lanes as an array, two AVX2 registers or one AVX-512 register, with the same bits.
//
// One kernel source written on Vec16 and compiled once per ISA gives the arithmetic of turbo/kernel/lanes.h on each.
// The ISA is the one the including file is compiled for; each has its own inline namespace, so several may be linked
// into one library. Files compiled with ISA flags must not instantiate templates or inline functions of other
// headers (the linker could keep the wide copy): this header uses none. Loads and stores need no alignment.
#pragma once

#include <turbo/kernel/half.h>
#include <turbo/kernel/lanes.h>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#define TURBO_VEC_ISA vec_avx512
#define TURBO_VEC_WIDTH 512
#include <immintrin.h>
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define TURBO_VEC_ISA vec_avx2
#define TURBO_VEC_WIDTH 256
#include <immintrin.h>
#else
#define TURBO_VEC_ISA vec_scalar
#define TURBO_VEC_WIDTH 128
#endif

namespace turbo::kernel {
inline namespace TURBO_VEC_ISA {

#if TURBO_VEC_WIDTH == 512

struct Vec16 { __m512 v; };
static inline __mmask16 first_lanes(uint64_t n) { return static_cast<__mmask16>((1u << n) - 1u); }

static inline Vec16 zero() { return {_mm512_setzero_ps()}; }
static inline Vec16 set1(float x) { return {_mm512_set1_ps(x)}; }
static inline Vec16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
static inline Vec16 load_n(const float* p, uint64_t n) { return {_mm512_maskz_loadu_ps(first_lanes(n), p)}; }
static inline void store(float* p, Vec16 a) { _mm512_storeu_ps(p, a.v); }
static inline void store_n(float* p, Vec16 a, uint64_t n) { _mm512_mask_storeu_ps(p, first_lanes(n), a.v); }
static inline Vec16 add(Vec16 a, Vec16 b) { return {_mm512_add_ps(a.v, b.v)}; }
static inline Vec16 sub(Vec16 a, Vec16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
static inline Vec16 mul(Vec16 a, Vec16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
static inline Vec16 div(Vec16 a, Vec16 b) { return {_mm512_div_ps(a.v, b.v)}; }
static inline Vec16 fma(Vec16 a, Vec16 b, Vec16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
static inline Vec16 fma_n(Vec16 a, Vec16 b, Vec16 c, uint64_t n) { return {_mm512_mask3_fmadd_ps(a.v, b.v, c.v, first_lanes(n))}; }
static inline Vec16 max_gt(Vec16 a, Vec16 b) { return {_mm512_max_ps(a.v, b.v)}; }
static inline Vec16 min_lt(Vec16 a, Vec16 b) { return {_mm512_min_ps(a.v, b.v)}; }
static inline Vec16 negate(Vec16 a) { return {_mm512_xor_ps(a.v, _mm512_set1_ps(-0.0f))}; }
static inline bool any_gt(Vec16 a, Vec16 b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ) != 0; }
static inline bool any_nan(Vec16 a) { return _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q) != 0; }

static inline Vec16 load_f16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
static inline Vec16 load_f16_n(const uint16_t* p, uint64_t n) {
  return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p))};
}
static inline Vec16 load_bf16(const uint16_t* p) {
  const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16))};
}
static inline Vec16 load_bf16_n(const uint16_t* p, uint64_t n) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first_lanes(n), p)), 16))};
}
static inline void store_f16_n(uint16_t* p, Vec16 a, uint64_t n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline void store_bf16_n(uint16_t* p, Vec16 a, uint64_t n) { /* finite lanes only */
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  _mm256_mask_storeu_epi16(p, first_lanes(n), _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}

static inline float sum_lanes(Vec16 a) {
  const __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}

static inline Vec16 exp(Vec16 x) {
  const __mmask16 low = _mm512_cmp_ps_mask(x.v, _mm512_set1_ps(TURBO_EXP_LO), _CMP_LT_OQ);
  const __mmask16 high = _mm512_cmp_ps_mask(x.v, _mm512_set1_ps(TURBO_EXP_HI), _CMP_GT_OQ);
  const __m512 c = _mm512_mask_mov_ps(x.v, high, _mm512_set1_ps(TURBO_EXP_HI));
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(c, _mm512_set1_ps(TURBO_EXP_LOG2E)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(TURBO_EXP_LN2_HI), c);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(TURBO_EXP_LN2_LO), r);
  __m512 p = _mm512_set1_ps(TURBO_EXP_C6);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(TURBO_EXP_C5));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(TURBO_EXP_C4));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(TURBO_EXP_C3));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(TURBO_EXP_C2));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(TURBO_EXP_C1));
  p = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1.0f));
  const __m512i k = _mm512_cvtps_epi32(n), half = _mm512_srai_epi32(k, 1), bias = _mm512_set1_epi32(127);
  const __m512i a = _mm512_slli_epi32(_mm512_add_epi32(half, bias), 23);
  const __m512i b = _mm512_slli_epi32(_mm512_add_epi32(_mm512_sub_epi32(k, half), bias), 23);
  __m512 y = _mm512_mul_ps(_mm512_mul_ps(p, _mm512_castsi512_ps(a)), _mm512_castsi512_ps(b));
  y = _mm512_mask_mov_ps(y, low, _mm512_setzero_ps());
  return {_mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q), x.v)};
}

/* Lane sums of 16 vectors, each by the fixed tree, by transposing as it adds. */
static inline Vec16 sum_lanes_x16(const Vec16* acc) {
  __m512 u[8], w[4], y[2];
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    const __m512 a = acc[2 * j].v, b = acc[2 * j + 1].v;
    u[j] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512 a = u[2 * j], b = u[2 * j + 1];
    w[j] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  }
#pragma GCC unroll 2
  for (int j = 0; j < 2; ++j) {
    const __m512 a = w[2 * j], b = w[2 * j + 1];
    y[j] = _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
  }
  const __m512 z = _mm512_add_ps(_mm512_shuffle_ps(y[0], y[1], 0x88), _mm512_shuffle_ps(y[0], y[1], 0xdd));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return {_mm512_permutexvar_ps(order, z)};
}

#elif TURBO_VEC_WIDTH == 256

struct Vec16 { __m256 lo, hi; };
static inline __m256i first_lanes8(uint64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n > 8 ? 8 : static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline uint64_t upper_lanes(uint64_t n) { return n > 8 ? n - 8 : 0; }

static inline Vec16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
static inline Vec16 set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
static inline Vec16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
static inline Vec16 load_n(const float* p, uint64_t n) {
  return {_mm256_maskload_ps(p, first_lanes8(n)),
          n > 8 ? _mm256_maskload_ps(p + 8, first_lanes8(n - 8)) : _mm256_setzero_ps()};
}
static inline void store(float* p, Vec16 a) { _mm256_storeu_ps(p, a.lo); _mm256_storeu_ps(p + 8, a.hi); }
static inline void store_n(float* p, Vec16 a, uint64_t n) {
  _mm256_maskstore_ps(p, first_lanes8(n), a.lo);
  if (n > 8) _mm256_maskstore_ps(p + 8, first_lanes8(n - 8), a.hi);
}
static inline Vec16 add(Vec16 a, Vec16 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
static inline Vec16 sub(Vec16 a, Vec16 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
static inline Vec16 mul(Vec16 a, Vec16 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
static inline Vec16 div(Vec16 a, Vec16 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
static inline Vec16 fma(Vec16 a, Vec16 b, Vec16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
static inline Vec16 fma_n(Vec16 a, Vec16 b, Vec16 c, uint64_t n) {
  const Vec16 r = fma(a, b, c);
  return {_mm256_blendv_ps(c.lo, r.lo, _mm256_castsi256_ps(first_lanes8(n))),
          _mm256_blendv_ps(c.hi, r.hi, _mm256_castsi256_ps(first_lanes8(upper_lanes(n))))};
}
static inline Vec16 max_gt(Vec16 a, Vec16 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
static inline Vec16 min_lt(Vec16 a, Vec16 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
static inline Vec16 negate(Vec16 a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_xor_ps(a.lo, sign), _mm256_xor_ps(a.hi, sign)};
}
static inline bool any_gt(Vec16 a, Vec16 b) {
  return _mm256_movemask_ps(_mm256_or_ps(_mm256_cmp_ps(a.lo, b.lo, _CMP_GT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_GT_OQ))) != 0;
}
static inline bool any_nan(Vec16 a) {
  return _mm256_movemask_ps(_mm256_or_ps(_mm256_cmp_ps(a.lo, a.lo, _CMP_UNORD_Q), _mm256_cmp_ps(a.hi, a.hi, _CMP_UNORD_Q))) != 0;
}

static inline Vec16 load_f16(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
static inline __m256 widen_bf16(const uint16_t* p) {
  const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
static inline Vec16 load_bf16(const uint16_t* p) { return {widen_bf16(p), widen_bf16(p + 8)}; }
static inline Vec16 load_f16_n(const uint16_t* p, uint64_t n) {
  uint16_t padded[16] = {0};
  for (uint64_t i = 0; i < n; ++i) padded[i] = p[i];
  return load_f16(padded);
}
static inline Vec16 load_bf16_n(const uint16_t* p, uint64_t n) {
  uint16_t padded[16] = {0};
  for (uint64_t i = 0; i < n; ++i) padded[i] = p[i];
  return load_bf16(padded);
}
static inline void store_u16_n(uint16_t* p, __m128i lo, __m128i hi, uint64_t n) {
  uint16_t all[16];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(all), lo);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(all + 8), hi);
  memcpy(p, all, n * 2);
}
static inline void store_f16_n(uint16_t* p, Vec16 a, uint64_t n) {
  store_u16_n(p, _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT), _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT), n);
}
static inline __m128i narrow_bf16(__m256 a) {
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
}
static inline void store_bf16_n(uint16_t* p, Vec16 a, uint64_t n) { store_u16_n(p, narrow_bf16(a.lo), narrow_bf16(a.hi), n); }

static inline float sum_lanes(Vec16 a) {
  const __m256 s8 = _mm256_add_ps(a.lo, a.hi);
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}

static inline __m256 exp8(__m256 x) {
  const __m256 low = _mm256_cmp_ps(x, _mm256_set1_ps(TURBO_EXP_LO), _CMP_LT_OQ);
  const __m256 high = _mm256_cmp_ps(x, _mm256_set1_ps(TURBO_EXP_HI), _CMP_GT_OQ);
  const __m256 c = _mm256_blendv_ps(x, _mm256_set1_ps(TURBO_EXP_HI), high);
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(c, _mm256_set1_ps(TURBO_EXP_LOG2E)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(TURBO_EXP_LN2_HI), c);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(TURBO_EXP_LN2_LO), r);
  __m256 p = _mm256_set1_ps(TURBO_EXP_C6);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(TURBO_EXP_C5));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(TURBO_EXP_C4));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(TURBO_EXP_C3));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(TURBO_EXP_C2));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(TURBO_EXP_C1));
  p = _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1.0f));
  const __m256i k = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(k, 1), bias = _mm256_set1_epi32(127);
  const __m256i a = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
  const __m256i b = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(k, half), bias), 23);
  __m256 y = _mm256_mul_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(a)), _mm256_castsi256_ps(b));
  y = _mm256_andnot_ps(low, y);
  return _mm256_blendv_ps(y, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}
static inline Vec16 exp(Vec16 x) { return {exp8(x.lo), exp8(x.hi)}; }

#else

struct Vec16 { float lane[16]; };

/* f(i) into every lane */
#define TURBO_VEC_EACH(expression)                                 \
  Vec16 out;                                                       \
  for (int i = 0; i < TURBO_LANES; ++i) out.lane[i] = (expression); \
  return out

static inline Vec16 set1(float x) { TURBO_VEC_EACH(x); }
static inline Vec16 zero() { return set1(0.0f); }
static inline Vec16 load(const float* p) { TURBO_VEC_EACH(p[i]); }
static inline Vec16 load_n(const float* p, uint64_t n) { TURBO_VEC_EACH(static_cast<uint64_t>(i) < n ? p[i] : 0.0f); }
static inline void store_n(float* p, Vec16 a, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) p[i] = a.lane[i];
}
static inline void store(float* p, Vec16 a) { store_n(p, a, 16); }
static inline Vec16 add(Vec16 a, Vec16 b) { TURBO_VEC_EACH(a.lane[i] + b.lane[i]); }
static inline Vec16 sub(Vec16 a, Vec16 b) { TURBO_VEC_EACH(a.lane[i] - b.lane[i]); }
static inline Vec16 mul(Vec16 a, Vec16 b) { TURBO_VEC_EACH(a.lane[i] * b.lane[i]); }
static inline Vec16 div(Vec16 a, Vec16 b) { TURBO_VEC_EACH(a.lane[i] / b.lane[i]); }
static inline Vec16 fma(Vec16 a, Vec16 b, Vec16 c) { TURBO_VEC_EACH(fmaf(a.lane[i], b.lane[i], c.lane[i])); }
static inline Vec16 fma_n(Vec16 a, Vec16 b, Vec16 c, uint64_t n) {
  TURBO_VEC_EACH(static_cast<uint64_t>(i) < n ? fmaf(a.lane[i], b.lane[i], c.lane[i]) : c.lane[i]);
}
static inline Vec16 max_gt(Vec16 a, Vec16 b) { TURBO_VEC_EACH(a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]); }
static inline Vec16 min_lt(Vec16 a, Vec16 b) { TURBO_VEC_EACH(a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]); }
static inline Vec16 negate(Vec16 a) { TURBO_VEC_EACH(-a.lane[i]); }
static inline bool any_gt(Vec16 a, Vec16 b) {
  for (int i = 0; i < TURBO_LANES; ++i)
    if (a.lane[i] > b.lane[i]) return true;
  return false;
}
static inline bool any_nan(Vec16 a) {
  for (int i = 0; i < TURBO_LANES; ++i)
    if (a.lane[i] != a.lane[i]) return true;
  return false;
}
static inline Vec16 load_f16_n(const uint16_t* p, uint64_t n) {
  TURBO_VEC_EACH(static_cast<uint64_t>(i) < n ? turbo_f16_to_f32(p[i]) : 0.0f);
}
static inline Vec16 load_bf16_n(const uint16_t* p, uint64_t n) {
  TURBO_VEC_EACH(static_cast<uint64_t>(i) < n ? turbo_bf16_to_f32(p[i]) : 0.0f);
}
static inline Vec16 load_f16(const uint16_t* p) { return load_f16_n(p, 16); }
static inline Vec16 load_bf16(const uint16_t* p) { return load_bf16_n(p, 16); }
static inline void store_f16_n(uint16_t* p, Vec16 a, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) p[i] = turbo_f32_to_f16(a.lane[i]);
}
static inline void store_bf16_n(uint16_t* p, Vec16 a, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) p[i] = turbo_f32_to_bf16(a.lane[i]);
}
static inline float sum_lanes(Vec16 a) { return turbo_lane_sum(a.lane); }
static inline Vec16 exp(Vec16 x) { TURBO_VEC_EACH(turbo_exp(x.lane[i])); }

#undef TURBO_VEC_EACH
#endif

static inline float max_lanes(Vec16 a) {
  float lane[TURBO_LANES];
  store(lane, a);
  return turbo_lane_max(lane);
}

#if TURBO_VEC_WIDTH != 512
static inline Vec16 sum_lanes_x16(const Vec16* acc) {
  float sums[TURBO_LANES];
  for (int i = 0; i < TURBO_LANES; ++i) sums[i] = sum_lanes(acc[i]);
  return load(sums);
}
#endif

}  // namespace TURBO_VEC_ISA
}  // namespace turbo::kernel
