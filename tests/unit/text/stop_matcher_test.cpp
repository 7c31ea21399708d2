// Stop strings over streams, against a search in the whole text.
#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>

namespace turbo::text {
namespace {

struct Expected {
  std::string text;
  std::optional<std::string> stop;
};

// The stop that is complete first; of several that end together, the longest.
Expected search(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    const std::string* best = nullptr;
    for (const std::string& stop : stops)
      if (!stop.empty() && stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0 &&
          (best == nullptr || stop.size() > best->size()))
        best = &stop;
    if (best != nullptr) return {text.substr(0, end - best->size()), *best};
  }
  return {text, std::nullopt};
}

Expected stream(const std::vector<std::string>& pushes, const std::vector<std::string>& stops) {
  StopMatcher matcher(stops);
  Expected got;
  for (const std::string& text : pushes) {
    const StopMatcher::Out out = matcher.push(text);
    got.text += out.text;
    if (out.stopped) {
      got.stop = out.stop;
      EXPECT_EQ(matcher.push("more").text, "");
      EXPECT_TRUE(matcher.push("more").stopped);
      EXPECT_EQ(matcher.finish(), "");
      return got;
    }
  }
  got.text += matcher.finish();
  return got;
}

void check(const std::vector<std::string>& pushes, const std::string& text, const std::vector<std::string>& stops) {
  const Expected got = stream(pushes, stops), expected = search(text, stops);
  ASSERT_EQ(got.text, expected.text) << ::testing::PrintToString(pushes) << ::testing::PrintToString(stops);
  ASSERT_EQ(got.stop, expected.stop) << ::testing::PrintToString(pushes) << ::testing::PrintToString(stops);
}

void check_all_splits(const std::string& text, const std::vector<std::string>& stops) {
  check({text}, text, stops);
  for (size_t a = 0; a <= text.size(); ++a)
    for (size_t b = a; b <= text.size(); ++b)
      check({text.substr(0, a), text.substr(a, b - a), text.substr(b)}, text, stops);
  std::vector<std::string> bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  check(bytes, text, stops);
}

TEST(StopMatcher, EqualsASearchInTheWholeTextAtEverySplit) {
  check_all_splits("hello\nUser: bye", {"\nUser:"});
  check_all_splits("aaab", {"aab"});
  check_all_splits("abcabcabd", {"abcabd", "cabx"});
  check_all_splits("xabcdy", {"abcde", "bc", "c"});
  check_all_splits("xabcdy", {"abcd", "bcd", "d"});
  check_all_splits("über 🙂🙃 end", {"🙃"});
  check_all_splits("über 🙂🙃 end", {"🙃 x", "\x99\x82"});
  check_all_splits("no stop here, sto", {"stop!"});
  check_all_splits("", {"x"});
  check_all_splits("text", {});
  check_all_splits("text", {"", ""});
}

TEST(StopMatcher, EqualsASearchOnRandomText) {
  std::mt19937 random(9);
  const auto word = [&random](size_t longest) {
    std::string text;
    for (size_t n = random() % (longest + 1); n > 0; --n) text += static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> stops, pushes;
    std::string text;
    for (size_t n = random() % 4; n > 0; --n) stops.push_back(word(8));
    for (size_t n = random() % 8; n > 0; --n) text += pushes.emplace_back(word(5));
    check(pushes, text, stops);
    if (HasFatalFailure()) return;
  }
}

TEST(StopMatcher, HoldsBackOnlyWhatCouldBeginAStop) {
  StopMatcher matcher({"</s>", "<|end|>"});
  EXPECT_EQ(matcher.push("one < two").text, "one < two");
  EXPECT_EQ(matcher.push("three<").text, "three");
  EXPECT_EQ(matcher.push("|").text, "");
  EXPECT_EQ(matcher.push("en").text, "");
  EXPECT_EQ(matcher.push("<").text, "<|en") << "the new < may begin one, what was before cannot any more";
  const auto out = matcher.push("/s>rest");
  EXPECT_TRUE(out.stopped);
  EXPECT_EQ(out.text, "");
  EXPECT_EQ(out.stop, "</s>");
}

TEST(StopMatcher, FinishGivesBackWhatWasHeld) {
  StopMatcher matcher({"stop"});
  EXPECT_EQ(matcher.push("a sto").text, "a ");
  EXPECT_EQ(matcher.finish(), "sto");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, LongRepetitiveStopsStayLinear) {
  const std::string stop = std::string(20'000, 'a') + "b";
  StopMatcher matcher({stop});
  size_t n_out = 0;
  for (int i = 0; i < 100; ++i) n_out += matcher.push(std::string(20'000, 'a')).text.size();
  EXPECT_EQ(n_out, 100u * 20'000 - 20'000);
  EXPECT_TRUE(matcher.push("b").stopped);
}

}  // namespace
}  // namespace turbo::text
