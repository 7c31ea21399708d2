#include "kv/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace turbo::kv {

TEST(BlockPool, GivesEveryBlockOnceThenNone) {
  BlockPool pool(5);
  std::set<int32_t> ids;
  for (int i = 0; i < 5; ++i) ids.insert(pool.allocate().value());
  EXPECT_EQ(ids, (std::set<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_FALSE(pool.allocate());
  EXPECT_EQ(pool.n_used(), 5u);
}

TEST(BlockPool, AnEmptyPoolHasNone) {
  BlockPool pool(0);
  EXPECT_FALSE(pool.allocate());
  EXPECT_EQ(pool.capacity(), 0u);
}

TEST(BlockPool, ABlockIsFreeWhenItsLastReferenceGoes) {
  BlockPool pool(1);
  const int32_t id = pool.allocate().value();
  pool.retain(id);
  pool.release(id);
  EXPECT_EQ(pool.references(id), 1u);
  EXPECT_FALSE(pool.allocate());
  pool.release(id);
  EXPECT_EQ(pool.n_free(), 1u);
  EXPECT_EQ(pool.allocate(), id);
}

TEST(BlockPool, CountsHoldUnderRandomUse) {
  BlockPool pool(16);
  std::mt19937 rng(3);
  std::vector<int32_t> held;  // one entry a reference
  for (int i = 0; i < 5000; ++i) {
    if (rng() % 3 == 0 && !held.empty()) {
      const size_t at = rng() % held.size();
      pool.release(held[at]);
      held.erase(held.begin() + static_cast<long>(at));
    } else if (rng() % 2 && !held.empty()) {
      held.push_back(held[rng() % held.size()]);
      pool.retain(held.back());
    } else if (const auto id = pool.allocate()) {
      ASSERT_EQ(std::count(held.begin(), held.end(), *id), 0) << "a block in use was given out";
      held.push_back(*id);
    }
    const std::set<int32_t> distinct(held.begin(), held.end());
    ASSERT_EQ(pool.n_used(), distinct.size());
    for (const int32_t id : distinct) ASSERT_EQ(pool.references(id), std::count(held.begin(), held.end(), id));
  }
}

}  // namespace turbo::kv
