// How many ghosts work: climbs to the number that gives the most tokens per second, and comes down when fewer do as well.
//
// Time counts only inside speculative rounds, from the proposal of a draft to the last tokens it gave; both ends are told
// with their time, so a test scripts the clock. Throughput is tokens over time of a whole window, and each trial has a
// window of its own. One thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace turbo::phantom {

class Scaler {
 public:
  static constexpr uint32_t kWindowRounds = 100;
  static constexpr uint32_t kRestRounds = 200;     // after a trial that was taken back
  static constexpr uint32_t kKeptBeforeDown = 10;  // windows that nothing was taken back in
  static constexpr double kGain = 1.02;            // a ghost more must bring this much

  explicit Scaler(uint32_t most) : most_(std::max(1u, most)) {}

  uint32_t active() const { return active_; }
  uint32_t most() const { return most_; }
  bool on_trial() const { return trial_ != 0; }

  /// A round begins at now_ns; one that is open ends with its last tokens.
  void begin_round(uint64_t now_ns) {
    end_round();
    open_ = true;
    begin_ns_ = last_ns_ = now_ns;
  }
  /// Tokens that the open round gave; without one they are not the ghosts' doing.
  void emitted(uint32_t tokens, uint64_t now_ns) {
    if (!open_) return;
    round_tokens_ += tokens;
    last_ns_ = std::max(last_ns_, now_ns);
  }

 private:
  void end_round() {
    if (!open_ || round_tokens_ == 0) return;  // a round without tokens was cancelled
    open_ = false;
    if (most_ > 1) count(round_tokens_, last_ns_ - begin_ns_);
    round_tokens_ = 0;
  }
  void count(uint32_t tokens, uint64_t ns) {
    if (rest_ > 0) {
      if (--rest_ == 0) clear_window();
      return;
    }
    tokens_ += tokens;
    ns_ += static_cast<double>(ns);
    if (++rounds_ < kWindowRounds) return;
    const double rate = ns_ > 0 ? static_cast<double>(tokens_) / ns_ : 0;
    clear_window();
    if (trial_ != 0) judge(rate);
    else try_another(rate);
  }
  void try_another(double rate) {
    baseline_ = rate;
    if (++kept_ > kKeptBeforeDown && active_ > 1) {
      kept_ = 0;
      trial_ = -1;
    } else if (active_ < most_) {
      trial_ = 1;
    }
    active_ = static_cast<uint32_t>(static_cast<int32_t>(active_) + trial_);
  }
  void judge(double rate) {
    // The larger number must earn its keep, whichever way it is tried.
    const bool keep = trial_ > 0 ? rate > kGain * baseline_ : rate * kGain >= baseline_;
    if (keep) {
      baseline_ = rate;
      ++kept_;
    } else {
      active_ = static_cast<uint32_t>(static_cast<int32_t>(active_) - trial_);
      rest_ = kRestRounds;
    }
    trial_ = 0;
  }
  void clear_window() {
    tokens_ = 0;
    ns_ = 0;
    rounds_ = 0;
  }

  uint32_t most_, active_ = 1;
  bool open_ = false;
  uint64_t begin_ns_ = 0, last_ns_ = 0;
  uint32_t round_tokens_ = 0;
  uint64_t tokens_ = 0;
  double ns_ = 0, baseline_ = 0;
  uint32_t rounds_ = 0, rest_ = 0, kept_ = 0;
  int32_t trial_ = 0;
};

}  // namespace turbo::phantom
