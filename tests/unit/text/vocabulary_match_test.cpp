#include "text/vocabulary_match.h"

#include <gtest/gtest.h>

namespace turbo::text {
namespace {

// The byte tokens, a few control tokens, then `padding` unused rows.
TokenizerData base(int padding = 0) {
  TokenizerData data;
  data.pre = "qwen2";
  for (char c = 'a'; c <= 'z'; ++c) data.tokens.emplace_back(1, c);
  data.types.assign(26, static_cast<int32_t>(TokenType::normal));
  for (const char* text : {"<|begin|>", "<|end|>"}) {
    data.tokens.emplace_back(text);
    data.types.push_back(static_cast<int32_t>(TokenType::control));
  }
  for (int i = 0; i < padding; ++i) {
    data.tokens.push_back("[PAD" + std::to_string(i) + "]");
    data.types.push_back(static_cast<int32_t>(TokenType::unused));
  }
  data.bos = 26;
  data.eos = 27;
  return data;
}

std::shared_ptr<const Tokenizer> make(TokenizerData data) {
  auto made = Tokenizer::create(std::move(data));
  EXPECT_TRUE(made) << made.status().message();
  return made ? *made : nullptr;
}

TEST(SharedVocabulary, EqualOnesShareAllAndPaddingIsNoDifference) {
  const auto target = make(base());
  EXPECT_EQ(*shared_vocabulary(*target, *make(base())), 28u);
  for (const int padding : {1, 128, 129, 400}) {
    EXPECT_EQ(*shared_vocabulary(*target, *make(base(padding))), 28u);
    EXPECT_EQ(*shared_vocabulary(*make(base(padding)), *target), 28u);
  }
  // A token where the other has padding.
  TokenizerData longer = base();
  longer.tokens.emplace_back("ab");
  longer.types.push_back(static_cast<int32_t>(TokenType::normal));
  EXPECT_EQ(*shared_vocabulary(*make(base(3)), *make(longer)), 29u);
}

TEST(SharedVocabulary, TheFirstDifferenceIsNamedWithBothTexts) {
  TokenizerData other = base();
  std::swap(other.tokens[4], other.tokens[5]);
  const auto differing = shared_vocabulary(*make(base()), *make(other));
  ASSERT_FALSE(differing);
  EXPECT_EQ(differing.status().code(), Code::invalid_argument);
  EXPECT_EQ(differing.status().message(), "the tokenizers differ: token 4 is 'e' in the target and 'f' in the draft model");
}

TEST(SharedVocabulary, KindAndSpecialIdsMustAgree) {
  TokenizerData other = base();
  other.types[26] = static_cast<int32_t>(TokenType::user_defined);
  EXPECT_EQ(shared_vocabulary(*make(base()), *make(other)).status().message(),
            "the tokenizers differ: token 26, '<|begin|>', is a control token only in the target");
  other = base();
  other.eos = 26;
  EXPECT_EQ(shared_vocabulary(*make(base()), *make(other)).status().message(),
            "the tokenizers differ: the end token is 27 in the target and 26 in the draft model");
  other = base();
  other.bos.reset();
  EXPECT_TRUE(shared_vocabulary(*make(base()), *make(other))) << "what one does not say is no difference";
}

TEST(SharedVocabulary, HostileTextsAreShownShortAndPrintable) {
  TokenizerData other = base();
  other.tokens[27] = "<|" + std::string(1000, 'x') + "\n'|>";
  const auto differing = shared_vocabulary(*make(base()), *make(other));
  ASSERT_FALSE(differing);
  EXPECT_LT(differing.status().message().size(), 250u);
  EXPECT_EQ(differing.status().message().find('\n'), std::string::npos);
}

}  // namespace
}  // namespace turbo::text
