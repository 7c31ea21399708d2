// The scaler under a scripted clock, and the controller of repairs.
#include <gtest/gtest.h>

#include "repair_control.h"
#include "scaler.h"

using turbo::phantom::RepairControl;
using turbo::phantom::Scaler;

namespace {

// Rounds of 4 tokens that take as long as `rate(active)` (tokens per microsecond) says. Time outside of rounds is long.
struct Script {
  Scaler& scaler;
  uint64_t now = 0;
  template <typename Rate>
  void rounds(int n, Rate&& rate) {
    for (int i = 0; i < n; ++i) {
      now += 50'000'000;  // plain decoding, or nothing
      scaler.begin_round(now);
      now += static_cast<uint64_t>(4e6 / rate(scaler.active()));
      scaler.emitted(3, now);
      scaler.emitted(1, now);
    }
  }
};

auto gain(double each) {
  return [each](uint32_t active) { return 1 + each * (active - 1); };
}

}  // namespace

TEST(Scaler, TwoAndAHalfPercentAreKept) {
  Scaler scaler(2);
  Script script{scaler};
  EXPECT_EQ(scaler.active(), 1u);
  script.rounds(101, gain(0.025));
  EXPECT_EQ(scaler.active(), 2u) << "tried after a window";
  EXPECT_TRUE(scaler.on_trial());
  script.rounds(100, gain(0.025));
  EXPECT_EQ(scaler.active(), 2u);
  EXPECT_FALSE(scaler.on_trial());
}

TEST(Scaler, OneAndAHalfPercentAreTakenBackAndTriedAgainAfterARest) {
  Scaler scaler(2);
  Script script{scaler};
  script.rounds(201, gain(0.015));
  EXPECT_EQ(scaler.active(), 1u);
  for (int round = 201; round < 500; ++round) {
    script.rounds(1, gain(0.015));
    ASSERT_EQ(scaler.active(), 1u) << round;
  }
  script.rounds(1, gain(0.015));
  EXPECT_EQ(scaler.active(), 2u) << "rounds 201..400 rest, 401..500 are the new baseline";
}

TEST(Scaler, ClimbsToTheMostAndNeverAbove) {
  Scaler scaler(4);
  Script script{scaler};
  uint32_t highest = 0;
  for (int i = 0; i < 4000; ++i) {
    script.rounds(1, gain(0.2));
    highest = std::max(highest, scaler.active());
    ASSERT_LE(scaler.active(), 4u);
  }
  EXPECT_EQ(highest, 4u);
}

TEST(Scaler, NeverBelowOne) {
  Scaler scaler(3);
  Script script{scaler};
  for (int i = 0; i < 20000; ++i) {
    script.rounds(1, [](uint32_t active) { return active == 1 ? 1.0 : 0.5; });
    ASSERT_GE(scaler.active(), 1u);
    ASSERT_LE(scaler.active(), 2u);
  }
}

// What a second ghost brought at first and brings no more is given back.
TEST(Scaler, TriesFewerAfterTenKeptWindows) {
  Scaler scaler(2);
  Script script{scaler};
  script.rounds(301, gain(0.1));
  ASSERT_EQ(scaler.active(), 2u);
  int rounds = 301;
  while (scaler.active() == 2 && rounds < 3000) {
    script.rounds(1, gain(0));
    ++rounds;
  }
  EXPECT_GT(rounds, 1000) << "not at once";
  EXPECT_LT(rounds, 1400);
  script.rounds(100, gain(0));
  EXPECT_EQ(scaler.active(), 1u) << "as good with one";
}

TEST(Scaler, ADownwardTrialThatCostsIsTakenBack) {
  Scaler scaler(2);
  Script script{scaler};
  int at_one = 0;
  script.rounds(301, gain(0.1));
  for (int i = 0; i < 1500; ++i) {
    script.rounds(1, gain(0.1));
    at_one += scaler.active() == 1;
  }
  EXPECT_EQ(at_one, 100) << "one window's trial";
  EXPECT_EQ(scaler.active(), 2u);
}

// Tokens over time, not the mean of ratios: many short rounds do not outvote a long one.
TEST(Scaler, ThroughputIsTokensOverTime) {
  Scaler scaler(2);
  Script script{scaler};
  script.rounds(101, gain(0));
  ASSERT_EQ(scaler.active(), 2u);
  // 4 of 5 rounds are 1.3 times as fast, the fifth takes 2.5 times as long: slower in sum, faster in the mean of ratios.
  for (int i = 0; i < 20; ++i) {
    script.rounds(4, [](uint32_t) { return 1.3; });
    script.rounds(1, [](uint32_t) { return 0.4; });
  }
  EXPECT_EQ(scaler.active(), 1u);
}

TEST(Scaler, WithOneThereIsNothingToTry) {
  Scaler scaler(0);
  Script script{scaler};
  script.rounds(1000, gain(1));
  EXPECT_EQ(scaler.active(), 1u);
}

TEST(Scaler, RoundsWithoutTokensDoNotCount) {
  Scaler scaler(2);
  uint64_t now = 0;
  for (int i = 0; i < 1000; ++i) scaler.begin_round(now += 10);
  EXPECT_EQ(scaler.active(), 1u);
  scaler.emitted(0, now);
}

TEST(RepairControl, RemembersFewerPairsWhereRepairsAreRightAndMoreWhereTheyAreNot) {
  RepairControl good, bad;
  EXPECT_EQ(good.age_limit(), 2000u);
  for (int i = 0; i < 200; ++i) {
    good.record(4, 4);
    bad.record(10, 5);
  }
  EXPECT_TRUE(good.enabled());
  EXPECT_EQ(good.age_limit(), 500u);
  EXPECT_TRUE(bad.enabled());
  EXPECT_EQ(bad.age_limit(), 5000u);
}

TEST(RepairControl, RestsFortyRoundsWhenRepairsAreWrong) {
  RepairControl control;
  for (int i = 0; i < 20; ++i) control.record(4, 0);
  EXPECT_TRUE(control.enabled()) << "warming up";
  control.record(4, 0);
  EXPECT_FALSE(control.enabled());
  for (int i = 0; i < 39; ++i) control.record(0, 0);
  EXPECT_FALSE(control.enabled());
  control.record(0, 0);
  EXPECT_TRUE(control.enabled());
  EXPECT_EQ(control.age_limit(), 4500u);
  EXPECT_EQ(control.precision(), 0.5);
}

TEST(RepairControl, NearTheTargetItMovesALittle) {
  RepairControl control;
  for (int i = 0; i < 20; ++i) control.record(100, 73);
  const uint32_t before = control.age_limit();
  while (control.precision() < 0.725) control.record(100, 73);
  EXPECT_GE(before, 2000u);
  const uint32_t at = control.age_limit();
  control.record(100, 73);
  EXPECT_EQ(control.age_limit(), at - 60);
  for (int i = 0; i < 50; ++i) control.record(0, 0);
  EXPECT_EQ(control.age_limit(), at - 60) << "nothing repaired, nothing learned";
}
