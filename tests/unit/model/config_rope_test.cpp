// Rotary frequencies and how they are read from GGUF.
#include <cmath>
#include <functional>

#include "model/config.h"
#include "model_test_util.h"

namespace turbo::model::testing {
namespace {

using enum Code;

RopeConfig bonsai_8b() {
  RopeConfig rope;
  rope.dims = 128, rope.base = 1e6f, rope.scaling = RopeScaling::yarn, rope.factor = 4, rope.original_context = 16384;
  return rope;
}

void expect_close(float found, double expected) { EXPECT_NEAR(found, expected, std::abs(expected) * 1e-6); }

TEST(Rope, PlainAndLinear) {
  RopeConfig rope;
  rope.dims = 8, rope.base = 10000;
  EXPECT_EQ(rope.inverse_frequencies(), (std::vector<float>{1.0f, 0.1f, 0.01f, 0.001f}));
  EXPECT_EQ(rope.magnitude(), 1.0f);
  rope.scaling = RopeScaling::linear, rope.factor = 4;
  EXPECT_EQ(rope.inverse_frequencies(), (std::vector<float>{0.25f, 0.025f, 0.0025f, 0.00025f}));
  EXPECT_EQ(rope.magnitude(), 1.0f);
  rope.divisors = {1, 2, 4, 8};
  const auto divided = rope.inverse_frequencies();
  expect_close(divided[3], 0.001 / 4 / 8);
}

// Worked values: the correction range of this shape is pairs 20 to 37, and the magnitude is 1 + 0.1 ln 4.
TEST(Rope, YarnWorkedValues) {
  const RopeConfig rope = bonsai_8b();
  const auto f = rope.inverse_frequencies();
  ASSERT_EQ(f.size(), 64u);
  const std::pair<int, double> expected[] = {{0, 1},
                                             {19, 0.016548171},
                                             {20, 0.0133352143},
                                             {21, 0.0102719866},
                                             {28, 0.00153441828},
                                             {36, 0.000124028383},
                                             {37, 8.49552082e-05},
                                             {63, 3.1023444e-07}};
  for (const auto& [i, value] : expected) expect_close(f[i], value);
  EXPECT_NEAR(rope.magnitude(), 1.1386, 0.00005);
}

TEST(Rope, YarnParameters) {
  RopeConfig rope = bonsai_8b();
  rope.attention_factor = 2;
  EXPECT_NEAR(rope.magnitude(), 2 * 1.1386294, 1e-6);
  rope.log_multiplier = 1;
  EXPECT_NEAR(rope.magnitude(), 2, 1e-6);
  rope.extrapolation = 0;  // then it is linear scaling without a magnitude of its own
  EXPECT_EQ(rope.magnitude(), 2.0f);
  expect_close(rope.inverse_frequencies()[0], 0.25);
}

// base 500000, 16 dimensions, factor 8, original context 32: pair 0 turns 5.1 times and stays, the others turn less
// than once.
TEST(Rope, Llama3) {
  RopeConfig rope;
  rope.dims = 16, rope.base = 500000, rope.scaling = RopeScaling::llama3, rope.factor = 8, rope.original_context = 32;
  const double expected[] = {
      1, 0.0242403431, 0.00470075387, 0.000911583092, 0.000176776695, 3.4281022e-05, 6.64786987e-06, 1.28917317e-06};
  auto f = rope.inverse_frequencies();
  for (int i = 0; i < 8; ++i) expect_close(f[i], expected[i]);
  EXPECT_EQ(rope.magnitude(), 1.0f);
  // A pair inside the ramp: original context 64 puts pair 1 (wavelength 32.4) at 1.975 turns.
  rope.original_context = 64;
  const double plain = std::pow(500000.0, -1.0 / 8), turns = 64 * plain / (2 * M_PI), smooth = (turns - 1) / 3;
  expect_close(rope.inverse_frequencies()[1], (1 - smooth) * plain / 8 + smooth * plain);
}

Result<ModelConfig> with_extra(const std::function<void(GgufWriter&)>& keys, TinyModel tiny = {}) {
  GgufWriter w = tiny.keys();
  keys(w);
  tiny.add_tensors(w);
  const std::string bytes = w.build();
  auto file = ModelFile::open_memory("t.gguf", as_bytes(bytes));
  if (!file) return file.status();
  return read_config(**file);
}

TEST(RopeGguf, Scaling) {
  auto yarn = with_extra([](GgufWriter& w) {
    w.text("qwen3.rope.scaling.type", "yarn")
        .f32("qwen3.rope.scaling.factor", 4)
        .u32("qwen3.rope.scaling.original_context_length", 16);
    w.f32("qwen3.rope.scaling.yarn_beta_fast", 30)
        .f32("qwen3.rope.scaling.attn_factor", 0.5f)
        .f32("qwen3.rope.scaling.yarn_attn_factor", 3);
  });
  ASSERT_TRUE(yarn) << yarn.status().message();
  EXPECT_EQ(yarn->rope.scaling, RopeScaling::yarn);
  EXPECT_EQ(yarn->rope.factor, 4);
  EXPECT_EQ(yarn->rope.original_context, 16u);
  EXPECT_EQ(yarn->rope.beta_fast, 30);
  EXPECT_EQ(yarn->rope.attention_factor, 1.5);
  EXPECT_EQ(yarn->rope.extrapolation, 1);

  auto plain =
      with_extra([](GgufWriter& w) { w.text("qwen3.rope.scaling.type", "none").f32("qwen3.rope.scaling.factor", 4); });
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->rope.scaling, RopeScaling::none);
  auto linear = with_extra([](GgufWriter& w) { w.f32("qwen3.rope.scaling.factor", 4); });
  ASSERT_TRUE(linear);
  EXPECT_EQ(linear->rope.scaling, RopeScaling::linear);
  auto older = with_extra([](GgufWriter& w) { w.f32("qwen3.rope.scale_linear", 2); });
  ASSERT_TRUE(older);
  EXPECT_EQ(older->rope.factor, 2);
  auto zero = with_extra([](GgufWriter& w) { w.f32("qwen3.rope.scaling.factor", 0); });
  ASSERT_TRUE(zero);
  EXPECT_EQ(zero->rope.scaling, RopeScaling::none);
  expect_failure(with_extra([](GgufWriter& w) { w.text("qwen3.rope.scaling.type", "longrope"); }).status(), unsupported,
                 {"rope.scaling.type", "none, linear or yarn", "longrope"});
  for (const float bad : {-1.0f, NAN, INFINITY, 1e30f}) {
    expect_failure(with_extra([&](GgufWriter& w) { w.f32("qwen3.rope.scaling.factor", bad); }).status(), corrupt_input,
                   {"rope scaling factor"});
    expect_failure(with_extra([&](GgufWriter& w) {
                     w.text("qwen3.rope.scaling.type", "yarn")
                         .f32("qwen3.rope.scaling.factor", 4)
                         .f32("qwen3.rope.scaling.yarn_beta_slow", bad);
                   }).status(),
                   corrupt_input, {"yarn", "beta_slow"});
  }
}

TEST(RopeGguf, LlamaDivisors) {
  TinyModel tiny;
  tiny.architecture = "llama";
  const auto with = [&](std::vector<float> divisors, uint32_t type = 0) {
    GgufWriter w = tiny.writer();
    std::string data;
    for (float d : divisors) data += GgufWriter::raw(d);
    w.tensor("rope_freqs.weight", {divisors.size()}, type, type == 0 ? data : std::string());
    const std::string bytes = w.build();
    auto file = ModelFile::open_memory("t.gguf", as_bytes(bytes));
    return file ? read_config(**file) : Result<ModelConfig>(file.status());
  };
  std::vector<float> good(32, 1.0f);
  good[31] = 8;
  auto config = with(good);
  ASSERT_TRUE(config) << config.status().message();
  EXPECT_EQ(config->rope.divisors, good);
  expect_close(config->rope.inverse_frequencies()[31], std::pow(10000.0, -62.0 / 64) / 8);
  expect_failure(with(std::vector<float>(16, 1.0f)).status(), corrupt_input, {"rope_freqs.weight", "{32}", "{16}"});
  for (const float bad : {0.0f, -1.0f, NAN, INFINITY}) {
    good[3] = bad;
    expect_failure(with(good).status(), corrupt_input, {"rope_freqs.weight", "divisors over 0"});
  }
  expect_failure(with(good, 1).status(), corrupt_input, {"rope_freqs.weight", "f32", "f16"});
}

}  // namespace
}  // namespace turbo::model::testing
