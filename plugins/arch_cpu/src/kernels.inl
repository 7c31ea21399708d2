// Source of the kernel tables on Vec16, included once per ISA file.
#include "kernels.h"

#include <turbo/kernel/vec16.hpp>

namespace turbo::arch_cpu {
namespace {

using namespace turbo::kernel;

uint64_t chunk(uint64_t left) { return left < 16 ? left : 16; }

void rms_norm(const float* x, const float* w, float* out, uint64_t n, float eps) {
  Vec16 sum = zero();
  uint64_t j = 0;
  for (; j + 16 <= n; j += 16) {
    const Vec16 v = load(x + j);
    sum = fma(v, v, sum);
  }
  if (j < n) {
    const Vec16 v = load_n(x + j, n - j);
    sum = fma_n(v, v, sum, n - j);
  }
  const float mean = sum_lanes(sum) / static_cast<float>(n);
  const Vec16 inverse = set1(1.0f / sqrtf(mean + eps));
  for (j = 0; j < n; j += 16) {
    const uint64_t m = chunk(n - j);
    store_n(out + j, mul(mul(load_n(x + j, m), inverse), load_n(w + j, m)), m);
  }
}

void add_rows(const float* a, const float* b, float* out, uint64_t n) {
  for (uint64_t j = 0; j < n; j += 16) {
    const uint64_t m = chunk(n - j);
    store_n(out + j, add(load_n(a + j, m), load_n(b + j, m)), m);
  }
}

Vec16 sigmoid_times(Vec16 x, Vec16 t) { return div(x, add(set1(1.0f), exp(negate(t)))); }

void silu_mul(const float* gate, const float* up, float* out, uint64_t n) {
  for (uint64_t j = 0; j < n; j += 16) {
    const uint64_t m = chunk(n - j);
    const Vec16 x = load_n(gate + j, m);
    store_n(out + j, mul(sigmoid_times(x, x), load_n(up + j, m)), m);
  }
}

void gelu_mul(const float* gate, const float* up, float* out, uint64_t n) {
  const Vec16 two_c = set1(1.5957691216057308f), cubic = set1(0.044715f), one = set1(1.0f);
  for (uint64_t j = 0; j < n; j += 16) {
    const uint64_t m = chunk(n - j);
    const Vec16 x = load_n(gate + j, m);
    const Vec16 two_u = mul(two_c, mul(x, fma(cubic, mul(x, x), one)));
    store_n(out + j, mul(sigmoid_times(x, two_u), load_n(up + j, m)), m);
  }
}

// (x0, x1) -> (x0 c - x1 s, x1 c + x0 s), one product rounded, the other fused.
void rope_halves(float* x, const float* cos, const float* sin, uint64_t n_pairs) {
  float* y = x + n_pairs;
  for (uint64_t i = 0; i < n_pairs; i += 16) {
    const uint64_t m = chunk(n_pairs - i);
    const Vec16 x0 = load_n(x + i, m), x1 = load_n(y + i, m), c = load_n(cos + i, m), s = load_n(sin + i, m);
    store_n(x + i, fma(x0, c, negate(mul(x1, s))), m);
    store_n(y + i, fma(x1, c, mul(x0, s)), m);
  }
}

void rope_interleaved(float* x, const float* cos, const float* sin, uint64_t n_pairs) {
  for (uint64_t i = 0; i < n_pairs; ++i) {
    const float x0 = x[2 * i], x1 = x[2 * i + 1];
    x[2 * i] = fmaf(x0, cos[i], -(x1 * sin[i]));
    x[2 * i + 1] = fmaf(x1, cos[i], x0 * sin[i]);
  }
}

void softmax_split(float* scores, uint64_t n, float scale, float* m_out, float* l_out) {
  const float lowest = -INFINITY;
  const uint64_t padded = (n + 15) / 16 * 16;
  for (uint64_t i = n; i < padded; ++i) scores[i] = 0.0f;
  const Vec16 factor = set1(scale);
  Vec16 top = set1(lowest);
  for (uint64_t i = 0; i < padded; i += 16) {
    Vec16 t = mul(load(scores + i), factor);
    store(scores + i, t);
    if (i + 16 > n) {
      for (uint64_t k = n; k < padded; ++k) scores[k] = lowest;
      t = load(scores + i);
    }
    top = max_gt(t, top);
  }
  const float m = max_lanes(top);
  const Vec16 shift = set1(m == lowest ? 0.0f : m);
  Vec16 sum = zero();
  for (uint64_t i = 0; i < padded; i += 16) {
    const Vec16 p = exp(sub(load(scores + i), shift));
    store(scores + i, p);
    sum = add(sum, p);
  }
  *m_out = m;
  *l_out = sum_lanes(sum);
}

void merge(float* total, const float* part, float a, float b, uint64_t n) {
  const Vec16 va = set1(a), vb = set1(b);
  for (uint64_t j = 0; j < n; j += 16) store(total + j, fma(load(total + j), va, mul(load(part + j), vb)));
}

void normalise(float* x, float l, uint64_t n) {
  const Vec16 sum = set1(l);
  for (uint64_t j = 0; j < n; j += 16) store(x + j, l == 0.0f ? zero() : div(load(x + j), sum));
}

float exp_one(float x) { return turbo_exp(x); }

uint64_t find_above(const float* x, uint64_t begin, uint64_t n, float threshold) {
  const Vec16 bound = set1(threshold);
  uint64_t j = begin;
  for (; j + 16 <= n; j += 16)
    if (any_gt(load(x + j), bound)) return j;
  return j < n && any_gt(load_n(x + j, n - j), bound) ? j : n;  // the zeros past n may answer too early, never too late
}

constexpr Kernels table = {&rms_norm,      &add_rows, &silu_mul,  &gelu_mul, &rope_halves, &rope_interleaved,
                           &softmax_split, &merge,    &normalise, &exp_one,  &find_above};

}  // namespace
}  // namespace turbo::arch_cpu
