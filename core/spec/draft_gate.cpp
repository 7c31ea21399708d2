#include "spec/draft_gate.h"

#include <algorithm>

namespace turbo::spec {

void DraftGate::record(const DecodeStep& step, const StepCost& cost) {
  if (step.nodes > 0) {
    ++drafted_;
  } else {
    if (drafted_ >= reference_) reference_ = std::min(2 * reference_, kRarestReference);
    drafted_ = 0;
  }
  if (step.rows == 0 || !cost.known()) return;
  const double plain = cost.of(step.rows) / step.rows;  // of a token
  const double spent = cost.of(step.rows + step.nodes) + step.draft_seconds;
  const double gain = step.nodes > 0 ? step.tokens - spent / plain : -step.draft_seconds / plain;
  balance_ = std::min(balance_ + gain + kShare * step.tokens, kMost);
}

}  // namespace turbo::spec
