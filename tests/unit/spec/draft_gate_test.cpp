// The account of what drafts bring and cost.
#include "spec/draft_gate.h"

#include <gtest/gtest.h>

#include <vector>

namespace turbo::spec {
namespace {

StepCost linear() { return StepCost(std::vector<RowCost>{{1, 1.0, 1.0}, {4, 2.5, 2.5}}); }

}  // namespace

TEST(DraftGate, ShutsWhenDraftsLostWhatTheyMayAndOpensAgainSlowly) {
  DraftGate gate;
  int drafted = 0;
  for (; drafted < 100 && gate.open(); ++drafted) {
    gate.record({1, 3, 1, 0}, linear());  // 2.5 of time for one token
    gate.record({1, 0, 1, 0}, linear());
  }
  EXPECT_EQ(drafted, 6) << "1.5 each, of an account of 8";
  int plain = 0;
  for (; plain < 1000 && !gate.open(); ++plain) gate.record({1, 0, 1, 0}, linear());
  EXPECT_GT(plain, 60);
  EXPECT_LT(plain, 250);
}

TEST(DraftGate, WhatDraftsWinIsNoLicenceToLoseMuch) {
  DraftGate gate;
  for (int i = 0; i < 1000; ++i) {
    gate.record({1, 3, 4, 0}, linear());
    gate.record({1, 0, 1, 0}, linear());
  }
  EXPECT_EQ(gate.balance(), DraftGate::kMost);
  int drafted = 0;
  for (; drafted < 100 && gate.open(); ++drafted) {
    gate.record({1, 3, 1, 0}, linear());
    gate.record({1, 0, 1, 0}, linear());
  }
  EXPECT_LE(drafted, 6);
}

TEST(DraftGate, APlainStepNowAndThenButEverMoreSeldom) {
  DraftGate gate;
  std::vector<int> runs{0};
  for (int i = 0; i < 500; ++i)
    if (gate.open()) {
      gate.record({1, 3, 4, 0}, linear());
      ++runs.back();
    } else {
      gate.record({1, 0, 1, 0}, linear());
      runs.push_back(0);
    }
  ASSERT_GT(runs.size(), 8u);
  EXPECT_EQ(runs[0], 1);
  EXPECT_EQ(runs[1], 2);
  EXPECT_EQ(runs[6], 64);
  EXPECT_EQ(runs[7], 64);
}

TEST(DraftGate, TimeInTheDrafterCountsAlsoWhenItHadNothing) {
  DraftGate gate;
  for (int i = 0; i < 9; ++i) gate.record({1, 0, 1, 1.0}, linear());
  EXPECT_FALSE(gate.open());
}

TEST(DraftGate, OthersInTheStepAreNoGain) {
  DraftGate gate;
  gate.record({1, 0, 1, 4.0}, linear());  // not full
  const double before = gate.balance();
  gate.record({4, 0, 4, 0}, linear());
  EXPECT_NEAR(gate.balance(), before + 4 * DraftGate::kShare, 1e-12);
  // Four plain rows take 2.5, so a token 0.625; two more rows take 1, worth 1.6 tokens.
  gate.record({4, 2, 6, 0}, linear());
  EXPECT_NEAR(gate.balance(), before + 10 * DraftGate::kShare + 6 - 3.5 / 0.625, 1e-12);
}

TEST(DraftGate, UnknownPricesLeaveTheAccountAlone) {
  DraftGate gate;
  const double before = gate.balance();
  gate.record({1, 3, 1, 5.0}, StepCost());
  gate.record({0, 0, 0, 5.0}, linear());
  EXPECT_EQ(gate.balance(), before);
}

}  // namespace turbo::spec
