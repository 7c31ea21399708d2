#include "passes.h"

#if defined(__x86_64__)
#define TURBO_X86 1
#endif

namespace turbo::sample_standard {
namespace {

// turbo_exp for x <= 0 without branches, so that it vectorises. Adding and taking away 1.5 * 2^23 rounds to the
// nearest integer as nearbyintf does.
[[gnu::always_inline]] inline float exp_of_nonpositive(float x) {
  const float clamped = x < TURBO_EXP_LO ? TURBO_EXP_LO : x;
  const float n = (clamped * TURBO_EXP_LOG2E + 12582912.0f) - 12582912.0f;
  float r = fmaf(-n, TURBO_EXP_LN2_HI, clamped);
  r = fmaf(-n, TURBO_EXP_LN2_LO, r);
  float p = TURBO_EXP_C6;
  p = fmaf(p, r, TURBO_EXP_C5);
  p = fmaf(p, r, TURBO_EXP_C4);
  p = fmaf(p, r, TURBO_EXP_C3);
  p = fmaf(p, r, TURBO_EXP_C2);
  p = fmaf(p, r, TURBO_EXP_C1);
  p = fmaf(p, r * r, r) + 1.0f;
  const int32_t k = static_cast<int32_t>(n), half = k >> 1;
  const uint32_t bits_a = static_cast<uint32_t>(half + 127) << 23, bits_b = static_cast<uint32_t>(k - half + 127) << 23;
  float a, b;
  memcpy(&a, &bits_a, 4);
  memcpy(&b, &bits_b, 4);
  const float y = p * a * b;
  return x < TURBO_EXP_LO ? 0.0f : y;
}

// Compiler vectors: the same arithmetic as so many scalars.
typedef float Floats4 __attribute__((vector_size(16)));
typedef float Floats __attribute__((vector_size(32)));
typedef int32_t Ints __attribute__((vector_size(32)));
typedef double Doubles4 __attribute__((vector_size(32)));

[[gnu::always_inline]] inline double segment_body(const float* x, uint64_t n, float max, float temperature) {
  constexpr uint64_t kChunk = 16 * TURBO_LANES;
  Doubles4 lanes[TURBO_LANES / 4] = {};
  uint64_t j = 0;
  float w[kChunk];
  for (; j + kChunk <= n; j += kChunk) {
    for (uint64_t i = 0; i < kChunk; ++i) w[i] = exp_of_nonpositive((x[j + i] - max) / temperature);
    for (uint64_t i = 0; i < kChunk; i += TURBO_LANES)
      for (int q = 0; q < TURBO_LANES / 4; ++q) {
        Floats4 part;
        memcpy(&part, w + i + q * 4, sizeof part);
        lanes[q] += __builtin_convertvector(part, Doubles4);
      }
  }
  double lane[TURBO_LANES];
  memcpy(lane, lanes, sizeof lane);
  for (; j < n; ++j) lane[j % TURBO_LANES] += static_cast<double>(exp_of_nonpositive((x[j] - max) / temperature));
  for (int width = TURBO_LANES / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
  return lane[0];
}

[[gnu::always_inline]] inline double sum_body(const float* x, uint64_t n, float max, float temperature) {
  double sum = 0;
  for (uint64_t begin = 0; begin < n; begin += kMassSegment)
    sum += segment_body(x + begin, n - begin < kMassSegment ? n - begin : kMassSegment, max, temperature);
  return sum;
}

[[gnu::always_inline]] inline bool maxima_body(const float* x, uint64_t n, float* maxima) {
  Ints nan = {};
  uint64_t begin = 0;
  for (; begin + kBlock <= n; begin += kBlock) {
    Floats best = Floats{} - kInfinity;
    for (uint64_t j = begin; j < begin + kBlock; j += 8) {
      Floats v;
      memcpy(&v, x + j, sizeof v);
      best = v > best ? v : best;
      nan |= v != v;
    }
    Floats4 low, high;
    memcpy(&low, &best, sizeof low);
    memcpy(&high, reinterpret_cast<const char*>(&best) + sizeof low, sizeof high);
    low = low > high ? low : high;
    const float a = low[0] > low[1] ? low[0] : low[1], b = low[2] > low[3] ? low[2] : low[3];
    maxima[begin / kBlock] = a > b ? a : b;
  }
  int32_t any = 0;
  for (int i = 0; i < 8; ++i) any |= nan[i];
  if (begin < n) {
    float best = -kInfinity;
    for (uint64_t j = begin; j < n; ++j) {
      best = x[j] > best ? x[j] : best;
      any |= x[j] != x[j];
    }
    maxima[begin / kBlock] = best;
  }
  return any == 0;
}

double infinite_count(const float* x, uint64_t n) {
  double count = 0;
  for (uint64_t j = 0; j < n; ++j) count += x[j] == kInfinity;
  return count;
}

#ifdef TURBO_X86
[[gnu::target("avx2,fma")]] double sum_avx2(const float* x, uint64_t n, float max, float temperature) {
  return sum_body(x, n, max, temperature);
}
[[gnu::target("avx2,fma")]] bool maxima_avx2(const float* x, uint64_t n, float* maxima) { return maxima_body(x, n, maxima); }
#endif

}  // namespace

bool has_fma() {
#ifdef TURBO_X86
  static const bool answer = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return answer;
#else
  return false;
#endif
}

bool block_maxima(const float* x, uint64_t n, float* maxima) {
#ifdef TURBO_X86
  if (has_fma()) return maxima_avx2(x, n, maxima);
#endif
  return maxima_body(x, n, maxima);
}

double weight_sum_portable(const float* x, uint64_t n, float max, float temperature) {
  return max == kInfinity ? infinite_count(x, n) : sum_body(x, n, max, temperature);
}

double weight_sum(const float* x, uint64_t n, float max, float temperature) {
#ifdef TURBO_X86
  if (has_fma() && max != kInfinity) return sum_avx2(x, n, max, temperature);
#endif
  return weight_sum_portable(x, n, max, temperature);
}

}  // namespace turbo::sample_standard
