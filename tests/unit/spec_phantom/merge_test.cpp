#include <gtest/gtest.h>
#include <turbo/draft/merge.hpp>

#include <random>
#include <set>

using turbo::draft::DraftNodes;
using turbo::draft::TreeMerger;

namespace {

DraftNodes tree(uint32_t match, std::vector<int32_t> tokens, std::vector<int32_t> parents, std::vector<float> scores = {}) {
  DraftNodes nodes;
  nodes.tokens = std::move(tokens);
  nodes.parents = std::move(parents);
  nodes.scores = std::move(scores);
  if (nodes.scores.empty()) nodes.scores.assign(nodes.tokens.size(), 0);
  nodes.match_length = match;
  return nodes;
}

using Path = std::vector<int32_t>;
std::set<Path> paths(const DraftNodes& nodes) {
  std::vector<Path> all;
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    Path path = nodes.parents[i] < 0 ? Path{} : all[static_cast<size_t>(nodes.parents[i])];
    path.push_back(nodes.tokens[i]);
    all.push_back(path);
  }
  EXPECT_EQ(std::set<Path>(all.begin(), all.end()).size(), all.size()) << "siblings are distinct";
  return {all.begin(), all.end()};
}

}  // namespace

TEST(TreeMerger, SamePathAndTokenAreOneNode) {
  TreeMerger merger;
  merger.add(tree(3, {1, 2, 3}, {-1, 0, 1}));
  merger.add(tree(3, {1, 2, 4, 3}, {-1, 0, 1, -1}));
  DraftNodes out;
  merger.best(100, out);
  EXPECT_EQ(paths(out), (std::set<Path>{{1}, {1, 2}, {1, 2, 3}, {1, 2, 4}, {3}}));
}

TEST(TreeMerger, MatchLengthThenScoreThenOrderOfCreation) {
  TreeMerger merger;
  merger.add(tree(2, {10, 11}, {-1, -1}, {0.9f, 0.8f}));
  merger.add(tree(5, {20, 21, 22}, {-1, -1, -1}, {0.1f, 0.3f, 0.3f}));
  DraftNodes out;
  merger.best(100, out);
  EXPECT_EQ(out.tokens, (std::vector<int32_t>{21, 22, 20, 10, 11}));
  EXPECT_EQ(out.match_length, 5u);
  merger.best(2, out);
  EXPECT_EQ(out.tokens, (std::vector<int32_t>{21, 22})) << "the first n are the best n";
}

TEST(TreeMerger, ASharedNodeIsAsGoodAsItsBestTree) {
  TreeMerger merger;
  merger.add(tree(2, {10, 11}, {-1, -1}, {0.5f, 0.4f}));
  merger.add(tree(9, {11}, {-1}, {0.1f}));
  DraftNodes out;
  merger.best(100, out);
  EXPECT_EQ(out.tokens, (std::vector<int32_t>{11, 10}));
}

TEST(TreeMerger, DemotedNodesComeLastWithAllBelowThem) {
  TreeMerger merger;
  merger.add(tree(8, {1, 2, 3}, {-1, 0, 1}));
  merger.add(tree(2, {4, 5}, {-1, 0}));
  DraftNodes out;
  const auto bad = [](int32_t parent, int32_t token) { return parent == 7 && token == 1; };
  merger.best(5, 7, bad, out);
  EXPECT_EQ(out.tokens, (std::vector<int32_t>{4, 5, 1, 2, 3}));
  merger.best(2, 7, bad, out);
  EXPECT_EQ(out.tokens, (std::vector<int32_t>{4, 5}));
  merger.best(5, 8, bad, out);
  EXPECT_EQ(out.tokens, (std::vector<int32_t>{1, 2, 3, 4, 5})) << "after another root the pair is another";
}

TEST(TreeMerger, BrokenTreesLoseOnlyTheirBrokenPart) {
  TreeMerger merger;
  merger.add(tree(1, {1, 2, 3, 4}, {-1, 7, 1, 0}));
  merger.add(tree(1, {5, 6}, {-2, -1}));
  DraftNodes out;
  merger.best(10, out);
  EXPECT_EQ(paths(out), (std::set<Path>{{1}, {1, 4}, {6}}));
}

// Whatever is merged and however it is cut: legal trees, all nodes from the sources, prefixes of the longer answer.
TEST(TreeMerger, AnyCutIsClosedUnderParent) {
  std::mt19937 random(4);
  TreeMerger merger;
  for (int round = 0; round < 500; ++round) {
    merger.clear();
    std::set<Path> given;
    for (uint32_t trees = 1 + random() % 4; trees > 0; --trees) {
      DraftNodes nodes;
      nodes.match_length = random() % 5;
      for (uint32_t tries = random() % 20; tries > 0; --tries) {
        const int32_t parent = static_cast<int32_t>(random() % (nodes.size() + 1)) - 1, token = static_cast<int32_t>(random() % 4);
        if (nodes.find(token, parent) < 0) nodes.push(token, parent, static_cast<float>(random() % 8));
      }
      merger.add(nodes);
      given.merge(paths(nodes));
    }
    const auto bad = [&](int32_t parent, int32_t token) { return (parent * 7 + token) % 3 == 0; };
    DraftNodes whole, cut;
    merger.best(1000, 1, bad, whole);
    EXPECT_EQ(paths(whole), given);
    const uint32_t n = random() % 12;
    merger.best(n, 1, bad, cut);
    ASSERT_EQ(cut.size(), std::min(n, whole.size()));
    for (uint32_t i = 0; i < cut.size(); ++i) {
      ASSERT_EQ(cut.tokens[i], whole.tokens[i]);
      ASSERT_EQ(cut.parents[i], whole.parents[i]);
      ASSERT_LT(cut.parents[i], static_cast<int32_t>(i));
    }
  }
}
