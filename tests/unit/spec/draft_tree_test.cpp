// Proposals and their acceptance, against a search over all paths.
#include "spec/draft_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace turbo::spec {
namespace {

std::string fault(std::vector<int32_t> tokens, std::vector<int32_t> parents, uint32_t max_nodes = 8, uint32_t vocab = 10) {
  const char* why = find_fault(tokens, parents, max_nodes, vocab);
  return why ? why : "";
}

// A random tree without equal siblings.
DraftTree random_tree(std::mt19937& rng, uint32_t n, uint32_t vocab) {
  DraftTree tree;
  for (uint32_t tries = 0; tree.size() < n && tries < 10 * n; ++tries) {
    tree.tokens.push_back(static_cast<int32_t>(rng() % vocab));
    tree.parents.push_back(static_cast<int32_t>(rng() % tree.tokens.size()) - 1);
    if (find_fault(tree.tokens, tree.parents, n, vocab)) tree.tokens.pop_back(), tree.parents.pop_back();
  }
  return tree;
}

// The longest path whose every node is what the target drew at its parent; found by looking at all of them.
std::vector<uint32_t> longest_right_path(const DraftTree& tree, const std::vector<int32_t>& drawn) {
  std::vector<uint32_t> best;
  for (uint32_t leaf = 0; leaf < tree.size(); ++leaf) {
    const std::vector<uint32_t> path = tree.path(leaf);
    bool right = true;
    for (const uint32_t node : path) right &= tree.tokens[node] == drawn[static_cast<size_t>(tree.parents[node] + 1)];
    if (right && path.size() > best.size()) best = path;
  }
  return best;
}

}  // namespace

TEST(DraftTree, FaultsAreFound) {
  EXPECT_EQ(fault({}, {}), "");
  EXPECT_EQ(fault({1, 2, 3}, {-1, 0, 1}), "");
  EXPECT_EQ(fault({1, 2, 1}, {-1, -1, 1}), "") << "equal tokens under different parents are no siblings";
  EXPECT_EQ(fault({1, 2}, {-1}), "tokens and parents differ in length");
  EXPECT_EQ(fault({1, 2, 3}, {-1, 0, 1}, 2), "more nodes than asked for");
  EXPECT_EQ(fault({10}, {-1}), "token outside the vocabulary");
  EXPECT_EQ(fault({-1}, {-1}), "token outside the vocabulary");
  EXPECT_EQ(fault({1}, {0}), "parent after its child");
  EXPECT_EQ(fault({1, 2}, {-1, 2}), "parent after its child");
  EXPECT_EQ(fault({1}, {-2}), "parent after its child");
  EXPECT_EQ(fault({1, 2, 1}, {-1, -1, -1}), "siblings with equal tokens");
  EXPECT_EQ(fault({1, 2, 2}, {-1, 0, 0}), "siblings with equal tokens");
}

TEST(DraftTree, DepthAndPath) {
  const DraftTree tree{{5, 6, 7, 8}, {-1, -1, 1, 2}};
  EXPECT_EQ(tree.depth(0), 1u);
  EXPECT_EQ(tree.depth(3), 3u);
  EXPECT_EQ(tree.path(3), (std::vector<uint32_t>{1, 2, 3}));
}

TEST(Accept, NothingDraftedEmitsTheTargetsToken) {
  const Acceptance acceptance = accept({}, std::vector<int32_t>{4});
  EXPECT_TRUE(acceptance.accepted.empty());
  EXPECT_EQ(acceptance.emitted, (std::vector<int32_t>{4}));
}

TEST(Accept, AWholeChainGivesOneMore) {
  const Acceptance acceptance = accept({{1, 2, 3}, {-1, 0, 1}}, std::vector<int32_t>{1, 2, 3, 9});
  EXPECT_EQ(acceptance.accepted, (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(acceptance.emitted, (std::vector<int32_t>{1, 2, 3, 9}));
}

TEST(Accept, EqualsTheSearchOverAllPaths) {
  std::mt19937 rng(21);
  uint32_t longest = 0;
  for (int i = 0; i < 20000; ++i) {
    const uint32_t vocab = 2 + rng() % 4;
    const DraftTree tree = random_tree(rng, rng() % 13, vocab);
    std::vector<int32_t> drawn(tree.size() + 1);
    for (int32_t& token : drawn) token = static_cast<int32_t>(rng() % vocab);
    const Acceptance acceptance = accept(tree, drawn);
    const std::vector<uint32_t> path = longest_right_path(tree, drawn);
    ASSERT_EQ(acceptance.accepted, path);
    ASSERT_EQ(acceptance.emitted.size(), path.size() + 1);
    for (size_t depth = 0; depth < path.size(); ++depth) ASSERT_EQ(acceptance.emitted[depth], tree.tokens[path[depth]]);
    ASSERT_EQ(acceptance.emitted.back(), drawn[path.empty() ? 0 : path.back() + 1]);
    longest = std::max(longest, static_cast<uint32_t>(path.size()));
  }
  EXPECT_GE(longest, 4u);
}

}  // namespace turbo::spec
