/* The arithmetic that fixes a row's bits on every CPU path (C and C++).
 *
 * A reduction of n products runs in 16 virtual lanes: element j goes to lane j mod 16, by fused multiply-add in
 * rising j, lanes start at +0; then the lanes are summed by one fixed tree (16 -> 8 -> 4 -> 2 -> 1, lane i with
 * lane i + half). A vector path of any width gives the same bits. */
#ifndef TURBO_KERNEL_LANES_H
#define TURBO_KERNEL_LANES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TURBO_LANES 16

/* Sum of the 16 lanes in the fixed order. */
static inline float turbo_lane_sum(const float lane[TURBO_LANES]) {
  float s[8];
  for (int i = 0; i < 8; ++i) s[i] = lane[i] + lane[i + 8];
  for (int i = 0; i < 4; ++i) s[i] = s[i] + s[i + 4];
  for (int i = 0; i < 2; ++i) s[i] = s[i] + s[i + 2];
  return s[0] + s[1];
}

/* Largest of the 16 lanes (order does not matter for max of non-NaN values). */
static inline float turbo_lane_max(const float lane[TURBO_LANES]) {
  float m = lane[0];
  for (int i = 1; i < TURBO_LANES; ++i) m = lane[i] > m ? lane[i] : m;
  return m;
}

static inline float turbo_dot_f32(const float* a, const float* b, uint64_t n) {
  float lane[TURBO_LANES] = {0};
  for (uint64_t j = 0; j < n; ++j) lane[j % TURBO_LANES] = fmaf(a[j], b[j], lane[j % TURBO_LANES]);
  return turbo_lane_sum(lane);
}

/* e^x, about 1 ulp, as a fixed sequence of single-precision operations, so that vector code can repeat it bit
 * for bit: x is clamped to [-87.336, 88.722]; n = rint(x * log2 e); r = x - n ln2 in two steps; a degree-6
 * polynomial by fused multiply-add; scaled by 2^n through the exponent bits in two factors. exp(-inf) = 0;
 * NaN gives NaN. Values below e^-87.336 give 0. */
#define TURBO_EXP_HI 88.722f
#define TURBO_EXP_LO (-87.336f)
#define TURBO_EXP_LOG2E 1.44269504088896341f
#define TURBO_EXP_LN2_HI 0.693359375f
#define TURBO_EXP_LN2_LO (-2.12194440e-4f)
#define TURBO_EXP_C6 1.9875691500e-4f
#define TURBO_EXP_C5 1.3981999507e-3f
#define TURBO_EXP_C4 8.3334519073e-3f
#define TURBO_EXP_C3 4.1665795894e-2f
#define TURBO_EXP_C2 1.6666665459e-1f
#define TURBO_EXP_C1 5.0000001201e-1f

static inline float turbo_exp(float x) {
  if (x < TURBO_EXP_LO) return 0.0f;
  if (x > TURBO_EXP_HI) x = TURBO_EXP_HI;
  const float n = nearbyintf(x * TURBO_EXP_LOG2E);
  float r = fmaf(-n, TURBO_EXP_LN2_HI, x);
  r = fmaf(-n, TURBO_EXP_LN2_LO, r);
  float p = TURBO_EXP_C6;
  p = fmaf(p, r, TURBO_EXP_C5);
  p = fmaf(p, r, TURBO_EXP_C4);
  p = fmaf(p, r, TURBO_EXP_C3);
  p = fmaf(p, r, TURBO_EXP_C2);
  p = fmaf(p, r, TURBO_EXP_C1);
  p = fmaf(p, r * r, r) + 1.0f;
  if (!(n == n)) return x; /* NaN */
  const int32_t k = (int32_t)n;
  /* Two factors keep 2^n representable at both ends of the range. */
  const int32_t half = k >> 1;
  uint32_t bits_a = (uint32_t)(half + 127) << 23, bits_b = (uint32_t)(k - half + 127) << 23;
  float a, b;
  memcpy(&a, &bits_a, 4);
  memcpy(&b, &bits_b, 4);
  return p * a * b;
}

/* x * sigmoid(x) = x / (1 + e^-x), division rounded once. */
static inline float turbo_silu(float x) { return x / (1.0f + turbo_exp(-x)); }

#ifdef __cplusplus
}
#endif
#endif
