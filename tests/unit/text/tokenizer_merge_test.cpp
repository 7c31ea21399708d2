// The fast merge against the definition of BPE, written as plainly as possible.
#include <map>
#include <set>

#include "tokenizer_samples.h"

namespace turbo::text {
namespace {

std::vector<std::string> naive_bpe(std::vector<std::string> symbols, const std::vector<std::string>& merges) {
  std::map<std::pair<std::string, std::string>, size_t> ranks;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const size_t space = merges[rank].find(' ');
    ranks.emplace(std::pair(merges[rank].substr(0, space), merges[rank].substr(space + 1)), rank);
  }
  for (;;) {
    size_t best_rank = merges.size(), best_at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ranks.find({symbols[i], symbols[i + 1]});
      if (found == ranks.end() || found->second >= best_rank) continue;
      best_rank = found->second;
      best_at = i;
    }
    if (best_rank == merges.size()) return symbols;
    symbols[best_at] += symbols[best_at + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

// Random merges over the letters a, b, c, each of pieces that exist by then.
std::vector<std::string> random_merges(std::mt19937& random, size_t n) {
  std::vector<std::string> pieces = {"a", "b", "c"};
  std::set<std::string> known(pieces.begin(), pieces.end());
  std::vector<std::string> merges;
  for (size_t tries = 0; merges.size() < n && tries < n * 50; ++tries) {
    const std::string left = pieces[random() % pieces.size()], right = pieces[random() % pieces.size()];
    if (left.size() + right.size() > 8 || !known.insert(left + right).second) continue;
    pieces.push_back(left + right);
    merges.push_back(left + " " + right);
  }
  return merges;
}

void compare(const Tokenizer& tokenizer, const std::vector<std::string>& merges, const std::string& word) {
  std::vector<std::string> letters;
  for (const char c : word) letters.emplace_back(1, c);
  std::vector<std::string> got;
  for (const int32_t id : tokenizer.encode(word)) got.emplace_back(tokenizer.token_bytes(id));
  ASSERT_EQ(got, naive_bpe(letters, merges)) << word;
}

TEST(TokenizerMerge, EqualsTheDefinitionOnRandomWords) {
  std::mt19937 random(42);
  for (int round = 0; round < 60; ++round) {
    auto merges = random_merges(random, 5 + random() % 60);
    // A random order gives merges that no earlier one can reach and ranks that fall as pieces grow.
    if (round % 2 == 1) std::shuffle(merges.begin(), merges.end(), random);
    const auto tokenizer = must_create(byte_vocabulary(merges));
    ASSERT_TRUE(tokenizer);
    for (int i = 0; i < 60; ++i) {
      std::string word;
      const size_t length = 1 + random() % (i % 5 == 0 ? 150 : 40);  // both sides of the switch to the heap
      while (word.size() < length) word += static_cast<char>('a' + random() % 3);
      compare(*tokenizer, merges, word);
      compare(*tokenizer, merges, word);  // once more with what was learnt about whole words
    }
  }
}

TEST(TokenizerMerge, TheSamePieceFromTwoMerges) {
  // "abc" comes from both; only the pair that the earlier merges leave counts.
  auto data = byte_vocabulary({"a b", "b c", "ab c"});
  data.merges.push_back("a bc");
  const auto tokenizer = must_create(std::move(data));
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->encode("abc").size(), 1u);
}

TEST(TokenizerMerge, IgnoreMergesTakesWholeWords) {
  auto data = byte_vocabulary({"a b"});
  const int32_t whole = add_token(data, "abc", TokenType::normal);
  EXPECT_EQ(must_create(data)->encode("abc"), (std::vector<int32_t>{256, 'c'}));
  data.ignore_merges = true;
  EXPECT_EQ(must_create(data)->encode("abc"), std::vector<int32_t>{whole});
  data.ignore_merges = false;
  data.pre = "llama-bpe";
  EXPECT_EQ(must_create(data)->encode("abc"), std::vector<int32_t>{whole}) << "llama-3 implies it";
}

}  // namespace
}  // namespace turbo::text
