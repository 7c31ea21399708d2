// What a packed cache takes and which layers it keeps in more bits, on the bundled model.
#include "harness.h"

namespace turbo::engine::testing {
namespace {

using Options = std::map<std::string, std::string>;

std::unique_ptr<Runtime> load_with(const std::string& k, const std::string& v, const Options& options, int threads = 2, const std::string& isa = "") {
  ModelSetup setup{.threads = threads, .kv = k, .kv_v = v, .isa = isa};
  setup.tune = [&](profile::Profile& profile) { profile.kv.options = options; };
  return load(setup);
}

// Bytes of one vector of the bundled model's head size.
uint64_t vector_bytes(const std::string& codec, uint64_t d) {
  if (codec == "f16") return 2 * d;
  if (codec == "q8") return d + d / 32 * 2;
  return d * static_cast<uint64_t>(codec[2] - '0') / 8 + 2;  // tq2, tq3, tq4, rq4_..
}

}  // namespace

TEST(KvSetup, BytesATokenAreTheFormula) {
  struct Case { std::string k, v; uint32_t boundary; std::string boundary_k, boundary_v; };
  for (const Case& c : {Case{"tq4", "tq4", 0, "", ""}, {"rq3_iso", "tq2", 0, "", ""}, {"tq3", "tq3", 2, "q8", "tq4"}, {"rq4_planar", "rq4_planar", 1, "q8", "rq4_planar"},
                        {"q8", "rq3_planar", 2, "q8", "rq4_planar"}, {"tq4", "f16", 3, "q8", "f16"}}) {
    const auto runtime = load_with(c.k, c.v, {{"self_check", "off"}, {"boundary", std::to_string(c.boundary)}});
    ASSERT_TRUE(runtime);
    const model::ModelConfig& config = runtime->config();
    const uint64_t d = config.head_dim_k, protected_layers = std::min(config.n_layers, 2 * c.boundary);
    ASSERT_EQ(d % 32, 0u);
    const uint64_t plain = vector_bytes(c.k, d) + vector_bytes(c.v, d);
    const uint64_t boundary = protected_layers ? vector_bytes(c.boundary_k, d) + vector_bytes(c.boundary_v, d) : 0;
    EXPECT_EQ(runtime->memory().kv_bytes_per_token, config.n_kv_heads * ((config.n_layers - protected_layers) * plain + protected_layers * boundary))
        << c.k << " and " << c.v << " boundary " << c.boundary;
  }
}

TEST(KvSetup, TheCheckChoosesTheSameLayersEverywhere) {
  const std::vector<int32_t> prompt(70, 41);
  std::vector<int32_t> ids;
  uint64_t bytes = 0;
  for (const auto& [threads, isa] : {std::pair{1, ""}, {3, ""}, {2, "avx2"}}) {
    const auto runtime = load_with("tq2", "tq2", {}, threads, isa);
    ASSERT_TRUE(runtime);
    const std::vector<int32_t> found = greedy(*runtime, prompt, 40);
    if (ids.empty()) {
      ids = found;
      bytes = runtime->memory().kv_bytes_per_token;
    }
    EXPECT_EQ(found, ids) << threads << isa;
    EXPECT_EQ(runtime->memory().kv_bytes_per_token, bytes) << threads << isa;
  }
  const auto unchecked = load_with("tq2", "tq2", {{"self_check", "off"}, {"boundary", "0"}});
  ASSERT_TRUE(unchecked);
  EXPECT_GT(bytes, unchecked->memory().kv_bytes_per_token) << "2-bit keys of a small model need promotion";
}

namespace {

// Ids of a run with the first token's logprob, which follows from the prompt alone.
struct FirstToken {
  std::vector<int32_t> ids;
  float logprob = 0;
  bool operator==(const FirstToken&) const = default;
};

struct LogprobOutcome : Outcome {
  std::vector<float> logprobs;
  void on_tokens(std::span<const Token> tokens) override {
    Outcome::on_tokens(tokens);
    for (const Token& token : tokens) logprobs.push_back(token.logprob);
  }
};

std::vector<int32_t> story(uint32_t n, uint32_t seed) {
  std::vector<int32_t> ids;
  for (uint32_t i = 0; i < n; ++i) ids.push_back(static_cast<int32_t>(5 + (i * i * 7 + i * seed) % 4000));
  return ids;
}

FirstToken first_token(const std::string& codec, const std::string& prefill, int chunk) {
  ModelSetup setup{.prefill_chunk = chunk, .kv = codec};
  setup.tune = [&](profile::Profile& profile) {
    if (codec != "f16") profile.kv.options = {{"self_check", "off"}, {"boundary", "0"}, {"center", "off"}, {"prefill", prefill}};
  };
  const auto runtime = load(setup);
  if (!runtime) return {};
  auto run = std::make_shared<LogprobOutcome>();
  Request request;
  request.prompt = story(230, 3);
  request.max_tokens = 40;
  request.sampling.temperature = 0;
  request.logprobs = true;
  EXPECT_TRUE(runtime->engine().submit(std::move(request), run));
  run->wait();
  EXPECT_TRUE(run->finish.status) << run->finish.status.message();
  return {run->ids, run->logprobs.empty() ? 1.0f : run->logprobs.front()};
}

}  // namespace

TEST(KvSetup, ExactPromptsReadNoPackedKeys) {
  const float plain = first_token("f16", "", 256).logprob;
  EXPECT_EQ(first_token("tq2", "exact", 256).logprob, plain) << "the prompt is one chunk";
  EXPECT_NE(first_token("tq2", "consistent", 256).logprob, plain);
  EXPECT_NE(first_token("tq2", "exact", 128).logprob, plain) << "the second chunk reads the first packed";
  EXPECT_EQ(first_token("tq2", "exact", 64), first_token("tq2", "consistent", 256)) << "a chunk inside a block has nothing packed";
}

// Layers of one form in the same pool, and every prompt in the same steps.
TEST(KvSetup, ExactPromptsOfManyRequestsHaveRoom) {
  ModelSetup setup{.prefill_chunk = 256, .kv = "rq3_iso"};
  setup.tune = [](profile::Profile& profile) {
    profile.kv.options = {{"self_check", "off"}, {"boundary", "1"}, {"prefill", "exact"}};
    profile.engine.max_step_tokens = 512;
  };
  const auto runtime = load(setup);
  ASSERT_TRUE(runtime);
  std::vector<std::shared_ptr<Outcome>> runs;
  for (uint32_t i = 0; i < 8; ++i) runs.push_back(submit_greedy(*runtime, story(300 + 40 * i, i), 5));
  for (const auto& run : runs) {
    run->wait();
    EXPECT_TRUE(run->finish.status) << run->finish.status.message();
    EXPECT_EQ(run->ids.size(), 5u);
    EXPECT_EQ(run->finish.preemptions, 0u);
  }
}

TEST(KvSetup, WrongOptionsAreRefused) {
  for (const auto& [options, part] : {std::pair{Options{{"boundary", "many"}}, "kv.options.boundary"}, {Options{{"prefill", "often"}}, "kv.options.prefill"},
                                      {Options{{"bogus", "1"}}, "bogus"}, {Options{{"boundary", "1"}, {"promote_k", "nothing"}}, "nothing"},
                                      {Options{{"promote_v", "nothing"}}, "nothing"}}) {
    profile::Profile profile;
    profile.model.path = std::string(TURBO_SOURCE) + "/models/turbo-nano-q1.gguf";
    profile.tiers = {"cpu"};
    profile.kv.k = profile.kv.v = "tq3";
    profile.kv.options = options;
    const auto runtime = Runtime::load(profile);
    ASSERT_FALSE(runtime) << part;
    EXPECT_NE(runtime.status().message().find(part), std::string::npos) << runtime.status().message();
  }
}

}  // namespace turbo::engine::testing
