// Rotary frequencies: plain, linear, YaRN (arXiv 2309.00071) and Llama 3 scaling.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/config.h"

namespace turbo::model {
namespace {

using std::numbers::pi;

/// Share of the unscaled frequency for pair i under YaRN: 1 for the fast pairs, 0 for the slow ones, a ramp between.
class YarnRamp {
 public:
  explicit YarnRamp(const RopeConfig& rope) : extrapolation_(rope.extrapolation) {
    const double n = rope.dims;
    // The pair that turns r times over the original context.
    const auto pair_of = [&](double r) {
      return n * std::log(rope.original_context / (2 * pi * r)) / (2 * std::log(double(rope.base)));
    };
    double low = pair_of(rope.beta_fast), high = pair_of(rope.beta_slow);
    if (rope.truncate_range) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low_ = std::max(0.0, low);
    span_ = std::max(0.001, std::min(n - 1, high) - low_);
  }
  double operator()(uint32_t i) const { return (1 - std::clamp((i - low_) / span_, 0.0, 1.0)) * extrapolation_; }

 private:
  double extrapolation_, low_ = 0, span_ = 1;
};

double llama3_frequency(const RopeConfig& rope, double frequency) {
  const double wavelength = 2 * pi / frequency;
  const double turns = rope.original_context / wavelength;
  if (turns < rope.low_freq_factor) return frequency / rope.factor;
  if (turns > rope.high_freq_factor) return frequency;
  const double smooth = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

}  // namespace

std::vector<float> RopeConfig::inverse_frequencies() const {
  std::vector<float> result(dims / 2);
  const YarnRamp ramp(*this);
  for (uint32_t i = 0; i < result.size(); ++i) {
    double frequency = std::pow(double(base), -2.0 * i / dims);
    if (i < divisors.size()) frequency /= divisors[i];
    switch (scaling) {
      case RopeScaling::none: break;
      case RopeScaling::linear: frequency /= factor; break;
      case RopeScaling::yarn: {
        const double kept = ramp(i);
        frequency = frequency / factor * (1 - kept) + frequency * kept;
        break;
      }
      case RopeScaling::llama3: frequency = llama3_frequency(*this, frequency); break;
    }
    result[i] = float(frequency);
  }
  return result;
}

float RopeConfig::magnitude() const {
  if (scaling != RopeScaling::yarn) return 1.0f;
  double m = attention_factor;
  if (extrapolation != 0 && factor > 1) {
    m *= 1 + 0.1 * std::log(factor);
    if (log_multiplier != 0) m /= 1 + 0.1 * log_multiplier * std::log(factor);
  }
  return float(m);
}

}  // namespace turbo::model
