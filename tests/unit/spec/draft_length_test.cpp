// The price of rows, and drafts as long as that price allows.
#include "spec/draft_length.h"

#include <gtest/gtest.h>

#include <vector>

namespace turbo::spec {
namespace {

StepCost flat() { return StepCost(std::vector<RowCost>{{1, 1.0, 1.0}, {16, 1.0, 1.0}}); }
StepCost linear() { return StepCost(std::vector<RowCost>{{1, 1.0, 1.0}, {2, 2.0, 2.0}, {4, 4.0, 4.0}}); }

void teach(DraftLength& length, uint32_t depth, uint32_t accepted, int times) {
  for (int i = 0; i < times; ++i) length.record(depth, accepted);
}

}  // namespace

TEST(StepCost, LiesBetweenWhatWasMeasured) {
  const StepCost cost(std::vector<RowCost>{{1, 1.0, 1.0}, {4, 1.6, 1.6}, {8, 4.0, 4.0}});
  EXPECT_DOUBLE_EQ(cost.of(1), 1.0);
  EXPECT_DOUBLE_EQ(cost.of(2), 1.2);
  EXPECT_DOUBLE_EQ(cost.of(4), 1.6);
  EXPECT_DOUBLE_EQ(cost.of(6), 2.8);
  EXPECT_DOUBLE_EQ(cost.of(10), 5.2) << "the last slope goes on";
}

TEST(StepCost, NeverFallsWithMoreRows) {
  const StepCost cost(std::vector<RowCost>{{1, 2.0, 2.0}, {2, 1.5, 1.5}, {3, 3.0, 3.0}});
  EXPECT_DOUBLE_EQ(cost.of(2), 2.0);
  EXPECT_GE(cost.of(3), cost.of(2));
}

TEST(StepCost, FollowsLiveStepsAndIgnoresPromptsAndNonsense) {
  StepCost cost;
  EXPECT_FALSE(cost.known());
  EXPECT_EQ(cost.of(3), 0);
  cost.record(StepCost::kMostRows + 1, 1.0);
  cost.record(0, 1.0);
  cost.record(2, 0.0);
  EXPECT_FALSE(cost.known());
  cost.record(2, 1.0);
  for (int i = 0; i < 100; ++i) cost.record(2, 3.0);
  EXPECT_NEAR(cost.of(2), 3.0, 0.01);
}

TEST(StepCost, ABusyMachineSlowsStepsOfAllSizesAlike) {
  StepCost cost(std::vector<RowCost>{{1, 1.0, 1.0}, {4, 1.2, 1.2}, {8, 2.0, 2.0}});
  for (int i = 0; i < 300; ++i) cost.record(4, 3.6);
  EXPECT_NEAR(cost.of(4), 3.6, 0.01);
  EXPECT_NEAR(cost.of(8) / cost.of(4), 2.0 / 1.2, 0.35);
  EXPECT_NEAR(cost.of(1) / cost.of(4), 1.0 / 1.2, 0.2);
}

TEST(StepCost, TheShapeIsLearntWhereManySizesAreSeen) {
  StepCost cost(std::vector<RowCost>{{1, 1.0, 1.0}, {4, 1.0, 1.0}});
  for (int i = 0; i < 1000; ++i) {
    cost.record(1, 1.0);
    cost.record(4, 2.0);
  }
  EXPECT_NEAR(cost.of(4) / cost.of(1), 2.0, 0.1);
}

TEST(StepCost, ARowCountNotSeenForLongIsLearntFromFewSteps) {
  StepCost cost(std::vector<RowCost>{{1, 2.0, 2.0}, {4, 2.2, 2.2}});  // one row was measured while something else ran
  for (int i = 0; i < 8; ++i) {
    for (int steps = 0; steps < 40; ++steps) cost.record(4, 2.2);
    cost.record(1, 1.0);
  }
  EXPECT_NEAR(cost.of(4) / cost.of(1), 2.2, 0.2);
  // Where both are seen all the time, one hiccup moves little.
  for (int i = 0; i < 50; ++i) {
    cost.record(4, 2.2);
    cost.record(1, 1.0);
  }
  const double before = cost.of(4) / cost.of(1);
  cost.record(4, 20);
  EXPECT_LT(cost.of(4) / cost.of(1), before * 1.05);
}

TEST(DraftLength, UnknownPriceAsksForAll) {
  DraftLength length;
  EXPECT_EQ(length.choose(9, StepCost(), 0, 0), 9u);
}

TEST(DraftLength, FreeRowsAreAllUsed) {
  DraftLength length;
  EXPECT_EQ(length.choose(12, flat(), 0, 0), 12u);
}

TEST(DraftLength, StopsWhereTheNextRowCostsMoreThanItBrings) {
  // Rows 2, 3 and 4 cost a tenth, further ones as much as the first.
  const StepCost cost(std::vector<RowCost>{{1, 1.0, 1.0}, {4, 1.3, 1.3}, {8, 5.3, 5.3}});
  DraftLength length;
  teach(length, 7, 7, 200);
  EXPECT_EQ(length.choose(8, cost, 0, 0), 4u);
}

TEST(DraftLength, WrongDraftsAreGivenUpAndProbedLessAndLess) {
  DraftLength length;
  teach(length, 4, 0, 100);
  int probes = 0, steps = 0;
  for (; steps < 4000; ++steps)
    if (length.choose(8, linear(), 0, 0) > 1) {
      ++probes;
      length.record(3, 0);
    }
  EXPECT_GT(probes, 5);
  EXPECT_LT(probes, 20);
}

TEST(DraftLength, ComesBackWhenTheTextChanges) {
  const StepCost cost(std::vector<RowCost>{{1, 1.0, 1.0}, {4, 1.3, 1.3}, {8, 2.0, 2.0}});
  DraftLength length;
  teach(length, 4, 0, 100);
  int quiet = 0;
  for (int i = 0; i < 600; ++i) quiet += length.choose(8, cost, 0, 0) == 1;
  EXPECT_GT(quiet, 550);
  int steps = 0;
  for (uint32_t slots = 1; steps < 600; ++steps) {
    slots = length.choose(8, cost, 0, 0);
    if (slots == 8) break;
    if (slots > 1) length.record(slots - 1, slots - 1);
  }
  EXPECT_LT(steps, 560) << "one probe that holds must lead to the next at once";
}

TEST(DraftLength, ACrowdedStepLeavesLessRoom) {
  const StepCost cost(std::vector<RowCost>{{1, 1.0, 1.0}, {4, 1.1, 1.1}, {8, 2.0, 2.0}, {32, 8.0, 8.0}});
  DraftLength length;
  teach(length, 3, 2, 100);
  const uint32_t alone = length.choose(8, cost, 0, 0), crowded = length.choose(8, cost, 15, 15);
  EXPECT_GT(alone, 1u);
  EXPECT_LT(crowded, alone);
}

TEST(DraftLength, ExpectedTokensFollowWhatWasSeen) {
  DraftLength length;
  teach(length, 3, 3, 300);
  EXPECT_NEAR(length.expected_tokens(4), 4.0, 0.05);
  teach(length, 3, 0, 300);
  EXPECT_NEAR(length.expected_tokens(4), 1.0, 0.05);
  EXPECT_EQ(length.expected_tokens(1), 1.0);
}

}  // namespace turbo::spec
