#include "spec/draft_cost.h"

#include <gtest/gtest.h>

#include "spec/draft_length.h"

namespace turbo::spec {
namespace {

TEST(DraftCost, TheFirstCallsCountByTheirBestAndLaterOnesSlowly) {
  DraftCost cost;
  EXPECT_EQ(cost.of(3), 0) << "nothing known";
  cost.record(3, 30e-3);  // compiled
  cost.record(3, 3e-3);
  cost.record(3, 6e-3);
  EXPECT_NEAR(cost.of(1), 1e-3, 1e-9);
  EXPECT_NEAR(cost.of(4), 4e-3, 1e-9);
  cost.record(3, 3e-3);
  cost.record(1, 1.0);  // a long catch-up
  EXPECT_LT(cost.of(1), 2e-3);
  for (int i = 0; i < 100; ++i) cost.record(2, 8e-3);
  EXPECT_NEAR(cost.of(1), 4e-3, 1e-4);
  const double before = cost.of(1);
  cost.record(0, 5);
  cost.record(2, -1);
  EXPECT_EQ(cost.of(1), before);
}

StepCost flat() {
  const RowCost costs[] = {{1, 10e-3, 10e-3}, {16, 11e-3, 11e-3}};
  return StepCost(costs);
}

// A draft model that takes as long as the target's own step can never pay; one of a tenth does.
TEST(DraftCost, TheTimeOfDraftingShortensDrafts) {
  DraftLength length;
  for (int i = 0; i < 100; ++i) length.record(3, i % 2 ? 3 : 1);
  DraftCost cheap, dear;
  for (int i = 0; i < 10; ++i) {
    cheap.record(1, 0.2e-3);
    dear.record(1, 12e-3);
  }
  EXPECT_EQ(length.choose(4, flat(), 0, 0, DraftCost()), 4u);
  EXPECT_EQ(length.choose(4, flat(), 0, 0, cheap), 4u);
  EXPECT_EQ(length.choose(4, flat(), 0, 0, dear), 1u);
  EXPECT_EQ(length.choose(4, flat(), 0, 0, cheap, 0.5), 4u) << "what others take anyway is no reason against it";
}

// 0.1 ms a token to read: 2,000 of them are not won back by the 20 tokens that are left, nor worth a probe.
TEST(DraftCost, ATextIsNotReadThatCannotWinItBack) {
  const DraftCost cost(0.2e-3, 0.1e-3);
  EXPECT_DOUBLE_EQ(cost.reading(2000), 0.2);
  DraftLength good;
  for (int i = 0; i < 100; ++i) good.record(3, 3);
  EXPECT_EQ(good.choose(4, flat(), 0, 0, cost, 0, {2000, 20}), 1u);
  EXPECT_EQ(good.choose(4, flat(), 0, 0, cost, 0, {2000, 500}), 4u);
  EXPECT_EQ(good.choose(4, flat(), 0, 0, cost, 0, {10, 20}), 4u);
  DraftLength bad;
  for (int i = 0; i < 100; ++i) bad.record(3, 0);
  uint32_t probes = 0;
  for (int i = 0; i < 2000; ++i) probes += bad.choose(4, flat(), 0, 0, DraftCost(12e-3, 0.1e-3), 0, {2000, 1000}) > 1;
  EXPECT_EQ(probes, 0u);
  for (int i = 0; i < 2000; ++i) probes += bad.choose(4, flat(), 0, 0, DraftCost(12e-3, 0.1e-3), 0, {20, 1000}) > 1;
  EXPECT_GT(probes, 0u);
  DraftCost read(1e-3, 0.1e-3);
  for (int i = 0; i < 200; ++i) read.record(3, 3e-3 + 0.1, 1000);
  EXPECT_NEAR(read.of(1), 1e-3, 1e-5) << "reading is no price of a node";
}

TEST(DraftLength, ATreeSpendsSeveralNodesOnADepth) {
  DraftLength chain, tree;
  for (int i = 0; i < 200; ++i) {
    chain.record(3, 3, 3);
    tree.record(3, 3, 12);
  }
  EXPECT_NEAR(chain.expected_tokens(4), 4, 0.01);
  EXPECT_NEAR(tree.expected_tokens(13), 4, 0.01);
  EXPECT_NEAR(tree.expected_tokens(5), 2, 0.01);
  EXPECT_NEAR(tree.expected_tokens(3), 1.5, 0.01) << "half of the first depth";
  EXPECT_EQ(tree.expected_tokens(1), 1);
}

}  // namespace
}  // namespace turbo::spec
