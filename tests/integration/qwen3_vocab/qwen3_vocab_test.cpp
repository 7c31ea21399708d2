// Our ids over Qwen3's real vocabulary against those of another implementation.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "text/tokenizer.h"

namespace turbo::text {
namespace {

using nlohmann::json;

class Qwen3Vocab : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!std::filesystem::exists(std::filesystem::path(TURBO_VOCAB) / "tokenizer.json")) return;
    auto data = read_tokenizer_json(TURBO_VOCAB);
    ASSERT_TRUE(data) << data.status().message();
    auto tokenizer = Tokenizer::create(std::move(*data));
    ASSERT_TRUE(tokenizer) << tokenizer.status().message();
    tokenizer_ = *tokenizer;
  }
  void SetUp() override {
    if (tokenizer_) return;
    std::cout << "SKIPPED: no vocabulary at " << TURBO_VOCAB << "\n";
    GTEST_SKIP() << "run ctest -R qwen3_vocab.install with a network first";
  }
  static inline std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_F(Qwen3Vocab, GivesTheSameIds) {
  std::ifstream file(TURBO_GOLDEN);
  const json golden = json::parse(file);
  ASSERT_GT(golden["cases"].size(), 300u);
  for (const json& item : golden["cases"])
    EXPECT_EQ(tokenizer_->encode(item["text"].get<std::string>()), item["ids"].get<std::vector<int32_t>>())
        << item["text"];
}

TEST_F(Qwen3Vocab, HasThePublishedShape) {
  EXPECT_EQ(tokenizer_->vocab_size(), 151669);
  EXPECT_EQ(tokenizer_->pre(), "qwen2");
  EXPECT_EQ(tokenizer_->eos(), 151645);
  EXPECT_EQ(tokenizer_->pad(), 151643);
  EXPECT_FALSE(tokenizer_->add_bos());
  EXPECT_EQ(tokenizer_->find("<think>"), 151667);
  EXPECT_FALSE(tokenizer_->is_special(151667));
  EXPECT_TRUE(tokenizer_->is_special(151644));
  for (const int32_t id : {151643, 151645, 151662, 151663, 151664}) EXPECT_TRUE(tokenizer_->is_end(id)) << id;
  EXPECT_FALSE(tokenizer_->is_end(151644));
  EXPECT_EQ(tokenizer_->n_missing_bytes(), 0);
  EXPECT_FALSE(tokenizer_->chat_template().empty());
}

// Every ordinary token that its own merges reach must come back as itself, alone; the others still as the same bytes.
TEST_F(Qwen3Vocab, EveryTokenRoundTrips) {
  int n_same = 0;
  for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
    const std::string bytes(tokenizer_->token_bytes(id));
    ASSERT_FALSE(bytes.empty()) << id;
    const auto ids = tokenizer_->encode(bytes);
    n_same += ids == std::vector<int32_t>{id};
  }
  EXPECT_GT(n_same, 145000);
}

}  // namespace
}  // namespace turbo::text
