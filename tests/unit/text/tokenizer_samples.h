// Vocabularies and texts shared by the tokenizer tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "text/bpe/byte_alphabet.h"
#include "text/tokenizer.h"

namespace turbo::text {

inline std::filesystem::path bundled_folder() {
  return std::filesystem::path(TURBO_TEST_DATA) / "golden" / "turbo-tokenizer";
}

/// The tokenizer of the bundled models.
inline std::shared_ptr<const Tokenizer> bundled_tokenizer() {
  static const std::shared_ptr<const Tokenizer> shared = [] {
    auto data = read_tokenizer_json(bundled_folder());
    EXPECT_TRUE(data) << data.status().message();
    auto tokenizer = Tokenizer::create(std::move(*data));
    EXPECT_TRUE(tokenizer) << tokenizer.status().message();
    return *tokenizer;
  }();
  return shared;
}

/// 256 byte tokens (id = byte), then one token per merge.
inline TokenizerData byte_vocabulary(const std::vector<std::string>& merges, std::string pre = "qwen2") {
  TokenizerData data;
  data.pre = std::move(pre);
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    data.tokens.push_back(spelling_of_bytes({&c, 1}));
  }
  for (const std::string& merge : merges) {
    std::string joined = merge;
    joined.erase(joined.find(' ', 1), 1);
    data.tokens.push_back(joined);
  }
  data.types.assign(data.tokens.size(), static_cast<int32_t>(TokenType::normal));
  data.merges = merges;
  return data;
}

inline int32_t add_token(TokenizerData& data, std::string text, TokenType type) {
  data.tokens.push_back(std::move(text));
  data.types.push_back(static_cast<int32_t>(type));
  return static_cast<int32_t>(data.tokens.size()) - 1;
}

inline std::shared_ptr<const Tokenizer> must_create(TokenizerData data) {
  auto tokenizer = Tokenizer::create(std::move(data));
  EXPECT_TRUE(tokenizer) << tokenizer.status().message();
  return tokenizer ? *tokenizer : nullptr;
}

/// Pieces of many kinds of text; joined at random they make mixed text.
inline const std::vector<std::string>& text_pieces() {
  static const std::vector<std::string> pieces = {"The quick brown fox jumps over the lazy dog. ",
                                                  "don't they'll I'M YOU'RE 'ſ ",
                                                  "for (int i = 0; i < n; ++i) {\r\n",
                                                  "    return x * 2;\n",
                                                  "\t\t}\n\n",
                                                  "1234567 3.14159 ",
                                                  "٣٤٥ ①②③ ½ Ⅷ ",
                                                  "日本語のテキスト、中文字符测试。",
                                                  "한국어 문장 ",
                                                  "Привет, мир! ",
                                                  "Καλημέρα κόσμε ",
                                                  "שלום עולם ",
                                                  "مرحبا بالعالم ",
                                                  "नमस्ते दुनिया क्षत्रिय ",
                                                  "สวัสดีชาวโลก",
                                                  "e\u0301e\u0301 ",
                                                  "A\u030angstro\u0308m ",
                                                  "👩\u200d👩\u200d👧\u200d👦🇩🇪🏳️\u200d🌈 ",
                                                  "\u00a0\u3000\u2028\u0085",
                                                  "   \n \r\n  ",
                                                  "!!!???...",
                                                  "----",
                                                  "{\"a\": [1, 2, {\"b\": null}]}",
                                                  "https://example.org/path?q=1&r=2#frag ",
                                                  "<|im_start|>user\nHi<|im_end|>\n",
                                                  "<think>\n\n</think>",
                                                  "<|im_",
                                                  std::string(1, '\0'),
                                                  "\x01\x7f",
                                                  "\xff\xfe",
                                                  "\xc3",
                                                  "\xe2\x82",
                                                  "\xf0\x9f\x98",
                                                  "\x80\xbf",
                                                  "\xed\xa0\x80",
                                                  "\xc0\xaf",
                                                  "\xf5\x90\x80\x80",
                                                  " ",
                                                  "\n",
                                                  "\r",
                                                  "'",
                                                  "a",
                                                  "é",
                                                  "\u0301",
                                                  "7"};
  return pieces;
}

inline std::string mixed_text(size_t n_bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text;
  text.reserve(n_bytes + 64);
  while (text.size() < n_bytes) text += text_pieces()[random() % text_pieces().size()];
  text.resize(n_bytes);
  return text;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t slow_build_divisor = 10;
#else
constexpr size_t slow_build_divisor = 1;
#endif

}  // namespace turbo::text
