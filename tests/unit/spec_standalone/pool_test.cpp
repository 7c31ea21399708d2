// The candidate pool against its definition.
#include "draft_pool.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace turbo::spec_standalone {
namespace {

std::vector<Candidate> best(const std::vector<float>& logits, uint32_t count) {
  std::vector<Candidate> out;
  best_tokens(logits, {}, count, out);
  return out;
}

TEST(BestTokens, AreTheMostProbableWithTiesToTheLowerId) {
  const auto top = best({1, 3, 3, 2, -INFINITY}, 3);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(top[0].token, 1);
  EXPECT_EQ(top[1].token, 2);
  EXPECT_EQ(top[2].token, 3);
  const double sum = std::exp(1) + 2 * std::exp(3) + std::exp(2);
  EXPECT_NEAR(top[0].probability, std::exp(3) / sum, 1e-6);
  EXPECT_NEAR(top[2].probability, std::exp(2) / sum, 1e-6);
  EXPECT_EQ(best({1, 3, 3, 2}, 1)[0].token, 1);
}

TEST(BestTokens, OnlyAllowedOnesExist) {
  const std::vector<float> logits{1, 9, 3, NAN, 2};
  const std::vector<int32_t> allowed{0, 3, 4};
  std::vector<Candidate> out;
  best_tokens(logits, allowed, 4, out);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0].token, 4);
  EXPECT_EQ(out[1].token, 0);
  EXPECT_NEAR(out[0].probability, std::exp(2) / (std::exp(1) + std::exp(2)), 1e-6);
}

TEST(BestTokens, NotANumberNeverWins) {
  EXPECT_EQ(best({NAN, 1, NAN, 2}, 2)[0].token, 3);
  EXPECT_TRUE(best({NAN, -INFINITY, NAN}, 4).empty());
  EXPECT_TRUE(best({}, 2).empty());
  EXPECT_TRUE(best({1, 2}, 0).empty());
  const auto few = best({NAN, 5}, 4);
  ASSERT_EQ(few.size(), 1u);
  EXPECT_EQ(few[0].token, 1);
  for (const Candidate& candidate : best({INFINITY, 1, 2}, 2)) EXPECT_TRUE(std::isfinite(candidate.probability));
}

// Steps 2 and 2 branches by hand: 0.6 and 0.3, then (0.9, 0.05) below the first and (0.5, 0.4) below the second.
TEST(DraftPool, ScoresAreProductsAndTheBestAreClosedUnderTheirParents) {
  DraftPool pool;
  pool.begin(2);
  pool.expand(-1, std::vector<Candidate>{{10, 0.6f}, {11, 0.3f}});
  pool.close_level();
  EXPECT_EQ(pool.live(), (std::vector<int32_t>{0, 1}));
  pool.expand(0, std::vector<Candidate>{{20, 0.9f}, {21, 0.05f}});
  pool.expand(1, std::vector<Candidate>{{22, 0.5f}, {23, 0.4f}});
  pool.close_level();
  EXPECT_EQ(pool.live(), (std::vector<int32_t>{2, 4})) << "0.54, 0.03, 0.15, 0.12";
  EXPECT_EQ(pool.best(4), (std::vector<int32_t>{0, 2, 1, 4}));
  EXPECT_EQ(pool.best(1), (std::vector<int32_t>{0}));
  EXPECT_EQ(pool.best(64).size(), 6u);
}

TEST(DraftPool, AnyPoolGivesParentsBeforeChildrenBestFirst) {
  std::mt19937 rng(11);
  for (int round = 0; round < 300; ++round) {
    const uint32_t branches = 1 + rng() % 5, steps = 1 + rng() % 5;
    DraftPool pool;
    pool.begin(branches);
    const auto children = [&] {
      std::vector<Candidate> some;
      for (uint32_t i = 0; i < branches; ++i) some.push_back({static_cast<int32_t>(i), static_cast<float>(rng() % 5) / 4.0f});  // ties, 0 and 1
      return some;
    };
    pool.expand(-1, children());
    pool.close_level();
    for (uint32_t step = 1; step < steps; ++step) {
      const std::vector<int32_t> live = pool.live();
      ASSERT_LE(live.size(), branches);
      for (const int32_t node : live) pool.expand(node, children());
      pool.close_level();
    }
    std::vector<int32_t> seen;
    float last = 2;
    for (const int32_t index : pool.best(1 + rng() % 60)) {
      const DraftPool::Node& node = pool.node(index);
      EXPECT_LE(node.score, last);
      last = node.score;
      EXPECT_TRUE(node.parent < 0 || std::find(seen.begin(), seen.end(), node.parent) != seen.end());
      seen.push_back(index);
    }
  }
}

}  // namespace
}  // namespace turbo::spec_standalone
