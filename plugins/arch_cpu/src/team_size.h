// How many members of a team work. On a processor that other programs use too, a member may lose its CPU in the middle of an
// item, and all others wait for it: two threads can then be slower than one. One thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace turbo::arch_cpu {

class TeamSize {
 public:
  explicit TeamSize(uint32_t most) : most_(most), now_(most) {}

  /// Members of a run that begins at `time_ns`. After a while with fewer, more are tried again.
  uint32_t members(uint64_t time_ns) {
    if (now_ < most_ && time_ns >= again_ns_) {
      now_ = std::min(most_, now_ + step());
      slow_ = kSlowRuns - 1;  // one slow run is enough this time
      good_ = 0;
      again_ns_ = kNotYet;
    }
    return now_;
  }

  /// Members of the latest timed run, for runs that are too short to learn from.
  uint32_t now() const { return now_; }

  /// A run took run_ns, of which its members waited stalled_ns each for one that had lost its CPU.
  void ran(uint64_t time_ns, uint64_t run_ns, uint64_t stalled_ns) {
    // Without the member the others would need n / (n - 1) of the time they worked: that is less once the wait is more
    // than 1 / n of the whole.
    if (now_ > 1 && stalled_ns * now_ > run_ns) {
      good_ = 0;
      if (++slow_ < kSlowRuns) return;
      now_ -= step();
      slow_ = 0;
      again_ns_ = time_ns + pause_ns_;
      pause_ns_ = std::min(pause_ns_ * 2, kLongestPauseNs);
      return;
    }
    slow_ = slow_ ? slow_ - 1 : 0;
    ++good_;
    if (now_ < most_ && again_ns_ == kNotYet && good_ >= kTriedRuns) again_ns_ = time_ns;  // these do well: try more
    if (now_ == most_ && good_ >= kGoodRuns) pause_ns_ = kFirstPauseNs;
  }

 private:
  uint32_t step() const { return std::max(1u, now_ / 4); }

  static constexpr uint32_t kSlowRuns = 3, kTriedRuns = 8, kGoodRuns = 64;
  static constexpr uint64_t kFirstPauseNs = 250'000'000, kLongestPauseNs = 8'000'000'000, kNotYet = UINT64_MAX;
  uint32_t most_, now_, slow_ = 0, good_ = 0;
  uint64_t again_ns_ = 0, pause_ns_ = kFirstPauseNs;
};

}  // namespace turbo::arch_cpu
