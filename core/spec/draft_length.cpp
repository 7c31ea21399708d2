#include "spec/draft_length.h"

#include <algorithm>

namespace turbo::spec {

void DraftLength::record(uint32_t depth, uint32_t accepted, uint32_t nodes) {
  if (depth > 0) {
    const double width = static_cast<double>(std::max(nodes, depth)) / depth;
    nodes_per_depth_ = nodes_per_depth_ > 0 ? nodes_per_depth_ + kWeightOfNewest * (width - nodes_per_depth_) : width;
  }
  const uint32_t seen = std::min({depth, accepted + 1, kDepths});  // depths whose fate is known
  if (accepted >= depth && depth > 0) rest_ = 1;  // look again at once
  for (uint32_t d = 0; d < seen; ++d) share_[d] += kWeightOfNewest * ((d < accepted ? 1.0 : 0.0) - share_[d]);
}

double DraftLength::expected_tokens(uint32_t slots) const {
  // A draft that ends within a depth has a part of that depth's chances.
  double tokens = 1, reached = 1, depths = static_cast<double>(slots - 1) / std::max(1.0, nodes_per_depth_);
  for (uint32_t d = 0; depths > 0; ++d, --depths) tokens += (reached *= p(d)) * std::min(1.0, depths);
  return tokens;
}

// Twice over: the acceptance is a guess, and texts end early.
bool DraftLength::wins_back(double reading, uint32_t slots, const StepCost& cost, uint32_t other_rows, double drafting, uint32_t left) const {
  if (reading <= 0) return true;
  const double plain = cost.of(other_rows + 1), drafted = (cost.of(other_rows + slots) + drafting) / expected_tokens(slots);
  return (plain - drafted) * std::min(left, kForeseen) >= 2 * reading;
}

uint32_t DraftLength::choose(uint32_t most, const StepCost& cost, uint32_t other_rows, double other_tokens, const DraftCost& draft_cost,
                             double other_seconds, const Unread& unread) {
  if (most < 2 || !cost.known()) return most;
  const double reading = draft_cost.reading(unread.tokens);
  uint32_t best = 1;
  double best_speed = 0;
  for (uint32_t slots = 1; slots <= most; ++slots) {
    const double speed = (other_tokens + expected_tokens(slots)) / (cost.of(other_rows + slots) + other_seconds + draft_cost.of(slots - 1));
    if (speed > best_speed) {
      best_speed = speed;
      best = slots;
    }
  }
  if (best > 1 && !wins_back(reading, best, cost, other_rows, draft_cost.of(best - 1), unread.left)) return 1;
  if (best > 1) {
    rest_ = kFirstRest;
    rested_ = 0;
    return best;
  }
  if (++rested_ < rest_ || reading > kMostProbe * cost.of(other_rows + 1)) return 1;
  rested_ = 0;
  rest_ = std::clamp(2 * rest_, kFirstRest, kLongestRest);
  return std::min(most, kProbeSlots);
}

}  // namespace turbo::spec
