// read_config on GGUF: real models, the published shapes, and files whose contents lie (classes M1 to M5, M11).
#include <cmath>
#include <functional>

#include "model/config.h"
#include "model_test_util.h"

namespace turbo::model::testing {
namespace {

using enum Code;

Result<ModelConfig> config_of(const std::string& bytes) {
  auto file = ModelFile::open_memory("t.gguf", as_bytes(bytes));
  if (!file) return file.status();
  return read_config(**file);
}
Result<ModelConfig> config_of(const GgufWriter& w) { return config_of(w.build()); }

/// A tiny model with keys written by `keys` in place of the usual ones.
Status with_keys(const TinyModel& tiny, const std::function<void(GgufWriter&)>& keys) {
  GgufWriter w;
  keys(w);
  tiny.add_tensors(w);
  return config_of(w).status();
}
Status with_extra(const TinyModel& tiny, const std::function<void(GgufWriter&)>& keys) {
  GgufWriter w = tiny.keys();
  keys(w);
  tiny.add_tensors(w);
  return config_of(w).status();
}

TEST(ConfigGguf, TurboMiniAndNano) {
  auto mini = ModelFile::open(TURBO_SOURCE "/models/turbo-mini-q1.gguf");
  ASSERT_TRUE(mini);
  auto config = read_config(**mini);
  ASSERT_TRUE(config) << config.status().message();
  EXPECT_EQ(config->architecture, "qwen3");
  EXPECT_EQ(config->name, "turbo-mini");
  EXPECT_EQ(config->n_layers, 10u);
  EXPECT_EQ(config->n_embd, 768u);
  EXPECT_EQ(config->n_ff, 2304u);
  EXPECT_EQ(config->n_heads, 8u);
  EXPECT_EQ(config->n_kv_heads, 2u);
  EXPECT_EQ(config->head_dim_k, 128u);
  EXPECT_EQ(config->head_dim_v, 128u);
  EXPECT_EQ(config->vocab_size, 16384u);
  EXPECT_EQ(config->context_length, 2048u);
  EXPECT_EQ(config->norm_eps, 1e-6f);
  EXPECT_EQ(config->rope.dims, 128u);
  EXPECT_EQ(config->rope.base, 1e6f);
  EXPECT_EQ(config->rope.style, RopeStyle::halves);
  EXPECT_EQ(config->rope.scaling, RopeScaling::none);
  EXPECT_TRUE(config->tied_head);
  EXPECT_TRUE(config->qk_norm);
  EXPECT_FALSE(config->qkv_bias);
  EXPECT_EQ(config->eos_ids, (std::vector<uint32_t>{16376}));
  EXPECT_EQ(config->bos_id, 16374u);
  EXPECT_EQ(config->bytes_by_type.size(), 2u);
  EXPECT_EQ(config->bytes_by_type[type::q1_0], (config->n_parameters - 10 * 1792 - 768) / 128 * 18);

  auto nano = ModelFile::open(TURBO_SOURCE "/models/turbo-nano-q1.gguf");
  ASSERT_TRUE(nano);
  auto small = read_config(**nano);
  ASSERT_TRUE(small) << small.status().message();
  EXPECT_EQ(small->n_layers, 5u);
  EXPECT_EQ(small->n_embd, 256u);
  EXPECT_EQ(small->head_dim_k, 64u);
  EXPECT_EQ(small->n_kv_heads, 2u);
}

TEST(ConfigGguf, PublishedShapesGiveThePublishedSizes) {
  struct Row {
    uint32_t layers, embd, ff, heads, vocab;
    bool tied;
    size_t matrices, vectors;
    uint64_t bytes;
    double parameters;
  };
  for (const Row& row : {Row{28, 1024, 3072, 16, 151936, true, 197, 113, 84'072'448, 0.596e9},
                         {28, 2048, 6144, 16, 151669, true, 197, 113, 242'357'152, 1.720e9},
                         {36, 2560, 9728, 32, 151669, true, 253, 145, 566'320'264, 4.022e9},
                         {36, 4096, 12288, 32, 151669, false, 254, 145, 1'152'704'128, 8.189e9}}) {
    ModelConfig c;
    c.architecture = "qwen3";
    c.n_layers = row.layers, c.n_embd = row.embd, c.n_ff = row.ff, c.n_heads = row.heads, c.n_kv_heads = 8;
    c.head_dim_k = c.head_dim_v = 128, c.vocab_size = row.vocab, c.tied_head = row.tied, c.qk_norm = true;
    size_t matrices = 0, vectors = 0;
    uint64_t bytes = 0, parameters = 0;
    for (const ExpectedTensor& tensor : expected_tensors(c)) {
      uint64_t elements = 1;
      for (uint64_t dim : tensor.dims) elements *= dim;
      parameters += elements;
      bytes += bytes_of(*find_type(tensor.matrix ? type::q1_0 : type::f32), elements).value();
      ++(tensor.matrix ? matrices : vectors);
    }
    EXPECT_EQ(matrices, row.matrices);
    EXPECT_EQ(vectors, row.vectors);
    EXPECT_EQ(bytes, row.bytes);
    EXPECT_NEAR(double(parameters), row.parameters, 0.0006e9);
  }
}

TEST(ConfigGguf, Families) {
  TinyModel tiny;
  auto qwen3 = config_of(tiny.writer());
  ASSERT_TRUE(qwen3) << qwen3.status().message();
  EXPECT_EQ(qwen3->rope.dims, 64u);
  EXPECT_EQ(qwen3->rope.base, 10000.0f);
  tiny.architecture = "qwen2";
  auto qwen2 = config_of(tiny.writer());
  ASSERT_TRUE(qwen2) << qwen2.status().message();
  EXPECT_TRUE(qwen2->qkv_bias);
  EXPECT_FALSE(qwen2->qk_norm);
  tiny.architecture = "llama";
  tiny.with_head = true;
  auto llama = config_of(tiny.writer());
  ASSERT_TRUE(llama) << llama.status().message();
  EXPECT_EQ(llama->rope.style, RopeStyle::interleaved);
  EXPECT_FALSE(llama->tied_head);
  EXPECT_FALSE(llama->qkv_bias);
}

TEST(ConfigGguf, UnknownArchitectureListsWhatIsSupported) {
  TinyModel tiny;
  tiny.architecture = "qwen35";
  const Status status = config_of(tiny.writer()).status();
  expect_failure(status, unsupported, {"general.architecture", "llama, qwen2, qwen3", "'qwen35'"});
  EXPECT_NE(status.hint().find("'qwen3'"), std::string::npos);
  expect_failure(with_keys(tiny, [](auto& w) { w.u32("x", 1); }), not_found, {"general.architecture", "missing"});
  expect_failure(with_keys(tiny, [](auto& w) { w.u32("general.architecture", 1); }), corrupt_input,
                 {"expected string", "u32"});
}

TEST(ConfigGguf, LayerCount) {  // M1
  TinyModel tiny;
  for (const uint32_t layers : {0u, 3u, 1025u, 0xFFFFFFFFu}) {
    const Status status = with_keys(tiny, [&](GgufWriter& w) {
      TinyModel other = tiny;
      other.layers = layers;
      w = other.keys();
    });
    if (layers == 0)
      expect_failure(status, corrupt_input, {"qwen3.block_count", "over 0"});
    else if (layers == 3)
      expect_failure(status, not_found, {"blk.2.attn_norm.weight", "missing"});
    else
      expect_failure(status, corrupt_input, {"layer count", "1 to 1024", std::to_string(layers)});
  }
  tiny.layers = 1;
  expect_failure(with_keys(tiny, [](GgufWriter& w) { w = TinyModel().keys(); }), not_found, {"blk.1.", "missing"});
}

TEST(ConfigGguf, HeadCounts) {  // M2
  const auto heads = [](uint32_t q, uint32_t kv) {
    return with_keys(TinyModel(), [&](GgufWriter& w) {
      TinyModel other;
      other.heads = q, other.kv_heads = kv;
      w = other.keys();
    });
  };
  expect_failure(heads(0, 1), corrupt_input, {"qwen3.attention.head_count'", "over 0"});
  expect_failure(heads(2, 0), corrupt_input, {"qwen3.attention.head_count_kv", "over 0"});
  expect_failure(heads(2, 4), corrupt_input, {"key-value head count", "divisor of the 2", "4"});
  expect_failure(heads(3, 2), corrupt_input, {"key-value head count", "divisor of the 3"});
  expect_failure(heads(5000, 1), corrupt_input, {"attention head count", "4096"});
  expect_failure(heads(0xFFFFFFFF, 1), corrupt_input, {"attention head count"});
  const auto no_key_length = [](uint32_t heads) {
    return with_keys(TinyModel(), [&](GgufWriter& w) {
      w.text("general.architecture", "qwen3")
          .u32("qwen3.block_count", 2)
          .u32("qwen3.context_length", 64)
          .u32("qwen3.embedding_length", 128);
      w.u32("qwen3.feed_forward_length", 256)
          .u32("qwen3.attention.head_count", heads)
          .u32("qwen3.attention.head_count_kv", 1);
      w.f32("qwen3.attention.layer_norm_rms_epsilon", 1e-6f);
    });
  };
  EXPECT_TRUE(no_key_length(2));
  expect_failure(no_key_length(3), corrupt_input, {"head_count", "divisor of the embedding length 128", "3"});
  expect_failure(with_extra(TinyModel(), [](auto& w) { w.u32("qwen3.expert_count", 8); }), unsupported,
                 {"expert_count", "8"});
  expect_failure(with_extra(TinyModel(), [](auto& w) { w.u32("qwen3.attention.sliding_window", 8); }), unsupported,
                 {"sliding_window"});
  EXPECT_TRUE(with_extra(TinyModel(),
                         [](auto& w) { w.u32("qwen3.expert_count", 0).u32("qwen3.attention.sliding_window", 0); }));
}

TEST(ConfigGguf, WrongKeyTypes) {  // G7
  for (const char* name :
       {"block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count",
        "attention.head_count_kv", "attention.key_length", "attention.value_length"}) {
    GgufWriter w;
    const std::string full = std::string("qwen3.") + name;
    w.text("general.architecture", "qwen3");
    const std::string a = "qwen3.";
    // The wrong one first; a duplicate of it is left out.
    w.f32(full, 2.0f);
    const std::pair<const char*, uint32_t> others[] = {{"block_count", 2},           {"context_length", 64},
                                                       {"embedding_length", 128},    {"feed_forward_length", 256},
                                                       {"attention.head_count", 2},  {"attention.head_count_kv", 1},
                                                       {"attention.key_length", 64}, {"attention.value_length", 64}};
    for (const auto& [other, value] : others) {
      if (std::string_view(other) != name) w.u32(a + other, value);
    }
    w.f32(a + "attention.layer_norm_rms_epsilon", 1e-6f);
    TinyModel().add_tensors(w);
    expect_failure(config_of(w).status(), corrupt_input, {"'" + full + "'", "expected u32 but found f32"});
  }
  expect_failure(with_extra(TinyModel(), [](auto& w) { w.text("qwen3.rope.freq_base", "1e6"); }), corrupt_input,
                 {"freq_base", "f32", "string"});
  expect_failure(with_extra(TinyModel(), [](auto& w) { w.u32("qwen3.rope.freq_base", 10000); }), corrupt_input,
                 {"freq_base", "f32", "u32"});
}

TEST(ConfigGguf, MissingKeys) {  // M3
  GgufWriter w;
  w.text("general.architecture", "qwen3");
  TinyModel().add_tensors(w);
  expect_failure(config_of(w).status(), not_found, {"qwen3.block_count", "missing"});
}

TEST(ConfigGguf, MissingTensors) {  // M3: each one in turn
  const std::string whole = TinyModel().writer().build();
  auto full = ModelFile::open_memory("t.gguf", as_bytes(whole));
  ASSERT_TRUE(full);
  for (const Tensor& left_out : (*full)->tensors()) {
    GgufWriter w = TinyModel().keys();
    for (const Tensor& tensor : (*full)->tensors()) {
      if (tensor.name != left_out.name) w.tensor(tensor.name, tensor.dims, tensor.type);
    }
    expect_failure(config_of(w).status(), not_found, {"'" + left_out.name + "'", "missing"});
    GgufWriter wrong = TinyModel().keys();
    for (const Tensor& tensor : (*full)->tensors()) {
      std::vector<uint64_t> dims = tensor.dims;
      if (tensor.name == left_out.name) dims[0] += 128;
      wrong.tensor(tensor.name, dims, tensor.type);
    }
    const std::vector<uint64_t>& d = left_out.dims;
    std::vector<uint64_t> found = d;
    found[0] += 128;
    expect_failure(
        config_of(wrong).status(), corrupt_input,
        {"'" + left_out.name + "'", "expected shape " + shape_text(d) + " but found shape " + shape_text(found)});
    GgufWriter integers = TinyModel().keys();
    for (const Tensor& tensor : (*full)->tensors()) {
      integers.tensor(tensor.name, tensor.dims, tensor.name == left_out.name ? uint32_t(type::i32) : tensor.type);
    }
    expect_failure(config_of(integers).status(), corrupt_input, {"'" + left_out.name + "'", "i32"});
  }
}

TEST(ConfigGguf, QuantizedNormIsRefused) {
  GgufWriter w = TinyModel().keys();
  w.tensor("token_embd.weight", {128, 8}, 41).tensor("blk.0.attn_norm.weight", {128}, 41);
  expect_failure(config_of(w).status(), not_found, {"missing"});
  TinyModel one;
  one.layers = 1;
  const std::string bytes = one.writer().build();
  auto file = ModelFile::open_memory("t.gguf", as_bytes(bytes));
  ASSERT_TRUE(file);
  GgufWriter quantized = one.keys();
  for (const Tensor& t : (*file)->tensors())
    quantized.tensor(t.name, t.dims, t.name == "output_norm.weight" ? 41u : t.type);
  expect_failure(config_of(quantized).status(), unsupported, {"output_norm.weight", "f32, f16 or bf16", "q1_0"});
}

TEST(ConfigGguf, AMisnamedTensorIsNamedBesideTheMissingOne) {  // M3
  const auto renamed = [](const std::string& from, const std::string& to) {
    const std::string bytes = TinyModel().writer().build();
    auto file = ModelFile::open_memory("t.gguf", as_bytes(bytes));
    GgufWriter w = TinyModel().keys();
    for (const Tensor& t : (*file)->tensors()) w.tensor(t.name == from ? to : t.name, t.dims, t.type);
    return config_of(w).status();
  };
  expect_failure(renamed("token_embd.weight", "token_embed.weight"), not_found,
                 {"tensor 'token_embd.weight' is missing", "the nearest name in the file is 'token_embed.weight'"});
  expect_failure(renamed("blk.1.attn_q.weight", "blk.1.attnq.weight"), not_found,
                 {"tensor 'blk.1.attn_q.weight' is missing", "expected shape", "the nearest name in the file is 'blk.1.attnq.weight'"});
  // Its neighbours have their own place, so nothing is near.
  const Status lost = renamed("blk.1.attn_q.weight", "something.else.entirely");
  expect_failure(lost, not_found, {"tensor 'blk.1.attn_q.weight' is missing"});
  EXPECT_EQ(lost.message().find("nearest"), std::string::npos) << lost.message();
}

TEST(ConfigGguf, TensorsOfAnotherKindAreNotIgnored) {
  for (const char* name : {"blk.0.attn_q.bias", "blk.0.attn_sinks.weight", "blk.2.attn_norm.weight",
                           "blk.0.attn_qkv.weight", "rope_freqs.weight"}) {
    GgufWriter w = TinyModel().writer();
    w.tensor(name, {128}, 0);
    expect_failure(config_of(w).status(), unsupported, {name, "architecture qwen3 with 2 layers"});
  }
}

TEST(ConfigGguf, PerLayerArrays) {  // M4
  const auto ffn = [](const std::vector<uint32_t>& values) {
    GgufWriter w;
    w.text("general.architecture", "qwen3")
        .u32("qwen3.block_count", 2)
        .u32("qwen3.context_length", 64)
        .u32("qwen3.embedding_length", 128);
    w.array("qwen3.feed_forward_length", 4, values).u32("qwen3.attention.head_count", 2);
    w.array<int32_t>("qwen3.attention.head_count_kv", 5, {1, 1}).f32("qwen3.attention.layer_norm_rms_epsilon", 1e-6f);
    TinyModel().add_tensors(w);
    return config_of(w);
  };
  auto good = ffn({256, 256});
  ASSERT_TRUE(good) << good.status().message();
  EXPECT_EQ(good->n_ff, 256u);
  expect_failure(ffn({256}).status(), corrupt_input, {"feed_forward_length", "expected 2 elements", "found 1"});
  expect_failure(ffn({256, 256, 256}).status(), corrupt_input, {"expected 2 elements", "found 3"});
  expect_failure(ffn({}).status(), corrupt_input, {"expected 2 elements", "found 0"});
  expect_failure(ffn({256, 512}).status(), unsupported, {"same value for every layer"});
  expect_failure(ffn({0, 0}).status(), corrupt_input, {"over 0"});
}

TEST(ConfigGguf, Vocabulary) {  // M5
  const std::vector<std::string> tokens(8, "x");
  EXPECT_TRUE(with_extra({}, [&](auto& w) {
    w.texts("tokenizer.ggml.tokens", tokens).u32("qwen3.vocab_size", 8).u32("tokenizer.ggml.eos_token_id", 7);
  }));
  expect_failure(with_extra({}, [](auto& w) { w.texts("tokenizer.ggml.tokens", {"a"}); }), corrupt_input,
                 {"tokenizer.ggml.tokens", "expected 8", "found 1"});
  expect_failure(with_extra({}, [](auto& w) { w.u32("qwen3.vocab_size", 9); }), corrupt_input,
                 {"vocab_size", "expected 8", "9"});
  expect_failure(
      with_extra(
          {},
          [&](auto& w) {
            w.texts("tokenizer.ggml.tokens", tokens).template array<int32_t>("tokenizer.ggml.token_type", 5, {1});
          }),
      corrupt_input, {"token_type", "expected 8", "found 1"});
  expect_failure(
      with_extra({},
                 [&](auto& w) {
                   w.texts("tokenizer.ggml.tokens", tokens).template array<float>("tokenizer.ggml.scores", 6, {1, 2});
                 }),
      corrupt_input, {"scores", "found 2"});
  for (const char* key :
       {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id", "tokenizer.ggml.padding_token_id"}) {
    expect_failure(with_extra({}, [&](auto& w) { w.u32(key, 8); }), corrupt_input, {key, "under 8", "found 8"});
    expect_failure(with_extra({}, [&](auto& w) { w.i32(key, -1); }), corrupt_input, {key, "-1"});
    expect_failure(with_extra({}, [&](auto& w) { w.text(key, "x"); }), corrupt_input, {key, "an integer"});
  }
}

TEST(ConfigGguf, Ranges) {
  const auto eps = [](float value) {
    GgufWriter w;
    w.text("general.architecture", "qwen3")
        .u32("qwen3.block_count", 2)
        .u32("qwen3.context_length", 64)
        .u32("qwen3.embedding_length", 128);
    w.u32("qwen3.feed_forward_length", 256)
        .u32("qwen3.attention.head_count", 2)
        .u32("qwen3.attention.head_count_kv", 1);
    w.f32("qwen3.attention.layer_norm_rms_epsilon", value);
    TinyModel().add_tensors(w);
    return config_of(w).status();
  };
  for (const float bad : {0.0f, -1e-6f, 1.0f, NAN, INFINITY}) expect_failure(eps(bad), corrupt_input, {"norm epsilon"});
  for (const float bad : {0.0f, 1.0f, -10.0f, NAN, INFINITY}) {
    expect_failure(with_extra({}, [&](auto& w) { w.f32("qwen3.rope.freq_base", bad); }), corrupt_input, {"rope base"});
  }
  for (const uint32_t bad : {0u, 1u, 63u, 66u, 0xFFFFFFFEu}) {
    expect_failure(with_extra({}, [&](auto& w) { w.u32("qwen3.rope.dimension_count", bad); }), corrupt_input,
                   {"rope dimension count", "64"});
  }
}

TEST(ConfigGguf, Sampling) {
  GgufWriter w = TinyModel().keys();
  w.i32("general.sampling.top_k", 20).f32("general.sampling.top_p", 0.85f).f32("general.sampling.temp", 0.5f);
  TinyModel().add_tensors(w);
  auto config = config_of(w);
  ASSERT_TRUE(config) << config.status().message();
  EXPECT_EQ(config->sampling.top_k, 20u);
  EXPECT_EQ(config->sampling.top_p, 0.85f);
  EXPECT_EQ(config->sampling.temperature, 0.5f);
  EXPECT_FALSE(config->sampling.min_p.has_value());
  expect_failure(with_extra({}, [](auto& w) { w.f32("general.sampling.temp", NAN); }), corrupt_input,
                 {"sampling.temp"});
  expect_failure(with_extra({}, [](auto& w) { w.f32("general.sampling.top_p", 2); }), corrupt_input,
                 {"sampling.top_p"});
}

}  // namespace
}  // namespace turbo::model::testing
