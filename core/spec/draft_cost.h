// How long drafts take to make: time of the engine thread that a longer draft must win back. One thread.
//
// A drafter with a network runs it once for every token of a chain, so the price grows with the nodes; for drafters that
// look tokens up it is nearly nothing. Several drafts made at once share their runs, and that is how they are counted.
#pragma once

#include <cstdint>

namespace turbo::spec {

class DraftCost {
 public:
  static constexpr double kWeightOfNewest = 0.1;
  static constexpr uint32_t kFirst = 4;  // calls that count by their best: the first ones compile

  /// Drafts of `nodes` nodes together took so long.
  void record(uint32_t nodes, double seconds);
  /// Seconds of a draft of so many nodes; 0 when nothing is known.
  double of(uint32_t nodes) const { return per_node_ * nodes; }

 private:
  double per_node_ = 0;
  uint32_t n_seen_ = 0;
};

}  // namespace turbo::spec
