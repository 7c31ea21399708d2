// Vocabularies that lie, and Hugging Face folders that hold something else.
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "tokenizer_samples.h"

namespace turbo::text {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

void expect_refused(TokenizerData data, Code code, const std::string& said) {
  const auto tokenizer = Tokenizer::create(std::move(data));
  ASSERT_FALSE(tokenizer) << said;
  EXPECT_EQ(tokenizer.status().code(), code) << tokenizer.status().message();
  EXPECT_NE(tokenizer.status().message().find(said), std::string::npos) << tokenizer.status().message();
}

TEST(TokenizerBadInput, TokensAndTypes) {
  expect_refused({.pre = "qwen2"}, Code::corrupt_input, "empty");
  auto data = byte_vocabulary({});
  data.types.pop_back();
  expect_refused(data, Code::corrupt_input, "255 token types for 256 tokens");
  data = byte_vocabulary({});
  data.types[3] = 7;
  expect_refused(data, Code::corrupt_input, "token 3 has type 7");
  data.types[3] = -1;
  expect_refused(data, Code::corrupt_input, "token 3 has type -1");
  data = byte_vocabulary({});
  add_token(data, "a", TokenType::normal);
  expect_refused(data, Code::corrupt_input, "tokens 97 and 256 have the same text");
  data = byte_vocabulary({});
  add_token(data, std::string(70000, 'x'), TokenType::normal);
  expect_refused(data, Code::corrupt_input, "70000 bytes");
  data = byte_vocabulary({});
  add_token(data, std::string(2000, 'x'), TokenType::control);
  expect_refused(data, Code::corrupt_input, "2000 bytes");
  data = byte_vocabulary({});
  data.model = "llama";
  expect_refused(data, Code::unsupported, "\"llama\"");
  data = byte_vocabulary({});
  data.pre = std::string(100000, 'q');
  expect_refused(data, Code::unsupported, "unknown pre-tokenizer");
}

TEST(TokenizerBadInput, ByteTokensNeedTwoHexDigits) {
  for (const char* text :
       {"<0x-1>", "<0xZZ>", "<0x>", "<0x1>", "<0x001>", "<0x 1>", "<0x+1>", "ab", "", "<0X41>", "<0x41"}) {
    TokenizerData data{.pre = "qwen2", .tokens = {text}, .types = {6}};
    expect_refused(data, Code::corrupt_input, "byte token 0");
  }
  TokenizerData data{.pre = "qwen2", .tokens = {"<0x41>", "<0xfF>", "B"}, .types = {6, 6, 6}};
  const auto tokenizer = must_create(data);
  EXPECT_EQ(tokenizer->encode("BA\xff"), (std::vector<int32_t>{2, 0, 1}));
}

TEST(TokenizerBadInput, Merges) {
  for (const char* merge : {"", " ", "  ", "a", "ab", "a ", " a", "\xff"}) {
    auto data = byte_vocabulary({"a b"});
    data.merges = {merge};
    expect_refused(data, Code::corrupt_input, "merge 0");
  }
  auto data = byte_vocabulary({"a b"});
  data.merges = {"a b", "a b"};
  expect_refused(data, Code::corrupt_input, "merge 1 (\"a b\") is there twice");
  data.merges = {"a c"};
  expect_refused(data, Code::corrupt_input, "\"ac\"");
  data.merges = {"a xyz"};
  expect_refused(data, Code::corrupt_input, "\"xyz\"");
  data.merges = {"a b c"};
  expect_refused(data, Code::corrupt_input, "\"b c\"");
  data = byte_vocabulary({"a b"});
  data.types.back() = static_cast<int32_t>(TokenType::control);
  expect_refused(data, Code::corrupt_input, "no ordinary token");
}

TEST(TokenizerBadInput, SpecialIdsOutOfRange) {
  for (const int32_t id : {-1, 256, 1 << 30, INT32_MIN}) {
    const std::function<void(TokenizerData&)> places[] = {
        [&](TokenizerData& d) { d.bos = id; }, [&](TokenizerData& d) { d.eos = id; },
        [&](TokenizerData& d) { d.eot = id; }, [&](TokenizerData& d) { d.pad = id; },
        [&](TokenizerData& d) { d.extra_eog = {id}; }};
    for (const auto& place : places) {
      auto data = byte_vocabulary({});
      place(data);
      expect_refused(data, Code::corrupt_input, "token id is " + std::to_string(id));
    }
  }
  auto data = byte_vocabulary({});
  data.add_bos = true;
  expect_refused(data, Code::corrupt_input, "names none");
}

TEST(TokenizerBadInput, EmptyAndOddlySpelledTokensAreTolerated) {
  auto data = byte_vocabulary({});
  const int32_t first = add_token(data, "", TokenType::normal);
  add_token(data, "", TokenType::normal);
  add_token(data, "", TokenType::control);
  const int32_t spaces = add_token(data, "  ", TokenType::normal);
  add_token(data, "  ", TokenType::normal);
  const auto tokenizer = must_create(std::move(data));
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->token_bytes(first), "");
  EXPECT_EQ(tokenizer->token_bytes(spaces), "  ");
  EXPECT_EQ(tokenizer->encode("  "), (std::vector<int32_t>{' ', ' '}));
}

class HuggingFaceFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) / (std::string("turbo-tokenizer-") + info->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const char* name, const std::string& text) { std::ofstream(folder_ / name, std::ios::binary) << text; }
  Result<TokenizerData> read(const json& tokenizer) {
    write("tokenizer.json", tokenizer.dump());
    return read_tokenizer_json(folder_);
  }
  static json small() {
    return json::parse(R"({"normalizer": null, "added_tokens": [{"id": 3, "content": "<e>", "special": true}],
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
      "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");
  }
  fs::path folder_;
};

TEST_F(HuggingFaceFolder, ReadsAllItsFiles) {
  json root = small();
  root["model"]["merges"] = json::array({json::array({"a", "b"})});
  root["added_tokens"].push_back({{"id", 5}, {"content", "<think>"}, {"special", false}});
  root["post_processor"] = json::parse(R"({"type": "Sequence", "processors": [{"type": "ByteLevel"},
    {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<e>"}}, {"Sequence": {"id": "A"}}]}]})");
  write("tokenizer_config.json", R"({"eos_token": {"content": "<think>"}, "pad_token": "a", "chat_template": "old"})");
  write("generation_config.json", R"({"eos_token_id": [3, 1]})");
  write("chat_template.jinja", "new");
  const auto data = read(root);
  ASSERT_TRUE(data) << data.status().message();
  EXPECT_EQ(data->tokens, (std::vector<std::string>{"a", "b", "ab", "<e>", "[PAD4]", "<think>"}));
  EXPECT_EQ(data->types, (std::vector<int32_t>{1, 1, 1, 3, 5, 4}));
  EXPECT_EQ(data->merges, std::vector<std::string>{"a b"});
  EXPECT_EQ(data->pre, "gpt-2");
  EXPECT_EQ(data->bos, 3);
  EXPECT_TRUE(data->add_bos);
  EXPECT_EQ(data->eos, 5);
  EXPECT_EQ(data->pad, 0);
  EXPECT_EQ(data->extra_eog, (std::vector<int32_t>{3, 1}));
  EXPECT_EQ(data->chat_template, "new");
  EXPECT_TRUE(Tokenizer::create(*data));
}

TEST_F(HuggingFaceFolder, RefusesWhatWouldChangeIds) {
  const std::pair<const char*, const char*> edits[] = {
      {"/normalizer", R"({"type": "Lowercase"})"},
      {"/pre_tokenizer", R"({"type": "Metaspace"})"},
      {"/pre_tokenizer", "null"},
      {"/pre_tokenizer/add_prefix_space", "true"},
      {"/pre_tokenizer", R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "(a+)+$"},
        "behavior": "Isolated"}, {"type": "ByteLevel", "use_regex": false}]})"},
      {"/model/type", R"("Unigram")"},
      {"/model/byte_fallback", "true"},
      {"/model/dropout", "0.1"},
      {"/model/end_of_word_suffix", R"("</w>")"},
      {"/added_tokens/0/lstrip", "true"},
  };
  for (const auto& [where, value] : edits) {
    json root = small();
    root[json::json_pointer(where)] = json::parse(value);
    const auto data = read(root);
    ASSERT_FALSE(data) << where;
    EXPECT_EQ(data.status().code(), Code::unsupported) << where << ": " << data.status().message();
  }
}

TEST_F(HuggingFaceFolder, RefusesWhatIsBroken) {
  const std::pair<const char*, const char*> edits[] = {
      {"/model/vocab", "[]"},       {"/model/vocab", "{}"},           {"/model/merges", "7"},
      {"/model/vocab/a", "-1"},     {"/model/vocab/a", "0.5"},        {"/model/vocab/a", "1"},
      {"/model/vocab/a", "\"0\""},  {"/model/vocab/a", "9999999"},    {"/model/vocab/a", "18446744073709551615"},
      {"/model/merges/0", "5"},     {"/model/merges/0", R"(["a"])"},  {"/added_tokens", "{}"},
      {"/added_tokens/0/id", "-3"}, {"/added_tokens/0/content", "1"}, {"/added_tokens/0", "null"},
  };
  for (const auto& [where, value] : edits) {
    json root = small();
    root[json::json_pointer(where)] = json::parse(value);
    if (std::string_view(where) == "/model/vocab" && root["model"]["vocab"].empty())
      root["added_tokens"] = json::array();
    const auto data = read(root);
    ASSERT_FALSE(data) << where << " " << value;
    EXPECT_EQ(data.status().code(), Code::corrupt_input) << where << ": " << data.status().message();
  }
  for (const std::string& text : {std::string(), std::string("[]"), std::string("{\"model\":"), std::string("\xff\xfe"),
                                  std::string(2'000'000, '[')}) {
    write("tokenizer.json", text);
    const auto data = read_tokenizer_json(folder_);
    ASSERT_FALSE(data);
    EXPECT_EQ(data.status().code(), Code::corrupt_input) << data.status().message();
  }
  write("tokenizer.json", small().dump());
  write("tokenizer_config.json", "{");
  EXPECT_EQ(read_tokenizer_json(folder_).status().code(), Code::corrupt_input);
}

TEST_F(HuggingFaceFolder, MissingFilesAreNamed) {
  const auto data = read_tokenizer_json(folder_ / "nowhere");
  ASSERT_FALSE(data);
  EXPECT_EQ(data.status().code(), Code::not_found);
  EXPECT_NE(data.status().message().find("nowhere/tokenizer.json"), std::string::npos) << data.status().message();
}

}  // namespace
}  // namespace turbo::text
