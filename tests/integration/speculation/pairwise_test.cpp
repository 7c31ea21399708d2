// The first rows of the covering array, a few prompts each. All: pairwise_full_test.cpp.
#include <cstdlib>

#include "pairwise.h"

namespace turbo::engine::testing {

TEST(CoveringArray, HoldsEveryPairAndIsTheSameEachTime) {
  using turbo::testing::Levels;
  const Levels sizes{2, 4, 6, 1, 3, 8};
  const std::vector<Levels> rows = turbo::testing::covering_rows(sizes, 5);
  EXPECT_EQ(rows, turbo::testing::covering_rows(sizes, 5));
  EXPECT_LE(rows.size(), 2u * 8 * 6);
  for (size_t a = 0; a < sizes.size(); ++a)
    for (size_t b = a + 1; b < sizes.size(); ++b)
      for (uint32_t x = 0; x < sizes[a]; ++x)
        for (uint32_t y = 0; y < sizes[b]; ++y)
          EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), [&](const Levels& row) { return row[a] == x && row[b] == y; }))
              << "factor " << a << " at " << x << " with factor " << b << " at " << y;
}

TEST(Pairwise, TheFirstRowsGiveTheIdsOfNoDrafter) {
  constexpr size_t kRows = 8, kPromptsEach = 4;
  Pairwise pairwise;
  ASSERT_GE(pairwise.n_rows(), kRows);
  size_t prompt = 0;
  for (const size_t row : pairwise.first_rows(kRows)) {
    pairwise.run(row, prompt, kPromptsEach, 24);
    if (HasFailure()) break;
    prompt += kPromptsEach;
  }
  pairwise.print();
  if (!HasFailure()) expect_drafting(pairwise);
}

}  // namespace turbo::engine::testing
