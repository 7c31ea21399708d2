// Runs the retrieval model with a KV codec and asks for needles at several depths.
#pragma once

#include <algorithm>
#include <map>

#include "integration/golden/harness.h"
#include "retrieval_model.h"

namespace turbo::engine::testing {

/// Codecs of keys and values, and their options. A codec takes part by its name in this list alone.
struct KvChoice {
  std::string k, v;
  std::map<std::string, std::string> options;
  std::string text() const {
    std::string out = k == v ? k : k + "/" + v;
    for (const auto& [key, value] : options) out += " " + key + "=" + value;
    return out;
  }
};
inline const std::vector<KvChoice>& kv_choices() {
  // Packed ones without the check at load and without protected layers: what is named is what is tested.
  static const std::map<std::string, std::string> bare{{"self_check", "off"}, {"boundary", "0"}};
  static const std::vector<KvChoice> all = {{"f16", "f16", {}},
                                            {"q8", "q8", {}},
                                            {"fp8_e4m3", "fp8_e4m3", {}},
                                            {"fp8_e5m2", "fp8_e5m2", {}},
                                            {"q4", "q4", {}},
                                            {"tq4", "tq4", bare},
                                            {"tq3", "tq3", bare},
                                            {"tq2", "tq2", bare},
                                            {"rq4_planar", "rq4_planar", bare},
                                            {"rq3_planar", "rq3_planar", bare},
                                            {"rq4_iso", "rq4_iso", bare},
                                            {"rq3_iso", "rq3_iso", bare}};
  return all;
}

struct Needle {
  uint32_t position, key, value;
};

/// `length` tokens: needles at the depths, elsewhere fillers and pairs of other keys, half and half.
struct Haystack {
  std::vector<int32_t> tokens;
  std::vector<Needle> needles;
};
inline Haystack make_haystack(uint32_t length) {
  std::mt19937 random(7);
  const uint32_t positions[] = {0, 3, 63, 64, length / 4 + 5, length / 2, length / 4 * 3 + 33, length - 130, length - 64, length - 1};
  const uint32_t n = static_cast<uint32_t>(std::size(positions));
  Haystack hay;
  for (uint32_t i = 0; i < length; ++i) {
    const uint32_t other = n + random() % (RetrievalModel::kKeys - n), value = random() % RetrievalModel::kValues, which = random();
    hay.tokens.push_back(which % 2 ? RetrievalModel::filler(which / 2) : RetrievalModel::pair(other, value));
  }
  for (uint32_t key = 0; key < n; ++key) {
    hay.needles.push_back({positions[key], key, static_cast<uint32_t>(random() % RetrievalModel::kValues)});
    hay.tokens[positions[key]] = RetrievalModel::pair(key, hay.needles.back().value);
  }
  return hay;
}

struct Answer : Outcome {
  std::vector<Token> tokens;
  void on_tokens(std::span<const Token> some) override { tokens.insert(tokens.end(), some.begin(), some.end()); }
};

/// Asks for every needle; returns the smallest distance in nats between the answer and the runner-up, or a negative
/// number after a wrong answer. All questions share the haystack's blocks through the prefix cache.
inline float worst_margin(Runtime& runtime, const Haystack& hay, const std::string& what) {
  float worst = INFINITY;
  for (const Needle& needle : hay.needles) {
    auto run = std::make_shared<Answer>();
    Request request;
    request.prompt = hay.tokens;
    request.prompt.push_back(RetrievalModel::query(needle.key));
    request.max_tokens = 1;
    request.sampling.temperature = 0;
    request.logprobs = true;
    request.n_top_logprobs = 2;
    const auto id = runtime.engine().submit(std::move(request), run);
    EXPECT_TRUE(id) << id.status().message();
    if (!id) return -1;
    run->wait();
    EXPECT_TRUE(run->finish.status) << run->finish.status.message();
    if (run->tokens.size() != 1 || run->tokens[0].top.size() != 2) {
      ADD_FAILURE() << what << ": no answer";
      return -1;
    }
    const Token& token = run->tokens[0];
    const bool right = token.id == RetrievalModel::value(needle.value);
    EXPECT_TRUE(right) << what << ": needle at " << needle.position << " of " << hay.tokens.size() << " gave token " << token.id
                       << ", not " << RetrievalModel::value(needle.value);
    worst = std::min(worst, right ? token.top[0].logprob - token.top[1].logprob : -1.0f);
  }
  return worst;
}

/// Every codec of the list on one haystack. f16 must reach the margin the weights are made for: 8 nats for the digit of
/// one head, less what the other keys weigh and what rounding costs.
inline void find_needles(uint32_t length, uint32_t heads, uint32_t kv_heads, const std::vector<KvChoice>& choices) {
  const model::testing::TempFolder folder;
  const std::filesystem::path file = folder.write("retrieval.gguf", RetrievalModel(heads, kv_heads).gguf(length + 64));
  const Haystack hay = make_haystack(length);
  for (const KvChoice& choice : choices) {
    SCOPED_TRACE(choice.text());
    ModelSetup setup;
    setup.tune = [&](profile::Profile& profile) {
      profile.model.path = file;
      profile.model.context = length + 64;
      profile.kv.k = choice.k;
      profile.kv.v = choice.v;
      profile.kv.options = choice.options;
      profile.kv.pool_tokens = length + 512;
      profile.engine.max_running = 1;
    };
    auto runtime = load(setup);
    ASSERT_TRUE(runtime);
    const float margin = worst_margin(*runtime, hay, choice.text());
    std::printf("%-24s %u tokens, %zu needles: smallest margin %.2f nats\n", choice.text().c_str(), length, hay.needles.size(),
                static_cast<double>(margin));
    if (choice.text() == "f16") {
      EXPECT_GT(margin, RetrievalModel::kDigitMargin - 0.1f);
    }
  }
}

}  // namespace turbo::engine::testing
