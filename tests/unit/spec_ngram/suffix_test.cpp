// The suffix automaton against a search by hand.
#include <turbo/draft/suffix.hpp>

#include "support.h"

using namespace turbo::draft;

namespace {

uint32_t longest_repeat(const Tokens& text) {
  for (size_t n = text.size() - 1; n > 0; --n)
    for (size_t from = 0; from + n < text.size(); ++from)
      if (std::equal(text.end() - static_cast<std::ptrdiff_t>(n), text.end(),
                     text.begin() + static_cast<std::ptrdiff_t>(from)))
        return static_cast<uint32_t>(n);
  return 0;
}

}  // namespace

TEST(SuffixAutomatonTest, FindsTheLongestRepeatOfEveryPrefix) {
  std::mt19937 random(2);
  for (const int32_t vocabulary : {1, 2, 3, 20}) {
    SuffixAutomaton automaton;
    const Tokens text = random_text(random, 160, vocabulary);
    Tokens seen;
    for (const int32_t token : text) {
      seen.push_back(token);
      automaton.push(token);
      const auto repeat = automaton.repeat();
      ASSERT_EQ(repeat.length, longest_repeat(seen));
      if (repeat.length == 0) continue;
      ASSERT_LT(repeat.next, seen.size());
      ASSERT_GE(repeat.next, repeat.length);
      ASSERT_TRUE(std::equal(seen.end() - repeat.length, seen.end(), seen.begin() + (repeat.next - repeat.length)))
          << "it did occur there";
    }
  }
}

TEST(SuffixAutomatonTest, ContinuesTheLatestOccurrence) {
  SuffixAutomaton automaton;
  for (const int32_t token : {1, 2, 3, 70, 1, 2, 3, 80, 9, 1, 2, 3}) automaton.push(token);
  DraftNodes draft;
  automaton.draft(3, draft);
  EXPECT_EQ(draft.tokens, (Tokens{80, 9, 1}));
  EXPECT_EQ(draft.parents, (Tokens{-1, 0, 1}));
  EXPECT_EQ(draft.match_length, 3u);
}

TEST(SuffixAutomatonTest, ARepeatThatRunsIntoTheEndGoesOn) {
  SuffixAutomaton automaton;
  for (int i = 0; i < 10; ++i) automaton.push(i % 3);
  DraftNodes draft;
  automaton.draft(7, draft);
  EXPECT_EQ(draft.tokens, (Tokens{1, 2, 0, 1, 2, 0, 1}));
}

TEST(SuffixAutomatonTest, NoRepeatNoDraft) {
  SuffixAutomaton automaton;
  DraftNodes draft;
  automaton.draft(7, draft);
  EXPECT_EQ(draft.size(), 0u);
  for (int i = 0; i < 10; ++i) automaton.push(i);
  automaton.draft(7, draft);
  EXPECT_EQ(draft.size(), 0u);
}

TEST(RepeatFinderTest, MemoryIsBoundedAndTheNewestHalfIsRemembered) {
  std::mt19937 random(4);
  RepeatFinder finder(1000);
  Tokens text;
  uint64_t most = 0;
  for (int i = 0; i < 20000; ++i) {
    // Every 400 tokens, 40 of those 300 back.
    const int32_t token =
        i > 1000 && i % 400 < 40 ? text[static_cast<size_t>(i - 300)] : static_cast<int32_t>(random());
    text.push_back(token);
    finder.push(token);
    most = std::max(most, finder.bytes());
    EXPECT_TRUE(i <= 1000 || i % 400 != 39 || finder.length() >= 40) << i;
  }
  EXPECT_LT(most, 1000u * 300);
}

TEST(RepeatFinderTest, PeriodicTextStaysCheapAtTheCap) {
  RepeatFinder finder(256);
  for (int i = 0; i < 5000; ++i) finder.push(i % 2);
  DraftNodes draft;
  finder.draft(4, draft);
  EXPECT_EQ(draft.tokens, (Tokens{0, 1, 0, 1}));
}
