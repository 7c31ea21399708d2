#include "spec/step_cost.h"

#include <algorithm>

namespace turbo::spec {

void StepCost::record(uint32_t rows, double seconds) {
  if (rows == 0 || rows > kMostRows || !(seconds > 0)) return;
  ++n_steps_;
  if (shape_.empty()) {
    shape_[rows] = {seconds, 0};
    return;
  }
  const double ratio = std::clamp(seconds / of(rows), 0.5, 2.0);  // one hiccup says little
  level_ *= 1 + kLevelWeight * (ratio - 1);
  Known& known = shape_.try_emplace(rows, Known{shape(rows), 0}).first->second;
  known.seconds *= 1 + std::min(kRareWeight, kShapeWeight * static_cast<double>(n_steps_ - known.seen)) * (ratio - 1);
  known.seen = n_steps_;
}

double StepCost::shape(uint32_t rows) const {
  if (shape_.empty() || rows == 0) return 0;
  double before_rows = 0, before = 0, slope = 0, most = 0;
  for (const auto& [known_rows, known] : shape_) {
    const double here = std::max(known.seconds, most);
    if (known_rows >= rows) {
      if (before_rows == 0) return here;
      return before + (here - before) * (rows - before_rows) / (known_rows - before_rows);
    }
    if (before_rows > 0) slope = (here - before) / (known_rows - before_rows);
    before_rows = known_rows;
    before = most = here;
  }
  return before + slope * (rows - before_rows);
}

}  // namespace turbo::spec
