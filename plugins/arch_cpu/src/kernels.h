// Format-independent kernels: one table per ISA, all with the same bits.
//
// Softmax and attention arithmetic, the one place where it is fixed:
//   keys of a row are cut at absolute multiples of 64 into splits; in a split with n keys and raw scores s_i
//     t_i = s_i * scale;  m = max t_i (NaN never wins);  p_i = exp(t_i - m);
//     l = sum of p_i in 16 lanes by i mod 16, then the fixed tree;  o = sum p_i v_i, i rising, one fma per element.
//   Splits merge in index order. The first is copied; then, with M' = max(M, m):
//     a = exp(M - M'), b = exp(m - M'), L = fma(L, a, l * b), O = fma(O, a, o * b).
//   The row is O / L, or zero when L is zero. When m (or M') is -inf, zero takes its place in the differences, so a
//   row of -inf scores gives zeros and a NaN stays in its own row.
// [team] Pure functions on the given ranges.
#pragma once

#include <cstdint>

namespace turbo::arch_cpu {

struct Kernels {
  // out = x / sqrt(mean(x^2) + eps) * w; sum of squares in 16 lanes. out may be x.
  void (*rms_norm)(const float* x, const float* w, float* out, uint64_t n, float eps);
  void (*add)(const float* a, const float* b, float* out, uint64_t n);
  void (*silu_mul)(const float* gate, const float* up, float* out, uint64_t n);
  // x * sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3): the tanh form, since (1 + tanh u) / 2 = sigmoid(2 u).
  void (*gelu_mul)(const float* gate, const float* up, float* out, uint64_t n);
  // One head in place: pairs rotated by cos[i], sin[i].
  void (*rope_halves)(float* x, const float* cos, const float* sin, uint64_t n_pairs);
  void (*rope_interleaved)(float* x, const float* cos, const float* sin, uint64_t n_pairs);
  // scores[0..n) of one split -> p in place (and zeros up to the next multiple of 16), m and l. n in 1..64.
  void (*softmax_split)(float* scores, uint64_t n, float scale, float* m, float* l);
  // O = fma(O, a, o * b), n a multiple of 16.
  void (*merge)(float* total, const float* part, float a, float b, uint64_t n);
  // x = x / l, n a multiple of 16; zeros when l is zero.
  void (*normalise)(float* x, float l, uint64_t n);
  float (*exp)(float x);
  // First index >= begin whose 16-chunk has a value above the threshold, or n.
  uint64_t (*find_above)(const float* x, uint64_t begin, uint64_t n, float threshold);
};

const Kernels& scalar_kernels();
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();

}  // namespace turbo::arch_cpu
