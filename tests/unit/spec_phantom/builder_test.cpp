// Policies, their merge, repairs, copies from the text, and the outcomes that are expected.
#include "builder.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

using namespace turbo;
using namespace turbo::phantom;
using draft::DraftNodes;

namespace {

using Path = std::vector<int32_t>;
std::vector<Path> paths(const DraftNodes& nodes) {
  std::vector<Path> all;
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    Path path = nodes.parents[i] < 0 ? Path{} : all[static_cast<size_t>(nodes.parents[i])];
    path.push_back(nodes.tokens[i]);
    all.push_back(path);
  }
  return all;
}
std::set<Path> set_of(const DraftNodes& nodes) {
  const auto all = paths(nodes);
  return {all.begin(), all.end()};
}

struct BuilderTest : testing::Test {
  draft::NgramCorpus corpus{{.max_depth = 9}};
  draft::RejectedPairs rejected;
  Text text;
  std::vector<int32_t> context;
  DraftNodes out;
  std::vector<uint8_t> repaired;

  Builder builder(uint32_t n_policies) { return Builder(corpus, rejected, 9, n_policies); }
  Builder::Query query(uint32_t max_nodes, bool repair = false) { return {context, &text, text.size(), max_nodes, repair}; }
  void say(std::vector<int32_t> tokens) {
    text.append(tokens);
    context.insert(context.end(), tokens.begin(), tokens.end());
    if (context.size() > 18) context.erase(context.begin(), context.end() - 18);
  }
};

}  // namespace

// The four policies see different things where they can differ at all.
TEST_F(BuilderTest, PoliciesDiffer) {
  // After the longest context came 100; after the newest five tokens lately 200; after three of them 300. The sequence
  // itself, which the corpus does not know, went on with 400.
  corpus.insert(std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 100, 101});
  corpus.insert(std::vector<int32_t>{90, 5, 6, 7, 8, 200, 201});
  say({50, 51, 52, 53, 1, 2, 3, 4, 5, 6, 7, 8, 400, 401, 60, 50, 51, 52, 53, 1, 2, 3, 4, 5, 6, 7, 8});
  Builder b = builder(8);
  DraftNodes full, half, twice, offset;
  b.policy(0, query(2), full);
  b.policy(1, query(2), half);
  b.policy(2, query(2), twice);
  b.policy(3, query(2), offset);
  EXPECT_EQ(paths(full), (std::vector<Path>{{100}, {100, 101}}));
  EXPECT_EQ(paths(half), (std::vector<Path>{{200}, {100}})) << "matches of at most 4 tokens, the latest first";
  EXPECT_EQ(paths(twice), (std::vector<Path>{{400}, {400, 401}})) << "12 tokens match, more than the corpus remembers";
  EXPECT_EQ(twice.match_length, 12u);
  EXPECT_NE(set_of(offset), set_of(DraftNodes{}));
  b.policy(6, query(8), offset);
  EXPECT_EQ(set_of(offset).count({100}) + set_of(offset).count({200}), 2u);
  // Skipping all but the matches of 4 and fewer leaves out nothing that the half window sees.
}

TEST_F(BuilderTest, MoreGhostsAddToTheTreeAndRaceForNothing) {
  corpus.insert(std::vector<int32_t>{1, 2, 3, 100, 101});
  say({1, 2, 3, 400, 401, 1, 2, 3});
  builder(1).build(query(8), out, repaired);
  EXPECT_EQ(set_of(out), (std::set<Path>{{100}, {100, 101}}));
  builder(3).build(query(8), out, repaired);
  EXPECT_TRUE(set_of(out).count({100, 101}));
  EXPECT_TRUE(set_of(out).count({400, 401}));
  const DraftNodes whole = out;
  builder(3).build(query(3), out, repaired);
  ASSERT_EQ(out.size(), 3u);
  EXPECT_TRUE(std::equal(out.tokens.begin(), out.tokens.end(), whole.tokens.begin()));
}

TEST_F(BuilderTest, RefusedPairsComeLastAndWhatReplacesThemIsMarked) {
  corpus.insert(std::vector<int32_t>{7, 1, 2, 20, 21, 22, 23});
  corpus.insert(std::vector<int32_t>{8, 2, 30, 31});
  say({7, 1, 2});
  Builder b = builder(1);
  b.build(query(3), out, repaired);
  EXPECT_EQ(paths(out), (std::vector<Path>{{20}, {20, 21}, {20, 21, 22}}));
  rejected.insert(20, 21);
  b.build(query(3, true), out, repaired);
  EXPECT_TRUE(set_of(out).count({20}));
  EXPECT_EQ(repaired, std::vector<uint8_t>(3, 0)) << "the corpus was asked for three nodes, there is nothing else";
  b.build(query(3), out, repaired);
  EXPECT_EQ(paths(out), (std::vector<Path>{{20}, {20, 21}, {20, 21, 22}})) << "switched off";
}

TEST_F(BuilderTest, ARepairBringsInAlternativesOfOtherPolicies) {
  corpus.insert(std::vector<int32_t>{1, 2, 3, 4, 5, 20, 21, 22, 23});
  say({9, 9, 4, 5, 30, 31, 1, 2, 3, 4, 5});
  Builder b = builder(3);
  b.build(query(2), out, repaired);
  EXPECT_EQ(paths(out), (std::vector<Path>{{20}, {20, 21}}));
  rejected.insert(5, 20);
  b.build(query(2, true), out, repaired);
  EXPECT_EQ(paths(out), (std::vector<Path>{{30}, {30, 31}}));
  EXPECT_EQ(repaired, (std::vector<uint8_t>{1, 1}));
  b.build(query(3, true), out, repaired);
  EXPECT_TRUE(set_of(out).count({30, 31}));
}

TEST_F(BuilderTest, AnyTreeIsLegal) {
  std::mt19937 random(6);
  DraftNodes cut;
  for (uint32_t n_policies = 1; n_policies <= 8; ++n_policies) {
    Builder b = builder(n_policies);
    for (int round = 0; round < 60; ++round) {
      std::vector<int32_t> more(1 + random() % 6);
      for (int32_t& token : more) token = static_cast<int32_t>(random() % 5);
      say(more);
      corpus.extend({}, more);
      rejected.insert(static_cast<int32_t>(random() % 5), static_cast<int32_t>(random() % 5));
      b.build(query(1 + random() % 15, random() % 2), out, repaired);
      ASSERT_EQ(repaired.size(), out.size());
      for (uint32_t i = 0; i < out.size(); ++i) {
        ASSERT_LT(out.parents[i], static_cast<int32_t>(i));
        ASSERT_EQ(out.find(out.tokens[i], out.parents[i]), static_cast<int32_t>(i)) << "siblings are distinct";
      }
    }
  }
}

TEST_F(BuilderTest, OutcomesComeInOrderOfLikelihoodAndAreNotDrafted) {
  corpus.insert(std::vector<int32_t>{1, 2, 3, 4, 5, 6});
  corpus.insert(std::vector<int32_t>{9, 2, 7});
  say({1, 2});
  Builder b = builder(1);
  b.build(query(3), out, repaired);
  ASSERT_EQ(paths(out)[0], (Path{3}));
  std::vector<Outcome> outcomes;
  b.outcomes(query(3), out, 0.7, 100, outcomes);
  ASSERT_FALSE(outcomes.empty());
  bool goes_on = false, turns = false;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    EXPECT_LE(outcomes[i].weight, outcomes[i > 0 ? i - 1 : 0].weight);
    EXPECT_EQ(out.find(outcomes[i].token, outcomes[i].node), -1) << "a drafted token would be accepted, not emitted after it";
    goes_on |= outcomes[i].node >= 0 && paths(out)[static_cast<size_t>(outcomes[i].node)] == Path{3, 4, 5} && outcomes[i].token == 6;
    turns |= outcomes[i].node == -1 && outcomes[i].token == 7;
  }
  EXPECT_TRUE(goes_on || out.find(7, -1) >= 0);
  EXPECT_TRUE(turns || out.find(7, -1) >= 0);
  b.outcomes(query(3), out, 0.7, 1, outcomes);
  EXPECT_EQ(outcomes.size(), 1u);
}

TEST_F(BuilderTest, AnEmptyCorpusGivesNothing) {
  say({1});
  std::vector<Outcome> outcomes;
  for (uint32_t n = 1; n <= 8; ++n) {
    builder(n).build(query(15), out, repaired);
    EXPECT_EQ(out.size(), 0u);
    builder(n).outcomes(query(15), out, 0.5, 10, outcomes);
    EXPECT_TRUE(outcomes.empty());
  }
}

TEST(TextLookup, TakesTheLongestThenTheLatestMatch) {
  Text text;
  text.append(std::vector<int32_t>{1, 2, 3, 10, 11, 5, 2, 3, 20, 21, 6, 2, 3, 30, 7, 1, 2, 3});
  TextLookup lookup;
  DraftNodes out;
  const std::vector<int32_t> three = {1, 2, 3}, two = {9, 2, 3}, one = {9, 9, 3};
  lookup.match(text, text.size(), three, 3, out);
  EXPECT_EQ(out.match_length, 3u);
  EXPECT_EQ(paths(out), (std::vector<Path>{{10}, {10, 11}, {10, 11, 5}}));
  lookup.match(text, text.size(), two, 100, out);
  EXPECT_EQ(out.match_length, 2u);
  EXPECT_EQ(out.tokens[0], 30);
  EXPECT_GE(out.find(20, -1), 0) << "and another continuation";
  EXPECT_LT(out.find(10, -1), 0) << "but not a third";
  lookup.match(text, text.size(), one, 100, out);
  EXPECT_EQ(out.size(), 0u) << "one token is no match";
  lookup.match(text, 3, three, 100, out);
  EXPECT_EQ(out.size(), 0u) << "what may not be read is not";
  lookup.match(text, text.size(), three, 0, out);
  EXPECT_EQ(out.size(), 0u);
  lookup.match(Text(), 0, three, 5, out);
  EXPECT_EQ(out.size(), 0u);
}

TEST(TextLookup, LooksBackAsFarAsItSays) {
  Text text;
  text.append(std::vector<int32_t>{1, 2, 3});
  text.append(std::vector<int32_t>(TextLookup::kLookBack - 2, 0));
  TextLookup lookup;
  DraftNodes out;
  const std::vector<int32_t> context = {1, 2};
  lookup.match(text, text.size(), context, 1, out);
  EXPECT_EQ(out.tokens, std::vector<int32_t>{3});
  text.append(std::vector<int32_t>(1, 0));
  lookup.match(text, text.size(), context, 1, out);
  EXPECT_EQ(out.size(), 0u);
}

TEST(Text, KeepsWhatItCan) {
  Text text;
  std::vector<int32_t> tokens(10000);
  for (int32_t i = 0; i < 10000; ++i) tokens[static_cast<size_t>(i)] = i;
  for (int i = 0; i < 200; ++i) text.append(tokens);
  EXPECT_EQ(text.size(), Text::kMostTokens);
  EXPECT_EQ(text[12345], 2345);
  std::vector<int32_t> copied;
  text.copy(4094, 4099, copied);
  EXPECT_EQ(copied, (std::vector<int32_t>{4094, 4095, 4096, 4097, 4098}));
}
