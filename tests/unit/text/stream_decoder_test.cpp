// Streaming equals decoding the whole, whatever the tokens are.
#include "text/stream_decoder.h"

#include "text/utf8.h"
#include "tokenizer_samples.h"

namespace turbo::text {
namespace {

bool is_valid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    if (!step.valid) return false;
    at += step.length;
  }
  return true;
}

std::string stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip_special = true) {
  StreamDecoder decoder(tokenizer, skip_special);
  std::string joined;
  for (const int32_t id : ids) {
    const std::string text = decoder.push(id);
    EXPECT_TRUE(is_valid_utf8(text));
    joined += text;
  }
  return joined + decoder.finish();
}

TEST(StreamDecoder, JoinedPushesEqualTheSanitisedWhole) {
  const auto tokenizer = bundled_tokenizer();
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int32_t> ids;
    for (size_t n = random() % 30; n > 0; --n) {
      // Mostly byte tokens, so that characters are cut and broken in every way.
      const bool any = random() % 4 == 0;
      ids.push_back(static_cast<int32_t>(any ? random() % 16390 : random() % 256));
    }
    ASSERT_EQ(stream(*tokenizer, ids), sanitize_utf8(tokenizer->decode(ids, false)));
    ASSERT_EQ(stream(*tokenizer, ids, false), sanitize_utf8(tokenizer->decode(ids, true)));
  }
}

TEST(StreamDecoder, TextComesBackThroughTokens) {
  const auto tokenizer = bundled_tokenizer();
  const std::string text = mixed_text(200'000, 11);
  EXPECT_EQ(stream(*tokenizer, tokenizer->encode(text), false), sanitize_utf8(text));
}

TEST(StreamDecoder, HoldsBackUnfinishedCharacters) {
  const auto tokenizer = must_create(byte_vocabulary({}));
  StreamDecoder decoder(*tokenizer);
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.push(0x9F), "");
  EXPECT_EQ(decoder.push(0x99), "");
  EXPECT_EQ(decoder.push(0x82), "🙂");
  EXPECT_EQ(decoder.push(0xE2), "");
  EXPECT_EQ(decoder.push(0x82), "");
  EXPECT_EQ(decoder.push('x'), "\uFFFDx") << "one for the whole cut sequence";
  EXPECT_EQ(decoder.push(0xC3), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
  EXPECT_EQ(decoder.finish(), "");
  EXPECT_EQ(decoder.push(0xA9), "\uFFFD") << "a new text starts clean";
}

TEST(StreamDecoder, LeavesOutControlTokensUnlessAsked) {
  auto data = byte_vocabulary({});
  const int32_t control = add_token(data, "<|x|>", TokenType::control);
  const int32_t user = add_token(data, "<think>", TokenType::user_defined);
  const int32_t unused = add_token(data, "[PAD258]", TokenType::unused);
  const auto tokenizer = must_create(std::move(data));
  const std::vector<int32_t> ids = {'a', control, user, unused, -1, 1 << 30, 'b'};
  EXPECT_EQ(stream(*tokenizer, ids), "a<think>b");
  EXPECT_EQ(stream(*tokenizer, ids, false), "a<|x|><think>b");
}

TEST(StreamUtf8, ReplacesMaximalSubparts) {
  // The example of the Unicode standard, table 3-8 and its neighbours.
  EXPECT_EQ(sanitize_utf8("a\xF1\x80\x80\xE1\x80\xC2"
                          "b\x80"
                          "c\x80\xBF"
                          "d"),
            "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
  EXPECT_EQ(sanitize_utf8("\xC0\xAF"), "\uFFFD\uFFFD");
  EXPECT_EQ(sanitize_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD") << "surrogate";
  EXPECT_EQ(sanitize_utf8("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD") << "past U+10FFFF";
  EXPECT_EQ(sanitize_utf8("\xF4\x8F\xBF\xBF"), "\U0010FFFF");
  EXPECT_EQ(sanitize_utf8("é🙂"), "é🙂");
}

TEST(StreamUtf8, AppendIsTheInverseOfDecode) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string bytes;
    append_utf8(bytes, c);
    const Utf8Step step = decode_utf8(bytes, 0);
    ASSERT_TRUE(step.valid && step.code_point == c && step.length == bytes.size()) << static_cast<uint32_t>(c);
  }
}

}  // namespace
}  // namespace turbo::text
