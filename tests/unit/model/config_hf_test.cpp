// read_config on Hugging Face folders: real ones, both spellings of config.json, and wrong values.
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "model/config.h"
#include "model_test_util.h"

namespace turbo::model::testing {
namespace {

using enum Code;
namespace fs = std::filesystem;
using nlohmann::json;

const fs::path kTiny = fs::path(TURBO_TEST_DATA) / "golden" / "tiny-random";

Result<ModelConfig> config_of(const fs::path& folder) {
  auto file = ModelFile::open(folder);
  if (!file) return file.status();
  return read_config(**file);
}

/// The weights of a reference model with an edited config.json.
class Edited {
 public:
  explicit Edited(const char* model) : source_(kTiny / model) {
    fs::copy_file(source_ / "model.safetensors", folder_.path() / "model.safetensors");
    std::ifstream(source_ / "config.json") >> root;
  }
  json root;
  Result<ModelConfig> config() {
    folder_.write("config.json", root.dump());
    return config_of(folder_.path());
  }
  void refused(Code code, std::initializer_list<std::string_view> parts) {
    expect_failure(config().status(), code, parts, folder_.path().filename().string());
  }

 private:
  fs::path source_;
  TempFolder folder_;
};

TEST(ConfigHf, ReferenceModels) {
  auto qwen3 = config_of(kTiny / "qwen3");
  ASSERT_TRUE(qwen3) << qwen3.status().message();
  EXPECT_EQ(qwen3->architecture, "qwen3");
  EXPECT_EQ(qwen3->n_layers, 3u);
  EXPECT_EQ(qwen3->n_embd, 64u);
  EXPECT_EQ(qwen3->head_dim_k, 32u);
  EXPECT_EQ(qwen3->n_heads, 4u);
  EXPECT_EQ(qwen3->n_kv_heads, 2u);
  EXPECT_EQ(qwen3->n_ff, 160u);
  EXPECT_EQ(qwen3->vocab_size, 256u);
  EXPECT_EQ(qwen3->context_length, 256u);
  EXPECT_EQ(qwen3->rope.base, 1e6f);
  EXPECT_EQ(qwen3->rope.dims, 32u);
  EXPECT_TRUE(qwen3->tied_head);
  EXPECT_TRUE(qwen3->qk_norm);
  EXPECT_EQ(qwen3->bos_id, 0u);
  EXPECT_EQ(qwen3->eos_ids, (std::vector<uint32_t>{1}));

  auto qwen2 = config_of(kTiny / "qwen2");
  ASSERT_TRUE(qwen2) << qwen2.status().message();
  EXPECT_EQ(qwen2->head_dim_k, 16u);  // not in config.json
  EXPECT_TRUE(qwen2->qkv_bias);
  EXPECT_FALSE(qwen2->qk_norm);

  auto llama = config_of(kTiny / "llama3");
  ASSERT_TRUE(llama) << llama.status().message();
  EXPECT_EQ(llama->rope.style, RopeStyle::halves);
  EXPECT_EQ(llama->rope.scaling, RopeScaling::llama3);
  EXPECT_EQ(llama->rope.factor, 8);
  EXPECT_EQ(llama->rope.original_context, 32u);
  EXPECT_FALSE(llama->tied_head);
  EXPECT_EQ(llama->n_parameters, 478560u / 4 - (8 + 2136) / 4);
  EXPECT_EQ(llama->bytes_by_type.at(type::f32), llama->n_parameters * 4);
}

TEST(ConfigHf, Transformers4Spelling) {
  Edited e("llama3");
  json scaling = e.root["rope_parameters"];
  scaling.erase("rope_theta");
  e.root.erase("rope_parameters");
  e.root["rope_theta"] = 500000.0;
  e.root["rope_scaling"] = scaling;
  auto four = e.config();
  auto five = config_of(kTiny / "llama3");
  ASSERT_TRUE(four && five) << four.status().message();
  EXPECT_EQ(four->rope.inverse_frequencies(), five->rope.inverse_frequencies());

  Edited plain("qwen2");
  plain.root.erase("rope_parameters");
  plain.root["rope_scaling"] = nullptr;
  EXPECT_EQ(plain.config()->rope.base, 10000.0f);
  plain.root["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};  // older key name
  EXPECT_EQ(plain.config()->rope.scaling, RopeScaling::linear);
}

TEST(ConfigHf, Yarn) {
  Edited e("qwen3");
  e.root["rope_parameters"] = {
      {"rope_type", "yarn"}, {"rope_theta", 1e6}, {"factor", 4.0}, {"original_max_position_embeddings", 64}};
  auto config = e.config();
  ASSERT_TRUE(config) << config.status().message();
  EXPECT_EQ(config->rope.original_context, 64u);
  EXPECT_NEAR(config->rope.magnitude(), 1.1386294, 1e-6);
  e.root["rope_parameters"]["attention_factor"] = 1.25;
  EXPECT_NEAR(e.config()->rope.magnitude(), 1.25, 1e-6);
  e.root["rope_parameters"]["truncate"] = false;
  EXPECT_FALSE(e.config()->rope.truncate_range);
  e.root["rope_parameters"].erase("factor");
  e.refused(not_found, {"factor"});
}

TEST(ConfigHf, UnsupportedKinds) {
  const auto with = [](const char* key, json value, std::initializer_list<std::string_view> parts) {
    Edited e("qwen2");
    e.root[key] = std::move(value);
    e.refused(unsupported, parts);
  };
  with("model_type", "gemma3", {"model_type", "llama, qwen2, qwen3", "gemma3"});
  with("hidden_act", "gelu", {"hidden_act", "gelu"});
  with("quantization_config", {{"bits", 4}}, {"quantization_config"});
  with("use_sliding_window", true, {"use_sliding_window"});
  with("layer_types", {"full_attention", "sliding_attention"}, {"layer_types", "sliding_attention"});
  with("rope_parameters", {{"rope_type", "dynamic"}, {"factor", 2}}, {"rope_type", "dynamic"});
  with("rope_parameters", {{"full_attention", {{"rope_theta", 1}}}}, {"rope_parameters", "one set"});
}

TEST(ConfigHf, WrongValues) {  // M1 to M3
  const auto with = [](const char* key, json value, std::initializer_list<std::string_view> parts,
                       Code code = corrupt_input) {
    Edited e("qwen2");
    if (value.is_discarded())
      e.root.erase(key);
    else
      e.root[key] = std::move(value);
    e.refused(code, parts);
  };
  const json absent(json::value_t::discarded);
  for (const char* key : {"num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "vocab_size",
                          "max_position_embeddings"}) {
    for (const json& bad : {json(0), json(-1), json(1.5), json("2"), json(true), json::array(), json(1ull << 40)})
      with(key, bad, {key, "whole number"});
    with(key, absent, {key, "missing"}, not_found);
  }
  with("model_type", absent, {"model_type", "missing"}, not_found);
  with("num_hidden_layers", 5000, {"layer_types", "expected 5000"});
  with("num_hidden_layers", 1, {"layer_types"});
  with("num_attention_heads", 3, {"divisor"});
  with("num_key_value_heads", 8, {"key-value head count", "divisor of the 4"});
  with("num_key_value_heads", 1, {"blk.0.attn_k.weight", "expected shape {64, 16} but found shape {64, 32}"});
  with("vocab_size", 300, {"token_embd.weight", "{64, 300}", "{64, 256}"});
  with("intermediate_size", 128, {"ffn_gate", "{64, 128}", "{64, 160}"});
  with("tie_word_embeddings", false, {"output.weight", "missing"}, not_found);
  with("tie_word_embeddings", "yes", {"tie_word_embeddings", "true or false"});
  with("rms_norm_eps", 0, {"norm epsilon"});
  with("eos_token_id", 256, {"eos_token_id", "under 256"});
  with("eos_token_id", {1, -1}, {"eos_token_id", "-1"});
  with("bos_token_id", "x", {"bos_token_id"});
  with("rope_parameters", {{"rope_theta", 0.5}}, {"rope base"});
  with("rope_parameters", {{"rope_theta", "1e6"}}, {"rope_theta", "a number"});
  with("rope_parameters", 5, {"rope_parameters", "an object"});
  with("rope_parameters", {{"rope_type", "linear"}, {"factor", -1}}, {"rope scaling factor"});
  with("rope_parameters", {{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 4}, {"high_freq_factor", 1}},
       {"llama3"});
}

TEST(ConfigHf, NoConfigBesideALoneFile) {
  TempFolder folder;
  fs::copy_file(kTiny / "qwen2" / "model.safetensors", folder.path() / "w.safetensors");
  auto file = ModelFile::open(folder.path() / "w.safetensors");
  ASSERT_TRUE(file);
  expect_failure(read_config(**file).status(), not_found, {"config.json is missing"}, "w.safetensors");
}

}  // namespace
}  // namespace turbo::model::testing
