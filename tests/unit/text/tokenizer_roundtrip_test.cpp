// Exactness and bounded time on large and hostile texts.
#include <algorithm>
#include <chrono>
#include <thread>

#include "tokenizer_samples.h"

namespace turbo::text {
namespace {

using std::chrono::duration;
using std::chrono::steady_clock;

std::vector<int32_t> encode_within(const Tokenizer& tokenizer, const std::string& text, double limit_s) {
  const auto begin = steady_clock::now();
  std::vector<int32_t> ids = tokenizer.encode(text);
  const double seconds = duration<double>(steady_clock::now() - begin).count();
  EXPECT_LT(seconds, limit_s);
  ::testing::Test::RecordProperty("mb_per_s", std::to_string(static_cast<double>(text.size()) / 1e6 / seconds));
  return ids;
}

TEST(TokenizerRoundTrip, TenMegabytesOfMixedTextComeBackByteForByte) {
  const auto tokenizer = bundled_tokenizer();
  const std::string text = mixed_text(10'000'000 / slow_build_divisor, 1);
  const auto ids = encode_within(*tokenizer, text, 20.0);
  EXPECT_TRUE(tokenizer->decode(ids) == text);
  EncodeOptions plain;
  plain.parse_special = false;
  EXPECT_TRUE(tokenizer->decode(tokenizer->encode(text, plain)) == text);
}

TEST(TokenizerRoundTrip, EveryPairOfBytesComesBack) {
  const auto tokenizer = bundled_tokenizer();
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      const std::string text{static_cast<char>(a), static_cast<char>(b)};
      ASSERT_EQ(tokenizer->decode(tokenizer->encode(text)), text) << a << " " << b;
    }
  }
}

TEST(TokenizerRoundTrip, AMegabyteWithoutBreaksIsNotQuadratic) {
  const auto tokenizer = bundled_tokenizer();
  const size_t n = 1'000'000 / slow_build_divisor;
  const std::vector<std::string> units = {"a",      "ab",      " ",        "\n", " \n",   "\r\n",
                                          "\u0301", "e\u0301", "日",       "!",  "'",     "'s",
                                          "9",      "\xff",    "\xe2\x82", "<",  "<|im_", std::string(1, '\0'),
                                          "a ",     "\u00a0"};
  auto data = read_tokenizer_json(bundled_folder());
  ASSERT_TRUE(data);
  data->nfc = true;
  const auto normalising = must_create(std::move(*data));
  for (const std::string& unit : units) {
    std::string text;
    while (text.size() < n) text += unit;
    SCOPED_TRACE(unit);
    EXPECT_TRUE(tokenizer->decode(encode_within(*tokenizer, text, 10.0)) == text);
    if (static_cast<uint8_t>(unit[0]) >= 0x80) encode_within(*normalising, text, 10.0);
  }
}

TEST(TokenizerRoundTrip, MarksInDescendingOrderAreSortedInBoundedTime) {
  auto data = read_tokenizer_json(bundled_folder());
  ASSERT_TRUE(data);
  data->nfc = true;
  const auto tokenizer = must_create(std::move(*data));
  // U+0301 has combining class 230, U+0323 has 220: canonical order puts every U+0323 first.
  const size_t n = 300'000 / slow_build_divisor;
  std::string text, ordered;
  for (size_t i = 0; i < n; ++i) text += "\u0301\u0323";
  for (size_t i = 0; i < n; ++i) ordered += "\u0323";
  for (size_t i = 0; i < n; ++i) ordered += "\u0301";
  EXPECT_TRUE(tokenizer->decode(encode_within(*tokenizer, text, 10.0)) == ordered);
}

TEST(TokenizerRoundTrip, ThreadsAgree) {
  const auto tokenizer = must_create([] {
    auto data = read_tokenizer_json(bundled_folder());
    EXPECT_TRUE(data);
    return std::move(*data);
  }());
  const std::string text = mixed_text(200'000, 7);
  std::vector<std::vector<int32_t>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) threads.emplace_back([&] { result = tokenizer->encode(text); });
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
  EXPECT_EQ(tokenizer->encode(text), results[0]) << "what was learnt on the way changes nothing";
}

}  // namespace
}  // namespace turbo::text
