// Whether drafts are repaired, and how long refused pairs are remembered: follows how often repaired nodes are right.
// One thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace turbo::phantom {

class RepairControl {
 public:
  static constexpr uint32_t kWarmUpRounds = 20, kRestRounds = 40;

  bool enabled() const { return enabled_; }
  double precision() const { return precision_; }
  /// Pairs that the filter should remember.
  uint32_t age_limit() const { return std::max(static_cast<uint32_t>(threshold_), 200u); }

  /// One verified draft: nodes that the repair brought in, and how many of them lay on the accepted path.
  void record(uint32_t n_repaired, uint32_t n_correct) {
    ++round_;
    if (!enabled_ && round_ >= enable_at_) {
      enabled_ = true;
      threshold_ = 0.9 * kMost;
      precision_ = 0.5;
    }
    if (n_repaired == 0) return;
    precision_ = 0.1 * n_correct / n_repaired + 0.9 * precision_;
    if (round_ <= kWarmUpRounds) return;
    if (precision_ < 0.30) {
      enabled_ = false;
      enable_at_ = round_ + kRestRounds;
    } else if (precision_ > 0.75) {
      threshold_ = std::max(threshold_ - kStep, kLeast);
    } else if (precision_ < 0.65) {
      threshold_ = std::min(threshold_ + kStep, kMost);
    } else if (std::abs(precision_ - kTarget) > 0.02) {
      threshold_ = std::clamp(threshold_ + (precision_ > kTarget ? -0.3 : 0.3) * kStep, kLeast, kMost);
    }
  }

 private:
  static constexpr double kLeast = 500, kMost = 5000, kStep = 200, kTarget = 0.70;

  double threshold_ = 2000, precision_ = 0.5;
  uint64_t round_ = 0, enable_at_ = 0;
  bool enabled_ = true;
};

}  // namespace turbo::phantom
