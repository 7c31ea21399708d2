// How many prompt rows a step may carry so that running streams keep their rhythm. Engine thread only.
//
// Batch invariance makes the cut of a prompt into steps invisible in the output, so it is free to follow the clock.
#pragma once

#include <algorithm>
#include <cstdint>

namespace turbo::sched {

class StepPace {
 public:
  static constexpr uint32_t kGrain = 16;         // rows are cut in this unit: the tile of prefill kernels
  static constexpr uint32_t kFirstGuess = 64;    // before anything was measured
  static constexpr double kWeightOfNewest = 0.25;

  /// A step of `rows` rows took so long. Small steps say nothing about the cost of a prompt row: they are bound by
  /// the stream of weights.
  void record(uint32_t rows, double seconds) {
    if (rows < kGrain) return;
    const double per_row = seconds / rows;
    seconds_per_row_ = seconds_per_row_ == 0 ? per_row : seconds_per_row_ + kWeightOfNewest * (per_row - seconds_per_row_);
  }
  /// Prompt rows beside `decoding` other rows for a step of at most `target` seconds; at least one grain, so that
  /// prompts always advance, and at most `most`.
  uint32_t prompt_rows(uint32_t decoding, double target, uint32_t most) const {
    if (seconds_per_row_ == 0) return std::min(kFirstGuess, most);
    const double rows = target / seconds_per_row_ - decoding;
    const double clamped = std::clamp(rows, double{kGrain}, std::max<double>(kGrain, most));
    return std::min(most, static_cast<uint32_t>(clamped) / kGrain * kGrain);
  }
  double seconds_per_row() const { return seconds_per_row_; }

 private:
  double seconds_per_row_ = 0;
};

}  // namespace turbo::sched
