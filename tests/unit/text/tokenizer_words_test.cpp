// The hand-written pre-tokenizers against the published expressions, run by PCRE2.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "text/bpe/pre_tokenizer.h"
#include "tokenizer_samples.h"

namespace turbo::text {
namespace {

class Regex {
 public:
  explicit Regex(const char* pattern) {
    int code = 0;
    PCRE2_SIZE offset = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code,
                          &offset, nullptr);
    EXPECT_NE(code_, nullptr);
    match_ = pcre2_match_data_create_from_pattern(code_, nullptr);
  }
  ~Regex() {
    pcre2_match_data_free(match_);
    pcre2_code_free(code_);
  }
  std::vector<std::string> words(const std::string& text) const {
    std::vector<std::string> words;
    for (size_t at = 0; at < text.size();) {
      const int n = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, 0, match_, nullptr);
      if (n < 1) {
        ADD_FAILURE() << "no match at " << at;
        break;
      }
      const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match_);
      EXPECT_EQ(range[0], at) << "the expressions leave nothing out";
      words.push_back(text.substr(range[0], range[1] - range[0]));
      at = range[1];
    }
    return words;
  }

 private:
  pcre2_code* code_ = nullptr;
  pcre2_match_data* match_ = nullptr;
};

std::vector<std::string> scan(const std::string& pre, const std::string& text) {
  const auto rules = find_pre_tokenizer(pre);
  EXPECT_TRUE(rules) << rules.status().message();
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size(); at += words.back().size())
    words.push_back(text.substr(at, word_length(**rules, text, at)));
  return words;
}

constexpr const char* letters_or_symbols = R"(|[^\r\n\p{L}\p{N}]?\p{L}+|)";
constexpr const char* contractions = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))";
constexpr const char* rest = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

const std::vector<std::pair<std::string, std::string>>& published() {
  static const std::vector<std::pair<std::string, std::string>> list = {
      {"qwen2", std::string(contractions) + letters_or_symbols + R"(\p{N})" + rest},
      {"llama-bpe", std::string(contractions) + letters_or_symbols + R"(\p{N}{1,3})" + rest},
      {"qwen35",
       std::string(contractions) +
           R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
      {"gpt-2", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
  };
  return list;
}

TEST(TokenizerWords, EqualThePublishedExpressionsOnRandomText) {
  const std::vector<std::string> atoms = {
      " ", " ",      " ",      "\n",     "\r",  "\t",  "\v",     "\u00a0", "\u3000", "\u2028", "\u0085", "a", "b",
      "S", "'",      "'",      "'s",     "'Re", "'ve", "'LL",    "'D",     "'m",     "'T",     "ſ",      "é", "日",
      "न", "\u094d", "\u0301", "\u20e3", "1",   "2",   "٣",      "½",      "Ⅷ",      "𝟙",      "𐐀",      ".", "!",
      "(", "🙂",   "\u200d", "\u200b", "—",   "_",   "\ue000", "l",      "r",      "v",      "e"};
  std::mt19937 random(3);
  for (const auto& [pre, pattern] : published()) {
    const Regex regex(pattern.c_str());
    for (int round = 0; round < 20000; ++round) {
      std::string text;
      for (size_t n = 1 + random() % 12; n > 0; --n) text += atoms[random() % atoms.size()];
      ASSERT_EQ(scan(pre, text), regex.words(text)) << pre << ": " << ::testing::PrintToString(text);
    }
  }
}

TEST(TokenizerWords, InvalidBytesAreSymbols) {
  EXPECT_EQ(scan("qwen2",
                 "a\xff\xff"
                 "b"),
            (std::vector<std::string>{"a", "\xff\xff", "b"}));
  EXPECT_EQ(scan("qwen2", " \xe2\x82"), (std::vector<std::string>{" \xe2\x82"}));
  EXPECT_EQ(scan("qwen2", "\xed\xa0\x80"), (std::vector<std::string>{"\xed\xa0\x80"})) << "a surrogate is no letter";
}

TEST(TokenizerWords, SmollmSetsNumbersApart) {
  EXPECT_EQ(scan("smollm", "a 12  3 b"), (std::vector<std::string>{"a", " ", "1", "2", "  ", "3", " b"}));
  EXPECT_EQ(scan("smollm", "x=1;\n\n y"), (std::vector<std::string>{"x", "=", "1", ";", "\n\n", " y"}));
}

TEST(TokenizerWords, UnknownNamesListTheKnownOnes) {
  const auto rules = find_pre_tokenizer("qwen3");
  ASSERT_FALSE(rules);
  EXPECT_EQ(rules.status().code(), Code::unsupported);
  EXPECT_NE(rules.status().message().find("qwen3"), std::string::npos);
  for (const char* known : {"qwen2", "llama-bpe", "gpt-2", "smollm", "did you mean"})
    EXPECT_NE(rules.status().hint().find(known), std::string::npos) << known;
}

TEST(TokenizerWords, KnownExpressionsNameTheirRules) {
  for (const auto& [pre, pattern] : published())
    EXPECT_EQ(pre_name_of_regex(pattern), pre == "llama-bpe" ? "glm4" : pre)
        << "without ignore_merges llama-3's cuts are glm4's";
  EXPECT_EQ(pre_name_of_regex("(a+)+$"), "");
}

}  // namespace
}  // namespace turbo::text
