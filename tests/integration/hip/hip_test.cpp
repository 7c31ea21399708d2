// Whole models on the hip tier: the reference's ids and logits, and the same text whatever shares the step.
#include <cmath>

#include "harness.h"

namespace turbo::engine::testing {
namespace {

ModelSetup on_hip(const std::string& model, const std::string& kv = "f32", std::function<void(profile::Profile&)> more = {}) {
  ModelSetup setup;
  setup.model = model;
  setup.activations = "f32";
  setup.kv = kv;
  setup.prefill_chunk = 16;
  setup.tune = [more](profile::Profile& profile) {
    profile.tiers = {"hip"};
    profile.require = "hip";
    profile.plugins.paths = {TURBO_FIBER_PLUGINS};
    profile.model.context = 128;
    profile.engine.max_step_tokens = 16;
    profile.engine.max_running = 2;
    if (more) more(profile);
  };
  return setup;
}

class TinyRandom : public ::testing::TestWithParam<const char*> {};

TEST_P(TinyRandom, GoldenLogitsAndIds) {
  const std::string family = GetParam();
  auto runtime = load(on_hip("tests/golden/tiny-random/" + family));
  ASSERT_TRUE(runtime);
  const auto golden = read_json("tiny-random/" + family + "/golden.json");
  float largest = 0;
  for (size_t sequence = 0; sequence < golden["input_ids"].size(); ++sequence) {
    const std::vector<int32_t> ids = golden["input_ids"][sequence];
    // One more token, so that the last position is scored too.
    const auto logits = score(*runtime, joined(ids, {0}));
    ASSERT_EQ(logits.size(), ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::vector<int32_t> top_ids = golden["top10_ids"][sequence][i];
      const std::vector<float> top = golden["top10_logits"][sequence][i];
      for (size_t k = 0; k < top.size(); ++k) {
        largest = std::max(largest, std::fabs(logits[i][top_ids[k]] - top[k]));
        ASSERT_NEAR(logits[i][top_ids[k]], top[k], 1e-3) << "position " << i;
      }
      ASSERT_EQ(argmax(logits[i]), golden["argmax"][sequence][i].get<int32_t>()) << "position " << i;
    }
  }
  const std::vector<int32_t> prompt = golden["greedy"]["prompt"], continuation = golden["greedy"]["continuation"];
  EXPECT_EQ(greedy(*runtime, prompt, static_cast<uint32_t>(continuation.size())), continuation);
  std::printf("%s: largest difference of a logit %.1e\n", family.c_str(), static_cast<double>(largest));
}
INSTANTIATE_TEST_SUITE_P(Families, TinyRandom, ::testing::Values("qwen3", "qwen2", "llama3"), [](const auto& info) { return std::string(info.param); });

// The same text alone and beside another, and in every cache that the tier has.
TEST(Hip, TextsDoNotDependOnWhatSharesTheStep) {
  for (const std::string kv : {"f16", "q8"}) {
    auto runtime = load(on_hip("tests/golden/tiny-random/qwen3", kv));
    ASSERT_TRUE(runtime);
    const std::vector<int32_t> a{3, 1, 4, 1, 5, 9, 2, 6}, b{2, 7, 1, 8, 2};
    const auto alone_a = greedy(*runtime, a, 8), alone_b = greedy(*runtime, b, 8);
    auto first = submit_greedy(*runtime, a, 8), second = submit_greedy(*runtime, b, 8);
    first->wait();
    second->wait();
    EXPECT_EQ(first->ids, alone_a) << kv;
    EXPECT_EQ(second->ids, alone_b) << kv;
  }
}

}  // namespace
}  // namespace turbo::engine::testing
