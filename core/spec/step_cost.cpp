#include "spec/step_cost.h"

#include <algorithm>

namespace turbo::spec {

void StepCost::record(uint32_t rows, double seconds) {
  if (rows == 0 || rows > kMostRows || !(seconds > 0)) return;
  const auto [at, fresh] = seconds_.try_emplace(rows, seconds);
  if (!fresh) at->second += kWeightOfNewest * (seconds - at->second);
}

double StepCost::of(uint32_t rows) const {
  if (seconds_.empty() || rows == 0) return 0;
  double before_rows = 0, before = 0, slope = 0, most = 0;
  for (const auto& [known_rows, known] : seconds_) {
    const double here = std::max(known, most);
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
