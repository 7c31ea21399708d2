#include <gtest/gtest.h>
#include <turbo/draft/rejected_pairs.hpp>

#include <random>
#include <vector>

using turbo::draft::RejectedPairs;

namespace {

// root -> {10, 11}; 10 -> {20, 21}; 20 -> {30}
const std::vector<int32_t> tokens = {10, 11, 20, 21, 30};
const std::vector<int32_t> parents = {-1, -1, 0, 0, 2};

std::vector<std::pair<int32_t, int32_t>> refused(const std::vector<int32_t>& fresh, uint32_t n_accepted) {
  RejectedPairs pairs;
  pairs.learn(5, tokens, parents, fresh, n_accepted);
  std::vector<std::pair<int32_t, int32_t>> found;
  for (const int32_t a : {5, 10, 11, 20, 21, 30, 99})
    for (const int32_t b : {5, 10, 11, 20, 21, 30, 99})
      if (pairs.contains(a, b)) found.push_back({a, b});
  EXPECT_EQ(pairs.size(), found.size());
  return found;
}

using Pairs = std::vector<std::pair<int32_t, int32_t>>;

}  // namespace

// The boundary lies on the tree's real path: not one slot off, not in flat order, and there when nothing was accepted.
TEST(RejectedPairs, LearnsTheChildrenAtTheBoundaryOfTheAcceptedPath) {
  EXPECT_EQ(refused({99}, 0), (Pairs{{5, 10}, {5, 11}})) << "nothing accepted";
  EXPECT_EQ(refused({10, 99}, 1), (Pairs{{10, 20}, {10, 21}})) << "not (5, 10), which was accepted, nor (5, 11)";
  EXPECT_EQ(refused({11, 99}, 1), (Pairs{})) << "11 has no children";
  EXPECT_EQ(refused({10, 21, 99}, 2), (Pairs{}));
  EXPECT_EQ(refused({10, 20, 99}, 2), (Pairs{{20, 30}}));
  EXPECT_EQ(refused({10, 20, 30, 99}, 3), (Pairs{})) << "all accepted";
}

TEST(RejectedPairs, ContradictionsTeachNothing) {
  EXPECT_EQ(refused({10}, 0), Pairs{}) << "emitted what was drafted and not accepted: it was not verified";
  EXPECT_EQ(refused({99, 98}, 1), Pairs{}) << "accepted what was not drafted";
  EXPECT_EQ(refused({10}, 1), Pairs{}) << "the target's own token was cut off";
  EXPECT_EQ(refused({}, 0), Pairs{});
  EXPECT_EQ(refused({10}, 4000000000u), Pairs{});
}

TEST(RejectedPairs, AcceptedPairsAreNeverInIt) {
  RejectedPairs pairs;
  std::mt19937 random(1);
  const auto token = [&] { return static_cast<int32_t>(random() % 150000); };
  for (int round = 0; round < 10000; ++round) {
    const int32_t root = token();
    std::vector<int32_t> chain(1 + random() % 7), above;
    for (size_t i = 0; i < chain.size(); ++i) {
      chain[i] = token();
      above.push_back(static_cast<int32_t>(i) - 1);
    }
    std::vector<int32_t> fresh = chain;
    fresh.push_back(token());
    pairs.learn(root, chain, above, fresh, static_cast<uint32_t>(chain.size()));
  }
  EXPECT_TRUE(pairs.empty());
  for (int32_t a = 0; a < 2000; ++a) ASSERT_FALSE(pairs.contains(a, a + 1));
}

TEST(RejectedPairs, AnAcceptedPairLeavesTheFilter) {
  RejectedPairs pairs;
  std::mt19937 random(2);
  for (int round = 0; round < 20000; ++round) {
    const int32_t a = static_cast<int32_t>(random() % 300), b = static_cast<int32_t>(random() % 300);
    const std::vector<int32_t> one = {b}, root = {-1};
    if (random() % 2) {
      pairs.learn(a, one, root, std::vector<int32_t>{b, 7}, 1);
      ASSERT_FALSE(pairs.contains(a, b));
    } else {
      pairs.learn(a, one, root, std::vector<int32_t>{b + 1000}, 0);
      ASSERT_TRUE(pairs.contains(a, b));
    }
  }
}

// Token 0 is a token like others.
TEST(RejectedPairs, TokenZeroCounts) {
  RejectedPairs pairs;
  pairs.insert(0, 0);
  pairs.insert(5, 0);
  EXPECT_TRUE(pairs.contains(0, 0));
  EXPECT_TRUE(pairs.contains(5, 0));
  EXPECT_FALSE(pairs.contains(0, 5));
}

// Random pairs and pairs of neighbours alike: no linear form of (a, b) decides.
TEST(RejectedPairs, FewFalseAnswersWhateverTheForm) {
  for (const bool neighbours : {false, true}) {
    RejectedPairs pairs(4000);  // a generation holds 2000
    std::mt19937 random(3);
    for (int32_t i = 0; i < 2000; ++i) pairs.insert(neighbours ? i : static_cast<int32_t>(random() % 151669), neighbours ? i + 1 : static_cast<int32_t>(random() % 151669));
    EXPECT_NEAR(pairs.size(), 2000, 5);
    int hits = 0;
    constexpr int kTries = 200000;
    for (int32_t i = 0; i < kTries; ++i) {
      const int32_t a = neighbours ? 10000 + i : 200000 + static_cast<int32_t>(random() % 151669);
      hits += pairs.contains(a, neighbours ? a + 1 : static_cast<int32_t>(random() % 151669));
    }
    EXPECT_LT(hits, kTries * 5e-4) << neighbours;  // expected 1.7e-4
  }
}

TEST(RejectedPairs, HistoryFadesByGenerations) {
  RejectedPairs pairs(1000);
  const auto insert = [&](int32_t from, int32_t to) {
    for (int32_t i = from; i < to; ++i) pairs.insert(i, i + 1);
  };
  const auto held = [&](int32_t from, int32_t to) {
    int32_t n = 0;
    for (int32_t i = from; i < to; ++i) n += pairs.contains(i, i + 1);
    return n;
  };
  insert(0, 500);
  EXPECT_EQ(held(0, 500), 500);
  insert(500, 1000);
  EXPECT_EQ(held(0, 1000), 1000) << "the newest half limit and the one before it";
  insert(1000, 1001);
  EXPECT_LT(held(0, 500), 10) << "the oldest generation is gone";
  EXPECT_EQ(held(500, 1001), 501) << "and nothing else";
  pairs.clear();
  EXPECT_TRUE(pairs.empty());
  EXPECT_EQ(held(0, 1001), 0);
}

TEST(RejectedPairs, TheSamePairCountsOnce) {
  RejectedPairs pairs(1000);
  for (int i = 0; i < 10000; ++i) pairs.insert(1, 2);
  EXPECT_EQ(pairs.size(), 1u);
}

TEST(RejectedPairs, TheAgeLimitIsClamped) {
  RejectedPairs pairs(0);
  EXPECT_EQ(pairs.age_limit(), 200u);
  pairs.set_age_limit(4000000000u);
  EXPECT_EQ(pairs.age_limit(), 5000u);
}
