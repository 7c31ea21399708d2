// How long drafts take to make: time of the engine thread that a longer draft must win back. One thread.
//
// A drafter with a network runs it once for every token of a chain, so the price grows with the nodes; for drafters that
// look tokens up it is nearly nothing. Several drafts made at once share their runs, and that is how they are counted. A
// draft model must also read what was said since its last draft of a text, a long prompt for the first one: that price is
// measured once, so that a text is not begun which cannot win it back.
#pragma once

#include <cstdint>

namespace turbo::spec {

class DraftCost {
 public:
  static constexpr double kWeightOfNewest = 0.1;
  static constexpr uint32_t kFirst = 4;  // calls that count by their best: the first ones compile

  DraftCost() = default;
  /// Measured before serving: seconds of a node, and of a token that was not read yet.
  DraftCost(double per_node, double per_unread) : per_node_(per_node), per_unread_(per_unread), n_seen_(kFirst) {}

  /// Drafts of `nodes` nodes together took so long, after `unread` tokens.
  void record(uint32_t nodes, double seconds, uint64_t unread = 0);
  /// Seconds of a draft of so many nodes; 0 when nothing is known.
  double of(uint32_t nodes) const { return per_node_ * nodes; }
  /// Seconds that so many tokens take to read first; 0 for drafters of which it was not measured.
  double reading(uint64_t unread) const { return per_unread_ * static_cast<double>(unread); }

 private:
  double per_node_ = 0, per_unread_ = 0;
  uint32_t n_seen_ = 0;
};

}  // namespace turbo::spec
