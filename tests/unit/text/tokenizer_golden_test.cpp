// The bundled tokenizer against ids made by an independent implementation.
#include <fstream>
#include <nlohmann/json.hpp>

#include "tokenizer_samples.h"

namespace turbo::text {
namespace {

using nlohmann::json;

json golden() {
  std::ifstream file(std::filesystem::path(TURBO_TEST_DATA) / "golden" / "tokenizer.json");
  return json::parse(file);
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

TEST(TokenizerGolden, GivesTheExactIdsAndPieces) {
  const auto tokenizer = bundled_tokenizer();
  const json expected = golden();
  EXPECT_EQ(tokenizer->vocab_size(), expected["vocab"].get<int32_t>());
  ASSERT_EQ(expected["cases"].size(), 182u);
  for (const json& item : expected["cases"]) {
    const std::string text = from_hex(item["utf8_hex"]);
    SCOPED_TRACE(text);
    const auto ids = tokenizer->encode(text);
    EXPECT_EQ(ids, item["ids"].get<std::vector<int32_t>>());
    std::vector<std::string> pieces;
    for (const auto& hex : item["pieces_hex"]) pieces.push_back(from_hex(hex));
    std::vector<std::string> got;
    for (const int32_t id : ids) got.emplace_back(tokenizer->token_bytes(id));
    EXPECT_EQ(got, pieces);
    EXPECT_EQ(tokenizer->decode(ids), text);
  }
}

TEST(TokenizerGolden, NormalisesToNfcOnlyWhenTheVocabularySaysSo) {
  auto data = read_tokenizer_json(bundled_folder());
  ASSERT_TRUE(data);
  EXPECT_FALSE(data->nfc);
  data->nfc = true;
  const auto tokenizer = must_create(std::move(*data));
  int n_changed = 0;
  const json expected = golden();
  for (const json& item : expected["cases"]) {
    const bool changed = item.contains("ids_after_nfc");
    n_changed += changed;
    EXPECT_EQ(tokenizer->encode(from_hex(item["utf8_hex"])),
              item[changed ? "ids_after_nfc" : "ids"].get<std::vector<int32_t>>())
        << item["text"];
  }
  EXPECT_EQ(n_changed, 7);
}

TEST(TokenizerGolden, KnowsItsSpecialTokens) {
  const auto tokenizer = bundled_tokenizer();
  const auto end = tokenizer->find("<|im_end|>");
  ASSERT_EQ(end, 16376);
  EXPECT_TRUE(tokenizer->is_end(16376));
  EXPECT_TRUE(tokenizer->is_end(16374)) << "<|endoftext|>";
  EXPECT_FALSE(tokenizer->is_end(16375)) << "<|im_start|>";
  EXPECT_TRUE(tokenizer->is_special(16376));
  EXPECT_FALSE(tokenizer->is_special(*tokenizer->find("<think>"))) << "user-defined tokens are part of the text";
  EXPECT_EQ(tokenizer->token_bytes(16376), "<|im_end|>");
  EXPECT_EQ(tokenizer->find("Ġhello"), 8714);
  EXPECT_EQ(tokenizer->find("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer->n_missing_bytes(), 0);
}

}  // namespace
}  // namespace turbo::text
