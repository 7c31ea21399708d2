#include "spec/draft_cost.h"

#include <algorithm>

namespace turbo::spec {

void DraftCost::record(uint32_t nodes, double seconds, uint64_t unread) {
  if (nodes == 0 || !(seconds >= 0)) return;
  const double newest = std::max(0.0, seconds - reading(unread)) / nodes;
  if (n_seen_ < kFirst) {
    per_node_ = n_seen_++ == 0 ? newest : std::min(per_node_, newest);
    return;
  }
  // One hiccup, or a draft model that had much text to catch up with, says little about the next draft.
  per_node_ += kWeightOfNewest * (std::min(newest, 4 * per_node_ + 1e-6) - per_node_);
}

}  // namespace turbo::spec
