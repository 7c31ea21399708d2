// How many slots a draft may have so that verifying it pays. One thread.
//
// With p_d the share of drafts accepted at depth d of those accepted before it, a draft of depth k is worth
// 1 + p_1 + p_1 p_2 + ... tokens for the price of a step with k more rows and of making the draft. The length follows the measured p and the
// measured price; a tree spends several nodes on a depth; where no draft pays none is asked for, but for a probe now and then, since texts change.
#pragma once

#include <array>
#include <cstdint>

#include "spec/draft_cost.h"
#include "spec/step_cost.h"

namespace turbo::spec {

/// Tokens of a request that its drafter has not read, and those still to come at most, which must win back the reading.
struct Unread {
  uint64_t tokens = 0;
  uint32_t left = UINT32_MAX;
};

/// What was seen of one request's drafts.
class DraftLength {
 public:
  static constexpr uint32_t kDepths = 16;           // deeper ones are taken as the last
  static constexpr double kWeightOfNewest = 0.08;
  static constexpr double kFirstGuess = 0.7;        // acceptance before anything was seen
  static constexpr uint32_t kProbeSlots = 4;
  static constexpr double kMostProbe = 8;           // steps of one row that a probe may cost in reading
  static constexpr uint32_t kForeseen = 512;        // tokens to come that are counted on
  static constexpr uint32_t kFirstRest = 16, kLongestRest = 512;  // steps without a draft between probes

  /// A draft of `nodes` nodes (0: a chain) whose deepest lay at `depth` was verified; its first `accepted` depths held.
  void record(uint32_t depth, uint32_t accepted, uint32_t nodes = 0);
  /// Slots (root included, 1 = no draft) of at most `most`, in a step that has `other_rows` rows of others, who are
  /// expected to emit `other_tokens` and whose drafts take `other_seconds`. Unknown cost: `most`.
  uint32_t choose(uint32_t most, const StepCost& cost, uint32_t other_rows, double other_tokens, const DraftCost& draft_cost = {},
                  double other_seconds = 0, const Unread& unread = {});
  /// The same acceptance, for a request that begins.
  DraftLength fresh() const {
    DraftLength length = *this;
    length.rest_ = kFirstRest;
    length.rested_ = 0;
    return length;
  }
  /// Tokens that a draft of so many slots is expected to emit.
  double expected_tokens(uint32_t slots) const;

 private:
  bool wins_back(double reading, uint32_t slots, const StepCost& cost, uint32_t other_rows, double drafting, uint32_t left) const;
  double p(uint32_t depth) const { return share_[depth < kDepths ? depth : kDepths - 1]; }

  std::array<double, kDepths> share_ = first();
  double nodes_per_depth_ = 0;  // 0: no draft was seen
  uint32_t rest_ = kFirstRest, rested_ = 0;

  static std::array<double, kDepths> first() {
    std::array<double, kDepths> guess;
    guess.fill(kFirstGuess);
    return guess;
  }
};

}  // namespace turbo::spec
