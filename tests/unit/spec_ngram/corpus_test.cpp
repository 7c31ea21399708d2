// The n-gram corpus: golden drafts, counts, forgetting, and a plain model of the same rules under random work.
#include "support.h"

using namespace turbo;
using namespace turbo::draft;

namespace {

NgramCorpus& fill(NgramCorpus& corpus, std::initializer_list<Tokens> texts) {
  for (const Tokens& text : texts) corpus.insert(text);
  return corpus;
}
std::string drafted(const NgramCorpus& corpus, const Tokens& context, uint32_t budget = 7) {
  return edges(match(corpus, context, budget));
}

const Tokens kA = range(1, 10), kB = {1, 2, 3, 44, 55, 66, 77, 88, 99, 100};

}  // namespace

TEST(NgramGolden, TwoSeeds) {
  for (const NgramMatch mode : {NgramMatch::bfs, NgramMatch::prob}) {
    NgramCorpus corpus({12, 1, 8, mode, 100000});
    fill(corpus, {kA, kB});
    EXPECT_EQ(drafted(corpus, {1, 2, 3}),
              mode == NgramMatch::bfs ? "^>44 ^>4 44>55 4>5 55>66 5>6 66>77" : "^>4 ^>44 4>5 44>55 5>6 55>66 6>7");
    EXPECT_EQ(drafted(corpus, {3, 44}), "^>55 55>66 66>77 77>88 88>99 99>100")
        << "one slot stays unused, nothing pads it";
    EXPECT_EQ(drafted(corpus, {3, 6, 999}), "");
    NgramProbe::check(corpus);
  }
}

TEST(NgramGolden, BreadthGrowsAsMatchesGetShorter) {
  NgramCorpus corpus({5, 1, 4, NgramMatch::bfs, 1000});
  fill(corpus, {{1, 2, 3, 10, 11}, {1, 2, 3, 20, 21}, {9, 3, 30, 31}, {8, 3, 40}});
  EXPECT_EQ(drafted(corpus, {1, 2, 3}), "^>20 20>21 ^>10 10>11 ^>40 ^>30 30>31");
  EXPECT_EQ(drafted(corpus, {7, 3}), "^>40 ^>30 ^>20 30>31 20>21");
}

TEST(NgramGolden, ShorterSuffixesFillUp) {
  NgramCorpus corpus({6, 1, 10, NgramMatch::bfs, 1000});
  fill(corpus, {range(1, 7), {99, 3, 4, 5, 6, 8}});
  EXPECT_EQ(drafted(corpus, {2, 3, 4, 5, 6}, 3), "^>7 ^>8");
}

TEST(NgramCorpusTest, NothingKnownGivesNothing) {
  NgramCorpus corpus({});
  EXPECT_EQ(drafted(corpus, {1, 2}), "");
  EXPECT_EQ(drafted(corpus, {}), "") << "an empty context is legal";
  fill(corpus, {kA});
  EXPECT_EQ(drafted(corpus, {}), "");
  EXPECT_EQ(drafted(corpus, {1}, 0), "");
  corpus.reset();
  EXPECT_EQ(drafted(corpus, {1, 2, 3}), "");
  EXPECT_EQ(corpus.n_nodes(), 0u);
  NgramProbe::check(corpus);
  fill(corpus, {kB});
  EXPECT_EQ(drafted(corpus, {1, 2, 3}, 2), "^>44 44>55");
}

TEST(NgramCorpusTest, FrequencyOrRecencyDecides) {
  NgramCorpus often({8, 1, 1, NgramMatch::prob, 1000}), late({8, 1, 1, NgramMatch::bfs, 1000});
  fill(often, {{7, 8, 10}});
  for (int i = 0; i < 10; ++i) fill(often, {{7, 8, 20}});
  fill(often, {{7, 8, 10}});
  EXPECT_EQ(drafted(often, {7, 8}, 1), "^>20");
  fill(late, {{7, 8, 20}, {7, 8, 20}, {7, 8, 10}});
  EXPECT_EQ(drafted(late, {7, 8}, 1), "^>10");
}

TEST(NgramCorpusTest, ForgetsTheLeastRecentlyUsed) {
  NgramCorpus small({6, 1, 8, NgramMatch::bfs, 150}), large({6, 1, 8, NgramMatch::bfs, 500});
  for (NgramCorpus* corpus : {&small, &large}) {
    fill(*corpus, {range(1000, 30)});
    for (int i = 0; i < 5; ++i) fill(*corpus, {range(2000 + 100 * i, 30)});
    NgramProbe::check(*corpus);
    EXPECT_EQ(drafted(*corpus, {1000, 1001, 1002}), "");
    EXPECT_NE(drafted(*corpus, {2400 + 26, 2400 + 27, 2400 + 28}), "") << "the newest is there";
  }
  EXPECT_NE(drafted(large, {2300 + 10, 2300 + 11, 2300 + 12}), "") << "a larger one reaches further back";
  NgramCorpus tight({12, 1, 8, NgramMatch::bfs, 200});
  fill(tight, {range(0, 100)});
  NgramProbe::check(tight);
}

TEST(NgramCorpusTest, TheSmallestCapacityHoldsOneSequence) {
  NgramCorpus corpus({4, 1, 4, NgramMatch::bfs, 5});
  fill(corpus, {{1, 2, 3, 4}});
  EXPECT_LE(corpus.n_nodes(), 4u);
  fill(corpus, {{1, 2, 3, 4, 5, 6, 7, 8, 9}});
  NgramProbe::check(corpus);
  EXPECT_THROW(NgramCorpus({4, 1, 4, NgramMatch::bfs, 4}), Failure);
}

TEST(NgramCorpusTest, RefusesSettingsThatAreNone) {
  const auto message = [](const NgramSettings& settings) -> std::string {
    try {
      NgramCorpus corpus(settings);
    } catch (const Failure& failure) {
      return failure.message;
    }
    return "";
  };
  EXPECT_NE(message({1, 1, 8, NgramMatch::bfs, 100}).find("max depth 1"), std::string::npos);
  EXPECT_NE(message({4, 0, 8, NgramMatch::bfs, 100}).find("min breadth is 0"), std::string::npos);
  EXPECT_NE(message({4, 3, 2, NgramMatch::bfs, 100}).find("min breadth 3 is above max breadth 2"), std::string::npos);
  EXPECT_NE(message({4, 1, 2, static_cast<NgramMatch>(7), 100}).find("match type"), std::string::npos)
      << "at once, not at the first match";
  EXPECT_NE(message({18, 1, 2, NgramMatch::bfs, 18}).find("cannot hold one sequence"), std::string::npos);
  EXPECT_NE(message({18, 1, 2, NgramMatch::bfs, UINT64_MAX}).find("capacity"), std::string::npos);
  EXPECT_EQ(message({18, 1, 2, NgramMatch::bfs, 19}), "");
}

TEST(NgramCorpusTest, ContextsLongerThanTheTrieMatchByTheirEnd) {
  NgramCorpus corpus({5, 1, 8, NgramMatch::bfs, 1000});
  fill(corpus, {range(1, 50)});
  EXPECT_EQ(drafted(corpus, range(1, 30), 1), "^>31");
  DraftNodes out;
  ASSERT_TRUE(corpus.match(range(1, 30), 8, {}, out));
  EXPECT_EQ(out.match_length, 4u) << "a node at the full depth has nothing after it";
}

TEST(NgramCorpusTest, QueriesLeaveOutLongMatches) {
  NgramCorpus corpus({6, 1, 8, NgramMatch::bfs, 1000});
  fill(corpus, {{1, 2, 3, 50}, {9, 3, 60}, {9, 2, 3, 70}});
  EXPECT_EQ(edges(match(corpus, {1, 2, 3}, 1)), "^>50");
  EXPECT_EQ(edges(match(corpus, {1, 2, 3}, 1, {2, 0})), "^>70");
  EXPECT_EQ(edges(match(corpus, {1, 2, 3}, 1, {UINT32_MAX, 1})), "^>70");
  EXPECT_EQ(edges(match(corpus, {9, 3}, 1, {1, 0})), "^>70");
  EXPECT_EQ(edges(match(corpus, {1, 2, 3}, 8, {UINT32_MAX, 3})), "");
}

// Inserting the last window again after each step, as is often done, counts an old n-gram up to max_depth times.
TEST(NgramCounts, TokenByTokenEqualsAtOnce) {
  std::mt19937 random(5);
  for (const NgramMatch mode : {NgramMatch::bfs, NgramMatch::prob}) {
    const Tokens text = random_text(random, 400, 7);
    NgramCorpus whole({6, 1, 4, mode, 100000}), single({6, 1, 4, mode, 100000}), pieces({6, 1, 4, mode, 100000}),
        swapped({6, 1, 4, mode, 100000});
    whole.insert(text);
    const std::span<const int32_t> all(text);
    for (size_t i = 0; i < text.size(); ++i) single.extend(all.first(i), all.subspan(i, 1));
    for (size_t i = 0; i < text.size();) {
      const size_t n = std::min<size_t>(1 + random() % 9, text.size() - i);
      pieces.extend(all.first(i), all.subspan(i, n));
      i += n;
    }
    swapped.extend(all.first(200), all.subspan(200));  // a worker may be late
    swapped.insert(all.first(200));
    std::map<Tokens, uint32_t> counted;
    for (size_t i = 0; i < text.size(); ++i)
      for (size_t n = 1; n <= 6 && i + n <= text.size(); ++n)
        ++counted[Tokens(text.begin() + static_cast<std::ptrdiff_t>(i),
                         text.begin() + static_cast<std::ptrdiff_t>(i + n))];
    EXPECT_EQ(NgramProbe::counts(whole), counted);
    EXPECT_EQ(NgramProbe::counts(single), counted);
    EXPECT_EQ(NgramProbe::counts(pieces), counted);
    EXPECT_EQ(NgramProbe::counts(swapped), counted);
    for (size_t i = 1; i < text.size(); ++i) {
      const Tokens context(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(i));
      ASSERT_EQ(match(single, context, 9), match(whole, context, 9)) << "the order of continuations, too";
      ASSERT_EQ(match(pieces, context, 9), match(whole, context, 9));
    }
    NgramProbe::check(single);
    EXPECT_EQ(single.frequency(all.first(3)), counted.at({text[0], text[1], text[2]}));
  }
}

class NgramRandom : public ::testing::TestWithParam<NgramMatch> {};
INSTANTIATE_TEST_SUITE_P(Both, NgramRandom, ::testing::Values(NgramMatch::bfs, NgramMatch::prob),
                         [](const auto& info) { return info.param == NgramMatch::bfs ? "bfs" : "prob"; });

TEST_P(NgramRandom, EqualsThePlainModel) {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    NgramSettings settings;
    settings.max_depth = 2 + random() % 7;
    settings.min_breadth = 1 + random() % 3;
    settings.max_breadth = settings.min_breadth + random() % 5;
    settings.match = GetParam();
    settings.capacity = settings.max_depth + 1 + random() % (round % 3 == 0 ? 2000 : 60);
    NgramCorpus corpus(settings);
    PlainCorpus plain(settings);
    const auto vocabulary = static_cast<int32_t>(3 + random() % 12);
    for (int step = 0; step < 25; ++step) {
      const Tokens text = random_text(random, 1 + random() % 30, vocabulary);
      corpus.insert(text);
      plain.insert(text);
      ASSERT_NO_FATAL_FAILURE(NgramProbe::check(corpus));
      ASSERT_EQ(NgramProbe::counts(corpus), plain.counts());
      const Tokens context = random_text(random, random() % 12, vocabulary);
      const uint32_t budget = random() % 16;
      ASSERT_EQ(match(corpus, context, budget), plain.match(context, budget)) << "round " << round << " step " << step;
    }
  }
}

TEST_P(NgramRandom, DraftsAreSeenContinuationsAndPrefixesOfWiderDrafts) {
  std::mt19937 random(3);
  NgramCorpus corpus({6, 1, 4, GetParam(), 5000});
  std::set<Tokens> seen;
  for (int i = 0; i < 40; ++i) {
    const Tokens text = random_text(random, 40, 9);
    corpus.insert(text);
    for (size_t from = 0; from < text.size(); ++from)
      for (size_t n = 2; n <= 6 && from + n <= text.size(); ++n)
        seen.insert(Tokens(text.begin() + static_cast<std::ptrdiff_t>(from),
                           text.begin() + static_cast<std::ptrdiff_t>(from + n)));
    const Tokens context = random_text(random, 8, 9);
    const auto wide = match(corpus, context, 20);
    for (const Tokens& path : wide) {
      Tokens gram{context.back()};
      gram.insert(gram.end(), path.begin(), path.end());
      EXPECT_TRUE(seen.count(gram)) << "an invented n-gram";
    }
    for (uint32_t budget = 0; budget < 20; ++budget) {
      const auto narrow = match(corpus, context, budget);
      ASSERT_EQ(narrow, std::vector<Tokens>(wide.begin(), wide.begin() + static_cast<std::ptrdiff_t>(
                                                                             std::min<size_t>(budget, wide.size()))));
    }
  }
}

TEST_P(NgramRandom, TheSameCallsGiveTheSameDrafts) {
  NgramCorpus a({6, 1, 4, GetParam(), 300}), b({6, 1, 4, GetParam(), 300});
  std::mt19937 random(8), again(8);
  for (int i = 0; i < 50; ++i) {
    a.insert(random_text(random, 20, 9));
    b.insert(random_text(again, 20, 9));
    const Tokens context = random_text(random, 6, 9);
    ASSERT_EQ(match(a, context, 12), match(b, random_text(again, 6, 9), 12));
  }
}

TEST(NgramCorpusTest, AnyTokenValueIsAToken) {
  NgramCorpus corpus({4, 1, 4, NgramMatch::bfs, 1000});
  fill(corpus, {{INT32_MIN, -1, 0, INT32_MAX, 7}});
  EXPECT_EQ(drafted(corpus, {INT32_MIN, -1}), "^>0 0>2147483647 2147483647>7");
}

TEST(NgramCorpusTest, MemoryGrowsWithTheNodes) {
  NgramCorpus corpus({});
  EXPECT_LT(corpus.bytes(), 1u << 20) << "an empty corpus of ten million nodes takes next to nothing";
  std::mt19937 random(1);
  corpus.insert(random_text(random, 20000, 5000));
  const double per_node = static_cast<double>(corpus.bytes()) / static_cast<double>(corpus.n_nodes());
  EXPECT_GT(corpus.n_nodes(), 100000u);
  EXPECT_LT(per_node, 32 + 24);
}
