// Outcome cache and budget split.
#include <turbo/draft/outcome_cache.hpp>

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace turbo::draft {
namespace {

DraftNodes chain(uint32_t n, int32_t first = 1) {
  DraftNodes tree;
  for (uint32_t i = 0; i < n; ++i) tree.push(first + static_cast<int32_t>(i), static_cast<int32_t>(i) - 1, 0);
  return tree;
}

TEST(LastAccepted, OfAChainIsTheGeometricLaw) {
  std::vector<double> p;
  last_accepted(chain(4), 0.7, p);
  ASSERT_EQ(p.size(), 5u);
  for (int k = 0; k < 4; ++k) EXPECT_NEAR(p[static_cast<size_t>(k)], std::pow(0.7, k) * 0.3, 1e-12);
  EXPECT_NEAR(p[4], std::pow(0.7, 4), 1e-12);
}

TEST(LastAccepted, OfAnyTreeSumsToOneAndLaterSiblingsGetTheRest) {
  DraftNodes tree;
  tree.push(1, -1, 0);
  tree.push(2, -1, 0);
  tree.push(3, 0, 0);
  std::vector<double> p;
  last_accepted(tree, 0.6, p);
  EXPECT_NEAR(p[0], 0.4 * 0.4, 1e-12);
  EXPECT_NEAR(p[1], 0.6 * 0.4, 1e-12);
  EXPECT_NEAR(p[2], 0.4 * 0.6, 1e-12);
  EXPECT_NEAR(p[3], 0.6 * 0.6, 1e-12);
  std::mt19937 rng(1);
  for (int round = 0; round < 100; ++round) {
    DraftNodes random;
    for (int i = 0; i < 20; ++i) random.push(i, static_cast<int32_t>(rng() % static_cast<uint32_t>(i + 1)) - 1, 0);
    last_accepted(random, 0.05 + 0.9 * (rng() % 100) / 100, p);
    double sum = 0;
    for (const double x : p) {
      EXPECT_GE(x, 0);
      sum += x;
    }
    EXPECT_NEAR(sum, 1, 1e-9);
  }
}

// F_k ~ a^(k/(1+r)), the last one times (1-a)^(-1/(1+r)).
TEST(SplitBudget, IsThePapersLaw) {
  for (const double a : {0.3, 0.6, 0.9})
    for (const double r : {0.5, 1.0, 3.0}) {
      constexpr uint32_t K = 4, budget = 100'000;
      std::vector<double> p;
      std::vector<uint32_t> f;
      last_accepted(chain(K), a, p);
      split_budget(p, r, budget, f);
      for (uint32_t k = 1; k < K; ++k) EXPECT_NEAR(double(f[k]) / f[0], std::pow(a, k / (1 + r)), 1e-3) << a << " " << r;
      EXPECT_NEAR(double(f[K]) / f[0], std::pow(a, K / (1 + r)) * std::pow(1 - a, -1 / (1 + r)), 1e-2) << a << " " << r;
    }
}

TEST(SplitBudget, GivesOutTheWholeBudgetAndNoMore) {
  std::mt19937 rng(2);
  for (int round = 0; round < 500; ++round) {
    std::vector<double> p(1 + rng() % 20);
    for (double& x : p) x = (rng() % 5 == 0) ? 0 : (rng() % 1000) / 1000.0;
    p[0] = 0.1;
    const uint32_t budget = rng() % 64;
    std::vector<uint32_t> f;
    split_budget(p, 1, budget, f);
    EXPECT_EQ(std::accumulate(f.begin(), f.end(), 0u), budget);
  }
  std::vector<uint32_t> f;
  split_budget(std::vector<double>{0, 0}, 1, 9, f);
  EXPECT_EQ(f, (std::vector<uint32_t>{0, 0}));
  split_budget({}, 1, 9, f);
  EXPECT_TRUE(f.empty());
}

// Against every way to split a small budget.
TEST(SplitBudget, IsNearTheBestSplit) {
  for (const double a : {0.3, 0.7, 0.9}) {
    std::vector<double> p;
    last_accepted(chain(2), a, p);
    const auto value = [&](const std::vector<uint32_t>& f) {
      double sum = 0;
      for (size_t i = 0; i < p.size(); ++i) sum += f[i] > 0 ? p[i] * (1 - 1.0 / (f[i] + 1)) : 0;
      return sum;
    };
    double best = 0;
    for (uint32_t x = 0; x <= 12; ++x)
      for (uint32_t y = 0; x + y <= 12; ++y) best = std::max(best, value({x, y, 12 - x - y}));
    std::vector<uint32_t> f;
    split_budget(p, 1, 12, f);
    EXPECT_GT(value(f), 0.99 * best) << a;
    EXPECT_GT(value(f), value({12, 0, 0}));
  }
}

OutcomeKey key(uint64_t session, uint64_t length, uint64_t hash = 5) { return {session, length, hash}; }

TEST(OutcomeCache, FindsWhatWasPutInAndNothingElse) {
  OutcomeCache cache(10, 1 << 20);
  ASSERT_TRUE(cache.insert(key(1, 10), chain(3)));
  ASSERT_NE(cache.find(key(1, 10)), nullptr);
  EXPECT_EQ(cache.find(key(1, 10))->tokens, chain(3).tokens);
  EXPECT_EQ(cache.find(key(1, 10))->parents, chain(3).parents);
  EXPECT_EQ(cache.find(key(2, 10)), nullptr);
  EXPECT_EQ(cache.find(key(1, 11)), nullptr);
  EXPECT_EQ(cache.find(key(1, 10, 6)), nullptr);
  EXPECT_EQ(cache.hits(), 3u);
  EXPECT_EQ(cache.misses(), 3u);
  ASSERT_TRUE(cache.insert(key(1, 10), chain(1, 9)));
  EXPECT_EQ(cache.size(), 1u);
  EXPECT_EQ(cache.find(key(1, 10))->tokens, chain(1, 9).tokens);
}

TEST(OutcomeCache, TheLeastRecentlyUsedGoesByEntries) {
  OutcomeCache cache(3, 1 << 20);
  for (uint64_t i = 0; i < 3; ++i) cache.insert(key(1, 10 + i), chain(2));
  cache.find(key(1, 10));
  cache.insert(key(1, 20), chain(2));
  EXPECT_NE(cache.find(key(1, 10)), nullptr);
  EXPECT_EQ(cache.find(key(1, 11)), nullptr);
  EXPECT_EQ(cache.size(), 3u);
  EXPECT_EQ(cache.wasted(), 1u);
}

TEST(OutcomeCache, AndByBytes) {
  OutcomeCache cache(1000, 4096);
  for (uint64_t i = 0; i < 100; ++i) {
    cache.insert(key(1, 10 + i), chain(16));
    EXPECT_LE(cache.bytes(), 4096u);
  }
  EXPECT_GT(cache.size(), 3u);
  EXPECT_LT(cache.size(), 100u);
  EXPECT_NE(cache.find(key(1, 109)), nullptr);
  EXPECT_EQ(cache.find(key(1, 10)), nullptr);
  EXPECT_FALSE(cache.insert(key(1, 500), chain(2000))) << "it has no room at all";
  EXPECT_NE(cache.find(key(1, 109)), nullptr);
  cache.clear();
  EXPECT_EQ(cache.bytes(), 0u);
}

TEST(OutcomeCache, EntriesDieWhenTheirSessionPassesThemOrCloses) {
  OutcomeCache cache(100, 1 << 20);
  cache.insert(key(1, 10, 1), chain(2));
  cache.insert(key(1, 10, 2), chain(2));
  cache.insert(key(1, 9, 1), chain(2));
  cache.insert(key(1, 12, 1), chain(2));
  cache.insert(key(2, 9, 1), chain(2));
  cache.committed(key(1, 10, 2));
  EXPECT_EQ(cache.size(), 3u) << "another text of the same length is not coming any more";
  EXPECT_NE(cache.find(key(1, 10, 2)), nullptr);
  EXPECT_NE(cache.find(key(1, 12, 1)), nullptr);
  EXPECT_EQ(cache.wasted(), 2u);
  cache.committed(key(1, 11, 7));
  EXPECT_EQ(cache.wasted(), 2u) << "that one was used";
  cache.close(1);
  EXPECT_EQ(cache.size(), 1u);
  EXPECT_NE(cache.find(key(2, 9, 1)), nullptr);
  cache.close(2);
  cache.close(3);
  EXPECT_EQ(cache.bytes(), 0u);
}

// Against a model without any bound, over random traffic.
TEST(OutcomeCache, AgreesWithAMap) {
  std::mt19937 rng(3);
  OutcomeCache cache(20, 1 << 14);
  std::map<std::tuple<uint64_t, uint64_t, uint64_t>, std::vector<int32_t>> model;
  uint64_t found = 0;
  for (int round = 0; round < 20'000; ++round) {
    const OutcomeKey at{rng() % 4, rng() % 6, rng() % 3};
    const std::tuple tuple{at.session, at.length, at.hash};
    switch (rng() % 8) {
      case 0:
        cache.close(at.session);
        std::erase_if(model, [&](const auto& entry) { return std::get<0>(entry.first) == at.session; });
        break;
      case 1:
        cache.committed(at);
        std::erase_if(model, [&](const auto& entry) {
          const auto& [session, length, hash] = entry.first;
          return session == at.session && !(length > at.length || (length == at.length && hash == at.hash));
        });
        break;
      case 2: case 3: case 4: {
        const DraftNodes tree = chain(1 + rng() % 30, static_cast<int32_t>(rng() % 1000));
        ASSERT_TRUE(cache.insert(at, tree));
        model[tuple] = tree.tokens;
        break;
      }
      default:
        if (const DraftNodes* tree = cache.find(at)) {
          ++found;
          ASSERT_TRUE(model.count(tuple));
          ASSERT_EQ(tree->tokens, model[tuple]);
        }
    }
    ASSERT_LE(cache.size(), 20u);
    ASSERT_LE(cache.bytes(), uint64_t{1} << 14);
  }
  EXPECT_GT(found, 500u);
}

TEST(HashNext, DependsOnEveryTokenAndTheirOrder) {
  std::set<uint64_t> seen;
  for (int32_t a = 0; a < 100; ++a)
    for (int32_t b = 0; b < 100; ++b) seen.insert(hash_next(hash_next(0, a), b));
  for (int32_t a = 0; a < 100; ++a) seen.insert(hash_next(0, a));
  EXPECT_EQ(seen.size(), 10'100u);
}

}  // namespace
}  // namespace turbo::draft
