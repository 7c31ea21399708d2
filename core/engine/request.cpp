#include "engine/request.h"

#include <algorithm>

namespace turbo::engine {

void Speculation::add_step(uint32_t rows, uint64_t ns) {
  rows = std::min(rows, kMostRows);
  if (steps_by_rows.size() <= rows) steps_by_rows.resize(rows + 1);
  ++steps_by_rows[rows].steps;
  steps_by_rows[rows].ns += ns;
}

void Speculation::add(const Speculation& other) {
  rounds += other.rounds;
  drafted += other.drafted;
  accepted += other.accepted;
  emitted += other.emitted;
  draft_ns += other.draft_ns;
  accepted_by_depth.resize(std::max(accepted_by_depth.size(), other.accepted_by_depth.size()));
  for (size_t d = 0; d < other.accepted_by_depth.size(); ++d) accepted_by_depth[d] += other.accepted_by_depth[d];
  steps_by_rows.resize(std::max(steps_by_rows.size(), other.steps_by_rows.size()));
  for (size_t rows = 0; rows < other.steps_by_rows.size(); ++rows) {
    steps_by_rows[rows].steps += other.steps_by_rows[rows].steps;
    steps_by_rows[rows].ns += other.steps_by_rows[rows].ns;
  }
}

}  // namespace turbo::engine
