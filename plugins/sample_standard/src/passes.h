// The loops that touch a whole row of logits. Pure functions of the row: every ISA gives the same bits.
#pragma once

#include <turbo/kernel/lanes.h>

#include <cstdint>
#include <limits>

namespace turbo::sample_standard {

constexpr uint64_t kBlock = 64;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr uint64_t block_count(uint64_t n) { return (n + kBlock - 1) / kBlock; }

/// Largest value of each block of 64 (minus infinity where it holds only that); false when the row holds a NaN.
bool block_maxima(const float* x, uint64_t n, float* maxima);

/// Unnormalised probability of logit x in a row whose largest logit is `max`: e^((x - max) / temperature). A row with
/// infinite logits gives them all the mass.
inline float weight(float x, float max, float temperature) {
  if (max == kInfinity) return x == kInfinity ? 1.0f : 0.0f;
  return turbo_exp((x - max) / temperature);
}

/// Sum of weight() over the row: segments of 1024 elements in rising order, a segment in 16 lanes of f64 (element j in
/// lane j mod 16) and a fixed tree. Device tiers follow the same order, many segments at once.
constexpr uint64_t kMassSegment = 1024;
double weight_sum(const float* x, uint64_t n, float max, float temperature);

/// The two ISA paths of weight_sum, for tests.
double weight_sum_portable(const float* x, uint64_t n, float max, float temperature);
bool has_fma();

}  // namespace turbo::sample_standard
