// Whole models on the hip tier: the reference's ids and logits, and the same text whatever shares the step.
#include <cmath>
#include <filesystem>
#include <map>

#include "harness.h"
#include "on_hip.h"

namespace turbo::engine::testing {
namespace {

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

// KL(reference || other).
double divergence(const std::vector<float>& reference, const std::vector<float>& other) {
  const float ma = *std::max_element(reference.begin(), reference.end()), mb = *std::max_element(other.begin(), other.end());
  double za = 0, zb = 0, kl = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    za += std::exp(double(reference[i]) - ma);
    zb += std::exp(double(other[i]) - mb);
  }
  za = ma + std::log(za);
  zb = mb + std::log(zb);
  for (size_t i = 0; i < reference.size(); ++i) kl += std::exp(reference[i] - za) * ((reference[i] - za) - (other[i] - zb));
  return kl;
}

// The bounds between tiers and paths: ids wherever the margin is at least 0.15, mean KL 5e-4, logits within 0.5.
class OneBit : public ::testing::TestWithParam<const char*> {};

TEST_P(OneBit, StaysWithinTheFastPathsBounds) {
  const std::string name = GetParam(), model = "models/turbo-" + name + "-q1.gguf";
  ModelSetup fast = on_hip(model, "f16");
  fast.activations = "int8";
  auto hip = load(fast);
  auto reference = load({.model = model, .activations = "f32"});
  ASSERT_TRUE(hip && reference);
  const auto prompt = read_json(name + ".json")["prompts"][0];
  std::vector<int32_t> ids = prompt["ids"], continuation = prompt["greedy"];
  if (ids.size() > 24) ids.resize(24);
  continuation.resize(std::min<size_t>(continuation.size(), 8));
  const auto all = ids.size() == prompt["ids"].size() ? joined(ids, continuation) : ids;
  const auto want = score(*reference, all), got = score(*hip, all);
  ASSERT_EQ(got.size(), want.size());
  double largest = 0, kl = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    kl += divergence(want[i], got[i]);
    for (size_t j = 0; j < got[i].size(); ++j) largest = std::max(largest, std::fabs(double(want[i][j]) - got[i][j]));
    std::vector<float> sorted = want[i];
    std::nth_element(sorted.begin(), sorted.begin() + 1, sorted.end(), std::greater<>());
    if (*std::max_element(want[i].begin(), want[i].end()) - sorted[1] >= 0.15f) { EXPECT_EQ(argmax(got[i]), argmax(want[i])) << i; }
  }
  EXPECT_LE(kl / static_cast<double>(got.size()), 5e-4);
  EXPECT_LE(largest, 0.5);
  std::printf("%s: %zu rows, largest difference of a logit %.2e, mean KL %.2e\n", name.c_str(), got.size(), largest, kl / static_cast<double>(got.size()));
}
INSTANTIATE_TEST_SUITE_P(Models, OneBit, ::testing::Values("nano", "mini"), [](const auto& info) { return std::string(info.param); });

// Caches with an open and a packed form, pairs of codecs that no fused kernel exists for, and layers of other codecs than
// their neighbours.
struct CachePair {
  const char *name, *k, *v;
  std::map<std::string, std::string> options;
  friend void PrintTo(const CachePair& pair, std::ostream* out) { *out << pair.k << " and " << pair.v; }
};
class Cache : public ::testing::TestWithParam<CachePair> {
 protected:
  static ModelSetup setup(const std::string& tier, std::function<void(profile::Profile&)> more = {}) {
    ModelSetup setup = on_hip("tests/golden/tiny-random/qwen3", GetParam().k, [tier, more](profile::Profile& profile) {
      profile.model.context = 192;
      profile.tiers = tier == "cpu" ? std::vector<std::string>{"cpu"} : std::vector<std::string>{"hip", "cpu"};
      profile.require = std::nullopt;
      if (tier == "cpu") profile.plugins.paths.clear();
      profile.kv.options = GetParam().options;
      profile.kv.options["self_check"] = "off";
      profile.kv.options["center"] = "off";  // the cpu tier alone looks at keys before it stores them
      if (more) more(profile);
    });
    setup.kv_v = GetParam().v;
    return setup;
  }
  static std::vector<int32_t> tokens(int32_t n, int32_t step) {
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < n; ++i) ids.push_back((i * i * step + 3 * i + step) % 250);
    return ids;
  }
};

// A block closes and is packed at 64 positions.
TEST_P(Cache, TextsDoNotDependOnWhatSharesTheStepNorOnFusion) {
  auto runtime = load(setup("hip"));
  ASSERT_TRUE(runtime);
  ASSERT_EQ(runtime->resolved().json["tier"], "hip");
  const std::vector<int32_t> a = tokens(58, 7), b = tokens(20, 5);
  std::vector<int32_t> again;  // what a drafter can guess from
  for (int32_t i = 0; i < 58; ++i) again.push_back(i % 6);
  const auto alone_a = greedy(*runtime, a, 10), alone_b = greedy(*runtime, b, 4), alone_again = greedy(*runtime, again, 10);
  auto first = submit_greedy(*runtime, a, 10), second = submit_greedy(*runtime, b, 4);
  first->wait();
  second->wait();
  EXPECT_EQ(first->ids, alone_a);
  EXPECT_EQ(second->ids, alone_b);
  runtime.reset();
  // Other steps, each call anew and by itself; and drafts, whose refused rows leave the cache again.
  runtime = load(setup("hip", [](profile::Profile& profile) {
    profile.compute.fuse = profile.compute.graphs = false;
    profile.engine.max_step_tokens = 7;
  }));
  ASSERT_TRUE(runtime);
  EXPECT_EQ(greedy(*runtime, a, 10), alone_a);
  runtime.reset();
  runtime = load(setup("hip", [](profile::Profile& profile) {
    profile.drafter.name = "ngram";
    profile.drafter.draft_tokens = 4;
    profile.drafter.adaptive = false;
  }));
  ASSERT_TRUE(runtime);
  EXPECT_EQ(greedy(*runtime, again, 10), alone_again);
}

TEST_P(Cache, LogitsAreThoseOfTheCpuTier) {
  const std::vector<int32_t> ids = tokens(140, 3);
  auto hip = load(setup("hip")), cpu = load(setup("cpu"));
  ASSERT_TRUE(hip && cpu);
  EXPECT_EQ(hip->memory().kv_bytes_per_token, cpu->memory().kv_bytes_per_token) << "both lay out blocks alike";
  const auto got = score(*hip, ids), want = score(*cpu, ids);
  ASSERT_EQ(got.size(), want.size());
  double kl = 0;
  float largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    kl += divergence(want[i], got[i]);
    for (size_t j = 0; j < got[i].size(); ++j) largest = std::max(largest, std::fabs(got[i][j] - want[i][j]));
  }
  EXPECT_LE(kl / static_cast<double>(got.size()), 5e-4);
  EXPECT_LE(largest, 0.5f);
  std::printf("%s: largest difference of a logit %.1e, mean KL %.1e\n", GetParam().name, static_cast<double>(largest), kl / static_cast<double>(got.size()));
}
INSTANTIATE_TEST_SUITE_P(Pairs, Cache,
                         ::testing::Values(CachePair{"two_forms", "tq4", "tq4", {{"boundary", "0"}}}, CachePair{"two_kinds_of_two_forms", "rq3_planar", "tq4", {{"boundary", "0"}}},
                                           CachePair{"one_form_and_two", "q8", "tq3", {{"boundary", "0"}}}, CachePair{"one_form_each", "f16", "q4", {}},
                                           CachePair{"other_layers", "tq3", "tq3", {{"boundary", "1"}}}),
                         [](const auto& info) { return std::string(info.param.name); });

// What is said about the run, and a model that does not fit.
TEST(Hip, AModelThatDoesNotFitSaysWhatWould) {
  auto runtime = load(on_hip("tests/golden/tiny-random/qwen3", "f16"));
  ASSERT_TRUE(runtime);
  EXPECT_GT(runtime->memory().device_bytes, 0u);
  EXPECT_GT(runtime->memory().workspace_bytes, 0u);
  profile::Profile profile;
  const ModelSetup setup = on_hip("tests/golden/tiny-random/qwen3", "f16");
  profile.model.path = std::string(TURBO_SOURCE) + "/" + setup.model;
  profile.kv.k = profile.kv.v = "f16";
  setup.tune(profile);
  profile.kv.pool_bytes = runtime->memory().kv_bytes_per_token * 96;  // one block of two
  const auto failed = Runtime::load(profile);
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.status().hint().find("fits"), std::string::npos) << failed.status().message() << " | " << failed.status().hint();
}

// The pack's options are keys of the profile, and change no text.
TEST(Hip, ProfilesChooseTheDeviceAndHowItIsCalled) {
  ::setenv("TURBO_FIBER_DEVICES", "2", 1);
  const auto tuned = [](auto tune) { return on_hip("tests/golden/tiny-random/qwen3", "f16", [tune](profile::Profile& profile) { tune(profile.compute); }); };
  const std::vector<int32_t> prompt{3, 1, 4, 1, 5};
  const auto text = [&](const ModelSetup& setup, const char* device) {
    auto runtime = load(setup);
    EXPECT_TRUE(runtime);
    if (!runtime) return std::vector<int32_t>{};
    EXPECT_EQ(runtime->resolved().json["device"]["name"], device);
    return greedy(*runtime, prompt, 6);
  };
  const auto want = text(tuned([](auto&) {}), "fiber device 0");
  EXPECT_EQ(text(tuned([](auto& compute) { compute.device = "1", compute.graphs = false; }), "fiber device 1"), want);
  EXPECT_EQ(text(tuned([](auto& compute) { compute.device = "Device 1", compute.fuse = false; }), "fiber device 1"), want);
  profile::Profile profile;
  const ModelSetup setup = tuned([](auto& compute) { compute.device = "7900"; });
  profile.model.path = std::string(TURBO_SOURCE) + "/" + setup.model;
  setup.tune(profile);
  const auto failed = Runtime::load(profile);
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.status().message().find("device '7900': the fiber runtime has only device 0, fiber device 0 (fiber, 4.0 GiB); device 1, fiber device 1"), std::string::npos)
      << failed.status().message();
  ::unsetenv("TURBO_FIBER_DEVICES");
}

TEST(Hip, PrefixesAreSavedAndPutBack) {
  auto runtime = load(on_hip("tests/golden/tiny-random/qwen3", "f16"));
  ASSERT_TRUE(runtime);
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 70; ++i) prompt.push_back(i * 7 % 50);
  const auto want = greedy(*runtime, prompt, 4);
  const std::string path = std::string(TURBO_BUILD) + "/hip_prefix.bin";
  const auto saved = runtime->engine().save_prefix(prompt, "", path);
  ASSERT_TRUE(saved) << saved.status().message();
  EXPECT_EQ(*saved, 64u);
  ASSERT_TRUE(runtime->engine().flush_prefix_cache());
  const auto restored = runtime->engine().restore_prefix("", path);
  ASSERT_TRUE(restored) << restored.status().message();
  EXPECT_EQ(greedy(*runtime, prompt, 4), want);
  std::filesystem::remove(path);
}

// Drafts change no text: trees and chains are verified on the device.
TEST(Hip, DraftsChangeNothing) {
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 24; ++i) prompt.push_back(i % 6);
  auto plain = load(on_hip("tests/golden/tiny-random/qwen3", "f16"));
  ASSERT_TRUE(plain);
  const auto want = greedy(*plain, prompt, 12);
  plain.reset();
  auto drafting = load(on_hip("tests/golden/tiny-random/qwen3", "f16", [](profile::Profile& profile) {
    profile.tiers = {"hip", "cpu"};
    profile.drafter.name = "ngram";
    profile.drafter.draft_tokens = 4;
    profile.drafter.adaptive = false;
  }));
  ASSERT_TRUE(drafting);
  EXPECT_EQ(greedy(*drafting, prompt, 12), want);
}

}  // namespace
}  // namespace turbo::engine::testing
