// Reference path: every golden id, logits within 1e-3. Fast path: ids wherever the reference margin is at least 0.15,
// mean KL at most 5e-4, logits within 0.5.
#include <cmath>

#include "harness.h"

namespace turbo::engine::testing {
namespace {

struct Difference {
  double largest = 0, kl_sum = 0;
  uint64_t rows = 0;
  // KL(reference || other) and the largest logit difference of one row.
  void add(const std::vector<float>& reference, const std::vector<float>& other) {
    double za = 0, zb = 0;
    const float ma = *std::max_element(reference.begin(), reference.end()), mb = *std::max_element(other.begin(), other.end());
    for (size_t i = 0; i < reference.size(); ++i) {
      za += std::exp(double(reference[i]) - ma);
      zb += std::exp(double(other[i]) - mb);
      largest = std::max(largest, std::fabs(double(reference[i]) - other[i]));
    }
    za = ma + std::log(za);
    zb = mb + std::log(zb);
    for (size_t i = 0; i < reference.size(); ++i) kl_sum += std::exp(reference[i] - za) * ((reference[i] - za) - (other[i] - zb));
    ++rows;
  }
};

void check_top(const nlohmann::json& top, const std::vector<float>& row, const std::string& where) {
  for (const auto& pair : top) ASSERT_NEAR(row[pair[0].get<int>()], pair[1].get<float>(), 1e-3) << where;
}

// One prompt, teacher-forced over its golden continuation, on the reference path.
void check_reference(Runtime& runtime, const nlohmann::json& prompt) {
  const std::string name = prompt["name"];
  const std::vector<int32_t> ids = prompt["ids"], continuation = prompt["greedy"];
  const auto tokenizer = runtime.tokenizer();
  ASSERT_TRUE(tokenizer);
  if (prompt.contains("text")) {
    EXPECT_EQ((*tokenizer)->encode(prompt["text"].get<std::string>()), ids) << name;
  }
  const auto logits = score(runtime, joined(ids, continuation));
  ASSERT_EQ(logits.size(), ids.size() + continuation.size() - 1);
  for (const auto& [position, top] : prompt["top20"].items()) check_top(top, logits[std::stoul(position)], name + " at " + position);
  for (size_t i = 0; i < continuation.size(); ++i) ASSERT_EQ(argmax(logits[ids.size() - 1 + i]), continuation[i]) << name << " step " << i;
  EXPECT_EQ(greedy(runtime, ids, static_cast<uint32_t>(continuation.size())), continuation) << name;
}

}  // namespace

TEST(Golden, MiniReferencePathEqualsTheReference) {
  auto runtime = load({.activations = "f32"});
  ASSERT_TRUE(runtime);
  const auto golden = read_json("mini.json");
  ASSERT_EQ(golden["prompts"].size(), 16u);
  for (const auto& prompt : golden["prompts"]) check_reference(*runtime, prompt);
}

TEST(Golden, NanoReferencePathEqualsTheReference) {
  auto runtime = load({.model = "models/turbo-nano-q1.gguf", .activations = "f32"});
  ASSERT_TRUE(runtime);
  const auto golden = read_json("nano.json");
  ASSERT_EQ(golden["prompts"].size(), 8u);
  for (const auto& prompt : golden["prompts"]) check_reference(*runtime, prompt);
}

TEST(Golden, FastPathStaysWithinItsBounds) {
  for (const std::string kv : {"f32", "f16", "bf16"}) {
    auto reference = load({.activations = "f32"});
    auto fast = load({.activations = "int8", .kv = kv});
    ASSERT_TRUE(reference && fast);
    Difference difference;
    size_t compared = 0;
    const auto golden = read_json("mini.json");
    for (const auto& prompt : golden["prompts"]) {
      const std::vector<int32_t> ids = prompt["ids"], continuation = prompt["greedy"];
      const std::vector<double> margins = prompt["greedy_margin"];
      const auto a = score(*reference, joined(ids, continuation)), b = score(*fast, joined(ids, continuation));
      ASSERT_EQ(a.size(), b.size());
      for (size_t i = 0; i < a.size(); ++i) difference.add(a[i], b[i]);
      size_t first_small = continuation.size();
      for (size_t i = 0; i < continuation.size(); ++i) {
        if (margins[i] < 0.15) {
          first_small = std::min(first_small, i);
          continue;
        }
        ++compared;
        EXPECT_EQ(argmax(b[ids.size() - 1 + i]), continuation[i]) << prompt["name"] << " step " << i << " kv " << kv;
      }
      const auto free = greedy(*fast, ids, static_cast<uint32_t>(continuation.size()));
      for (size_t i = 0; i < first_small; ++i) EXPECT_EQ(free[i], continuation[i]) << prompt["name"] << " step " << i;
    }
    RecordProperty("compared_" + kv, static_cast<int>(compared));
    const double kl = difference.kl_sum / static_cast<double>(difference.rows);
    std::printf("kv %s: mean KL %.3g over %lu rows, largest logit difference %.3f, %zu ids compared\n", kv.c_str(), kl,
                static_cast<unsigned long>(difference.rows), difference.largest, compared);
    EXPECT_LE(kl, 5e-4);
    EXPECT_LE(difference.largest, 0.5);
    EXPECT_GT(compared, 700u);
  }
}

// Folders of safetensors in float32: rope variants, biases, head norms, scaling.
TEST(Golden, TinyModelsEqualTheirReferenceLogits) {
  for (const std::string family : {"qwen3", "qwen2", "llama3"}) {
    auto runtime = load({.model = "tests/golden/tiny-random/" + family, .activations = "f32"});
    ASSERT_TRUE(runtime) << family;
    const auto golden = read_json("tiny-random/" + family + "/golden.json");
    for (size_t sequence = 0; sequence < golden["input_ids"].size(); ++sequence) {
      const std::vector<int32_t> ids = golden["input_ids"][sequence];
      // One more token, so that the last position is scored too.
      const auto logits = score(*runtime, joined(ids, {0}));
      ASSERT_EQ(logits.size(), ids.size());
      for (size_t i = 0; i < ids.size(); ++i) {
        const std::vector<int32_t> top_ids = golden["top10_ids"][sequence][i];
        const std::vector<float> top = golden["top10_logits"][sequence][i];
        for (size_t k = 0; k < top.size(); ++k) ASSERT_NEAR(logits[i][top_ids[k]], top[k], 1e-3) << family << " position " << i;
        ASSERT_EQ(argmax(logits[i]), golden["argmax"][sequence][i].get<int32_t>()) << family << " position " << i;
      }
    }
    const std::vector<int32_t> prompt = golden["greedy"]["prompt"], continuation = golden["greedy"]["continuation"];
    EXPECT_EQ(greedy(*runtime, prompt, static_cast<uint32_t>(continuation.size())), continuation) << family;
  }
}

}  // namespace turbo::engine::testing
