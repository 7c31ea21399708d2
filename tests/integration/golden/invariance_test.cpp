// A row has the same bits alone, batched, chunked at any size, at any thread count, on any ISA path.
#include <random>

#include "harness.h"

namespace turbo::engine::testing {
namespace {

std::vector<int32_t> random_tokens(std::mt19937& rng, size_t n) {
  std::vector<int32_t> tokens(n);
  for (int32_t& token : tokens) token = static_cast<int32_t>(rng() % 16000);
  return tokens;
}

}  // namespace

TEST(Invariance, ChunksThreadsAndIsasGiveTheSameBits) {
  std::mt19937 rng(20);
  const std::vector<int32_t> tokens = random_tokens(rng, 150);
  for (const std::string activations : {"int8", "f32"}) {
    auto base = load({.activations = activations, .threads = 1, .prefill_chunk = 256, .kv = "f16"});
    ASSERT_TRUE(base);
    const auto expected = score(*base, tokens);
    const std::vector<ModelSetup> others{{.threads = 2, .prefill_chunk = 7}, {.threads = 3, .prefill_chunk = 64}, {.threads = 2, .isa = "avx2"},
                                    {.threads = 1, .prefill_chunk = 33, .isa = "scalar"}};
    for (ModelSetup other : others) {
      other.activations = activations;
      other.kv = "f16";
      other.model = "models/turbo-mini-q1.gguf";
      if (other.isa == "scalar" && activations == "f32") continue;  // minutes of emulated fused multiply-adds; ops tests cover it
      auto runtime = load(other);
      ASSERT_TRUE(runtime);
      const auto logits = score(*runtime, tokens);
      ASSERT_EQ(logits.size(), expected.size());
      for (size_t i = 0; i < logits.size(); ++i)
        ASSERT_EQ(std::memcmp(logits[i].data(), expected[i].data(), logits[i].size() * sizeof(float)), 0)
            << activations << " threads " << other.threads << " chunk " << other.prefill_chunk << " isa " << other.isa << " row " << i;
    }
  }
}

TEST(Invariance, PackedCachesGiveTheSameBitsWhateverTheChunksThreadsAndIsa) {
  std::mt19937 rng(22);
  const std::vector<int32_t> tokens = random_tokens(rng, 140);
  struct Case { const char *k, *v; bool scalar; };  // the scalar path takes half a minute each
  const Case cases[] = {{"tq3", "rq4_iso", true}, {"rq3_planar", "tq4", false}, {"q8", "tq2", false}, {"q4", "q4", false}, {"fp8_e4m3", "fp8_e5m2", false}};
  // Without the check at load, which would run on every path too: what it finds follows from the bits compared here.
  const auto quick = [](profile::Profile& profile) { profile.kv.options = {{"self_check", "off"}, {"center", "off"}, {"boundary", "0"}}; };
  for (const Case& c : cases) {
    auto base = load({.threads = 1, .prefill_chunk = 256, .kv = c.k, .kv_v = c.v, .tune = quick});
    ASSERT_TRUE(base);
    const auto expected = score(*base, tokens);
    std::vector<ModelSetup> others{{.threads = 2, .prefill_chunk = 7}, {.threads = 3, .prefill_chunk = 100, .isa = "avx2"}};
    if (c.scalar) others.push_back({.threads = 2, .prefill_chunk = 33, .isa = "scalar"});
    for (ModelSetup other : others) {
      other.kv = c.k;
      other.kv_v = c.v;
      other.tune = quick;
      auto runtime = load(other);
      ASSERT_TRUE(runtime);
      const auto logits = score(*runtime, tokens);
      ASSERT_EQ(logits.size(), expected.size());
      for (size_t i = 0; i < logits.size(); ++i)
        ASSERT_EQ(std::memcmp(logits[i].data(), expected[i].data(), logits[i].size() * sizeof(float)), 0)
            << c.k << " and " << c.v << " threads " << other.threads << " chunk " << other.prefill_chunk << " isa " << other.isa << " row " << i;
    }
  }
}

TEST(Invariance, ARequestGivesTheSameTextAloneAndInAnyMix) {
  auto runtime = load({.prefill_chunk = 48, .kv = "f16"});
  ASSERT_TRUE(runtime);
  std::mt19937 rng(21);
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::vector<int32_t>> alone;
  for (int i = 0; i < 8; ++i) {
    prompts.push_back(random_tokens(rng, 1 + rng() % 90));
    alone.push_back(greedy(*runtime, prompts.back(), 24));
  }
  std::vector<std::shared_ptr<Outcome>> runs;
  for (const auto& prompt : prompts) runs.push_back(submit_greedy(*runtime, prompt, 24));
  auto scoring = submit_scoring(*runtime, random_tokens(rng, 200));  // a long prompt in between
  for (size_t i = 0; i < runs.size(); ++i) {
    runs[i]->wait();
    EXPECT_EQ(runs[i]->ids, alone[i]) << i;
  }
  scoring->wait();
  EXPECT_TRUE(runtime->engine().drain(10000));
  EXPECT_EQ(runtime->engine().snapshot().kv_blocks_used, 0u);
}

}  // namespace turbo::engine::testing
