#include "kv/prefix_tree.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace turbo::kv {
namespace {

using Node = PrefixTree::Node;
std::array<int32_t, kBlock> block(int32_t token) {
  std::array<int32_t, kBlock> tokens;
  tokens.fill(token);
  return tokens;
}

}  // namespace

TEST(PrefixTree, RootsLiveAsLongAsTheyHoldSomething) {
  PrefixTree tree;
  Node* root = tree.pin_root("a");
  EXPECT_EQ(tree.pin_root("a"), root);
  EXPECT_NE(tree.pin_root("b"), root);
  EXPECT_EQ(tree.n_roots(), 2u);
  tree.unpin(root);
  EXPECT_EQ(tree.n_roots(), 2u);
  tree.unpin(root);
  EXPECT_EQ(tree.n_roots(), 1u);
  EXPECT_TRUE(tree.consistent());
}

TEST(PrefixTree, ABlockDiffersByAnyOfItsTokens) {
  PrefixTree tree;
  Node* root = tree.pin_root("");
  auto tokens = block(1);
  Node* node = tree.add(root, tokens, {5, -1});
  EXPECT_EQ(tree.child(root, tokens), node);
  for (const size_t at : {size_t{0}, size_t{31}, size_t{63}}) {
    auto other = tokens;
    other[at] = 2;
    EXPECT_EQ(tree.child(root, other), nullptr) << at;
  }
}

TEST(PrefixTree, LeavesGoOldestFirstAndTheirParentsAfterThem) {
  PrefixTree tree;
  Node* root = tree.pin_root("");
  Node* a = tree.add(root, block(1), {1, -1});
  Node* b = tree.add(a, block(2), {2, -1});
  Node* c = tree.add(root, block(3), {3, 30});
  EXPECT_FALSE(tree.evict()) << "all are pinned";
  tree.unpin(b);
  tree.unpin(a);
  tree.unpin(c);
  EXPECT_EQ(tree.n_unpinned(), 3u);
  EXPECT_EQ(tree.evict()->packed, 2);
  EXPECT_EQ(tree.evict()->packed, 1);
  const auto last = tree.evict();
  EXPECT_EQ(last->packed, 3);
  EXPECT_EQ(last->open, 30);
  EXPECT_FALSE(tree.evict());
  tree.unpin(root);
  EXPECT_EQ(tree.n_roots(), 0u);
}

TEST(PrefixTree, AUsedLeafIsYoung) {
  PrefixTree tree;
  Node* root = tree.pin_root("");
  Node* a = tree.add(root, block(1), {1, -1});
  Node* b = tree.add(root, block(2), {2, -1});
  tree.unpin(a);
  tree.unpin(b);
  tree.pin(a);
  tree.unpin(a);
  EXPECT_EQ(tree.evict()->packed, 2);
}

// Against a plain model: chains of held blocks; counters, pins and eviction must agree at every step.
TEST(PrefixTree, CountsHoldUnderRandomUse) {
  std::mt19937 rng(5);
  PrefixTree tree;
  std::vector<std::vector<Node*>> holders;  // root first
  std::map<int32_t, int> alive;             // block id -> how many hold it
  int32_t next_id = 0;
  for (int i = 0; i < 20000; ++i) {
    const uint32_t what = rng() % 10;
    if (what < 4) {
      std::vector<Node*> chain{tree.pin_root(rng() % 3 ? "x" : "y")};
      for (uint32_t depth = rng() % 5; depth > 0; --depth) {
        const auto tokens = block(static_cast<int32_t>(rng() % 3));
        Node* child = tree.child(chain.back(), tokens);
        if (child) tree.pin(child);
        else alive[next_id] = 0, child = tree.add(chain.back(), tokens, {next_id++, -1});
        ++alive.at(child->packed);
        chain.push_back(child);
      }
      holders.push_back(std::move(chain));
    } else if (what < 8 && !holders.empty()) {
      const size_t at = rng() % holders.size();
      for (size_t n = holders[at].size(); n-- > 0;) {
        Node* node = holders[at][n];
        if (node->packed >= 0) --alive.at(node->packed);
        tree.unpin(node);
      }
      holders.erase(holders.begin() + static_cast<long>(at));
    } else if (const auto evicted = tree.evict()) {
      ASSERT_EQ(alive.at(evicted->packed), 0) << "a held block was evicted";
      alive.erase(evicted->packed);
    }
    ASSERT_EQ(tree.size(), alive.size());
    ASSERT_EQ(tree.n_unpinned(), std::count_if(alive.begin(), alive.end(), [](const auto& entry) { return entry.second == 0; }));
    if (i % 16 == 0) ASSERT_TRUE(tree.consistent());
  }
  while (tree.evict()) {}
  EXPECT_EQ(tree.n_unpinned(), 0u);
}

}  // namespace turbo::kv
