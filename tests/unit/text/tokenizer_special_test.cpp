// Special tokens in text: what is matched, where, and when not.
#include <algorithm>

#include "text/multi_match.h"
#include "tokenizer_samples.h"

namespace turbo::text {
namespace {

using Ids = std::vector<int32_t>;

TEST(TokenizerSpecial, LongestOfThoseThatStartFirst) {
  auto data = byte_vocabulary({});
  const int32_t shorter = add_token(data, "<a>", TokenType::control);
  const int32_t longer = add_token(data, "<a>b", TokenType::user_defined);
  const int32_t later = add_token(data, ">bc", TokenType::control);
  const auto tokenizer = must_create(std::move(data));
  EXPECT_EQ(tokenizer->encode("<a>"), Ids{shorter});
  EXPECT_EQ(tokenizer->encode("<a>bc"), (Ids{longer, 'c'}));
  EXPECT_EQ(tokenizer->encode("<a<a>x"), (Ids{'<', 'a', shorter, 'x'}));
  EXPECT_EQ(tokenizer->encode("a>bc"), (Ids{'a', later}));
}

TEST(TokenizerSpecial, AreOrdinaryTextWhenNotParsed) {
  const auto tokenizer = bundled_tokenizer();
  const std::string text = "<|im_start|>user\n<think>hi</think><|im_end|>";
  EncodeOptions plain;
  plain.parse_special = false;
  const Ids ids = tokenizer->encode(text, plain);
  for (const int32_t id : ids) EXPECT_LT(id, 16374) << tokenizer->token_bytes(id);
  EXPECT_EQ(tokenizer->decode(ids), text);
  EXPECT_EQ(tokenizer->encode(text).front(), 16375);
}

TEST(TokenizerSpecial, TheTextBetweenThemIsCutOnItsOwn) {
  const auto tokenizer = bundled_tokenizer();
  Ids expected = tokenizer->encode("a  ");
  expected.push_back(16376);
  const Ids after = tokenizer->encode("  b");
  expected.insert(expected.end(), after.begin(), after.end());
  EXPECT_EQ(tokenizer->encode("a  <|im_end|>  b"), expected);
}

TEST(TokenizerSpecial, BeginAndEndTokensWhereTheModelWantsThem) {
  auto data = byte_vocabulary({});
  data.bos = add_token(data, "<s>", TokenType::control);
  data.eos = add_token(data, "</s>", TokenType::control);
  data.eot = add_token(data, "<turn>", TokenType::control);
  const int32_t other = add_token(data, "<stop>", TokenType::control);
  data.extra_eog = {other};
  EXPECT_EQ(must_create(data)->encode("x"), Ids{'x'});
  data.add_bos = data.add_eos = true;
  const auto tokenizer = must_create(data);
  EXPECT_EQ(tokenizer->encode("x"), (Ids{*data.bos, 'x', *data.eos}));
  EXPECT_EQ(tokenizer->encode("", {}), (Ids{*data.bos, *data.eos}));
  EncodeOptions bare;
  bare.add_special = false;
  EXPECT_EQ(tokenizer->encode("x", bare), Ids{'x'});
  const auto ends = tokenizer->end_ids();
  EXPECT_EQ(Ids(ends.begin(), ends.end()), (Ids{*data.eos, *data.eot, other}));
  EXPECT_FALSE(tokenizer->is_end(*data.bos));
  EXPECT_FALSE(tokenizer->is_end(-1));
}

TEST(TokenizerSpecial, MissingBytesBecomeTheUnknownTokenOrNothing) {
  TokenizerData data;
  data.pre = "qwen2";
  data.tokens = {"a", "b", "ab"};
  data.types = {1, 1, 1};
  data.merges = {"a b"};
  auto tokenizer = must_create(data);
  EXPECT_EQ(tokenizer->n_missing_bytes(), 254);
  EXPECT_EQ(tokenizer->encode("a!b\xff z"), (Ids{0, 1}));
  const int32_t unknown = add_token(data, "<unk>", TokenType::unknown);
  tokenizer = must_create(data);
  EXPECT_EQ(tokenizer->encode("a!ab"), (Ids{0, unknown, 2})) << "letters, symbols and letters are words of their own";
  EXPECT_TRUE(tokenizer->is_special(unknown));
}

TEST(TokenizerSpecial, FingerprintTellsVocabulariesApart) {
  const auto base = byte_vocabulary({"a b", "b c"});
  const uint64_t print = must_create(base)->fingerprint();
  EXPECT_EQ(must_create(base)->fingerprint(), print);
  auto other = byte_vocabulary({"b c", "a b"});
  EXPECT_NE(must_create(other)->fingerprint(), print);
  other = base;
  other.pre = "gpt-2";
  EXPECT_NE(must_create(other)->fingerprint(), print);
  other = base;
  add_token(other, "<x>", TokenType::control);
  EXPECT_NE(must_create(other)->fingerprint(), print);
  other = base;
  other.pre = "deepseek-r1-qwen";
  EXPECT_EQ(must_create(other)->fingerprint(), print) << "an alias of the same rules";
}

TEST(TokenizerSpecial, MatcherEqualsAPlainSearch) {
  std::mt19937 random(17);
  const auto word = [&random](size_t longest) {
    std::string text;
    for (size_t n = random() % (longest + 1); n > 0; --n) text += static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> patterns;
    for (size_t n = 1 + random() % 5; n > 0; --n) patterns.push_back(word(6));
    const std::string text = word(14);
    const MultiMatch matcher(std::vector<std::string_view>(patterns.begin(), patterns.end()),
                             MultiMatch::Kind::first_start);
    size_t begin = std::string::npos, length = 0;
    for (const std::string& pattern : patterns) {
      const size_t at = pattern.empty() ? std::string::npos : text.find(pattern);
      if (at == std::string::npos || at > begin || (at == begin && pattern.size() <= length)) continue;
      begin = at;
      length = pattern.size();
    }
    const MultiMatch::Found found = matcher.find(text, 0);
    ASSERT_EQ(found.pattern >= 0, begin != std::string::npos) << text << ::testing::PrintToString(patterns);
    if (found.pattern < 0) continue;
    ASSERT_EQ(found.begin, begin) << text << ::testing::PrintToString(patterns);
    ASSERT_EQ(matcher.pattern_length(found.pattern), length) << text << ::testing::PrintToString(patterns);
  }
}

}  // namespace
}  // namespace turbo::text
