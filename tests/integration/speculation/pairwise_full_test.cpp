// All rows of the covering array and all prompts. One row again, as a failure names it:
// TURBO_PAIRWISE_ROW=17 build/release/tests/speculation_full_test
#include <cstdlib>

#include "pairwise.h"

namespace turbo::engine::testing {

TEST(Pairwise, FiveHundredPromptsGiveTheIdsOfNoDrafter) {
  Pairwise pairwise;
  ASSERT_EQ(pairwise.n_prompts(), 500u);
  const size_t rows = pairwise.n_rows();
  ASSERT_GE(rows, 48u);  // batch sizes times draft lengths
  const char* only = std::getenv("TURBO_PAIRWISE_ROW");
  for (size_t row = 0; row < rows && !HasFailure(); ++row) {
    if (only && row != static_cast<size_t>(std::atol(only))) continue;
    const size_t first = row * pairwise.n_prompts() / rows, end = (row + 1) * pairwise.n_prompts() / rows;
    pairwise.run(row, first, end - first, 32);
  }
  pairwise.print();
  if (HasFailure() || only) return;
  expect_drafting(pairwise);
  EXPECT_GT(pairwise.preemptions(), 0u) << "no pool was ever too small";
  uint64_t compared = 0;
  for (const auto& [kind, tally] : pairwise.tallies()) compared += tally.compared;
  EXPECT_EQ(compared, 2 * pairwise.n_prompts());
}

}  // namespace turbo::engine::testing
