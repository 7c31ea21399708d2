// Random mixes on the bundled model: whatever runs beside a request, its ids are those it has alone in an engine
// without prefix cache. Pools are so small that requests are preempted; beginnings are shared; some are cancelled.
// The unit tests do the same without a model and in far greater numbers (tests/unit/engine/mix_test.cpp).
#include <cstdlib>
#include <random>

#include "harness.h"
#include "unit/engine/collector.h"

namespace turbo::engine::testing {
namespace {

// Longer by hand: TURBO_MIX_SECONDS=600 build/release/tests/golden_test --gtest_filter='ModelMix.*'
std::chrono::milliseconds time_limit() {
  const char* text = std::getenv("TURBO_MIX_SECONDS");
  return std::chrono::milliseconds(text ? std::atol(text) * 1000 : 10000);
}

constexpr uint32_t kVocab = 16000;
constexpr uint32_t kContext = 384;

struct Case {
  Request request;
  std::vector<int32_t> alone;
};

struct Running {
  const Case* of;
  std::shared_ptr<Collector> collector;
  bool cancelled = false;
};

Sampling random_sampling(std::mt19937& rng) {
  Sampling sampling;
  sampling.temperature = 0;
  if (rng() % 2) return sampling;
  sampling.temperature = 0.5f + static_cast<float>(rng() % 10) / 10;
  sampling.seed = rng();
  if (rng() % 2) sampling.top_p = 0.9f;
  if (rng() % 3 == 0) sampling.top_k = 20;
  if (rng() % 3 == 0) sampling.min_p = 0.02f;
  if (rng() % 3 == 0) sampling.repetition_penalty = 1.2f;
  if (rng() % 3 == 0) sampling.logit_bias = {{static_cast<int32_t>(rng() % kVocab), 4.0f}};
  return sampling;
}

// Requests with shared beginnings, and what each gives when nothing runs beside it.
std::vector<Case> make_cases(uint32_t n, const std::string& k, const std::string& v) {
  ModelSetup setup{.threads = 1, .prefill_chunk = 256, .kv = k, .kv_v = v};
  setup.tune = [](profile::Profile& profile) { profile.engine.prefix_cache = false; };
  auto runtime = load(setup);
  if (!runtime) return {};
  std::mt19937 rng(31);
  std::vector<std::vector<int32_t>> beginnings(4);
  for (auto& tokens : beginnings)
    for (uint32_t i = 0, length = 64 + rng() % 150; i < length; ++i) tokens.push_back(static_cast<int32_t>(rng() % kVocab));
  std::vector<Case> cases(n);
  for (Case& one : cases) {
    Request& request = one.request;
    request.prompt = beginnings[rng() % beginnings.size()];
    request.prompt.resize(1 + rng() % request.prompt.size());
    for (uint32_t i = rng() % 40; i > 0; --i) request.prompt.push_back(static_cast<int32_t>(rng() % kVocab));
    request.max_tokens = 1 + rng() % 48;
    request.sampling = random_sampling(rng);
    if (rng() % 4 == 0) request.banned_tokens = {static_cast<int32_t>(rng() % kVocab)};
    auto collector = std::make_shared<Collector>();
    const auto id = runtime->engine().submit(request, collector);
    EXPECT_TRUE(id) << id.status().message();
    EXPECT_EQ(collector->wait().reason, FinishReason::length);
    one.alone = collector->ids();
  }
  return cases;
}

struct Counts {
  uint64_t compared = 0, preemptions = 0, cached = 0;
};

// One engine of random shape and a random order of arrival.
void run_mix(uint32_t seed, const std::vector<Case>& cases, Counts& counts, const std::string& k, const std::string& v) {
  std::mt19937 rng(seed);
  ModelSetup setup{.threads = 1 + static_cast<int>(rng() % 3), .prefill_chunk = 8 + static_cast<int>(rng() % 120), .kv = k, .kv_v = v};
  setup.tune = [&](profile::Profile& profile) {
    profile.model.context = kContext;
    profile.kv.pool_tokens = kContext + 64 * (rng() % 8);
    profile.engine.max_running = 1 + static_cast<int>(rng() % 8);
    profile.engine.max_step_tokens = 16 + static_cast<int>(rng() % 150);
    profile.engine.prefix_cache = rng() % 4 != 0;
  };
  auto runtime = load(setup);
  ASSERT_TRUE(runtime);
  Engine& engine = runtime->engine();
  std::vector<Running> running;
  for (uint32_t i = 0; i < 24; ++i) {
    Running one{&cases[rng() % cases.size()], std::make_shared<Collector>()};
    Request request = one.of->request;
    request.priority = static_cast<int32_t>(rng() % 3);
    request.client = rng() % 4;
    request.cache_salt = rng() % 5 == 0 ? "other" : "";
    request.use_prefix_cache = rng() % 6 != 0;
    const auto id = engine.submit(request, one.collector);
    ASSERT_TRUE(id) << id.status().message();
    if (rng() % 4 == 0) one.collector->wait_for_tokens(1 + rng() % 6);
    if (rng() % 6 == 0) one.cancelled = engine.cancel(*id);
    if (rng() % 12 == 0) {
      ASSERT_TRUE(engine.flush_prefix_cache());
    }
    running.push_back(one);
  }
  for (Running& one : running) {
    const Finish finish = one.collector->wait();
    const std::vector<int32_t> ids = one.collector->ids();
    counts.cached += finish.usage.cached_tokens;
    if (finish.reason == FinishReason::cancelled) {
      ASSERT_TRUE(one.cancelled);
      ASSERT_LE(ids.size(), one.of->alone.size());
      ASSERT_TRUE(std::equal(ids.begin(), ids.end(), one.of->alone.begin()));
      continue;
    }
    ASSERT_EQ(finish.reason, FinishReason::length) << finish.status.message();
    ASSERT_EQ(ids, one.of->alone) << "preempted " << finish.preemptions << " times, cached " << finish.usage.cached_tokens;
    ++counts.compared;
  }
  EXPECT_TRUE(engine.drain(10000));
  const Snapshot end = engine.snapshot();
  counts.preemptions += end.preemptions;
  EXPECT_EQ(end.kv_blocks_used, 0u);
  EXPECT_EQ(end.leaks, 0u);
}

}  // namespace

TEST(ModelMix, IdsAreThoseOfEachAlone) {
  const std::vector<Case> cases = make_cases(24, "f16", "f16");
  ASSERT_FALSE(cases.empty());
  Counts counts;
  const auto end = std::chrono::steady_clock::now() + time_limit();
  uint32_t mixes = 0;
  // On a slow machine the time may be over before a pool was too small once.
  for (; std::chrono::steady_clock::now() < end || mixes < 3 || (counts.preemptions == 0 && mixes < 30); ++mixes) {
    SCOPED_TRACE("seed " + std::to_string(mixes));
    run_mix(mixes, cases, counts, "f16", "f16");
    if (HasFailure()) return;
  }
  EXPECT_GT(counts.preemptions, 0u) << "the pools were never too small; the test proves less than it says";
  EXPECT_GT(counts.cached, 0u);
  std::printf("%u mixes, %llu requests compared, %llu preemptions, %llu cached tokens\n", mixes,
              static_cast<unsigned long long>(counts.compared), static_cast<unsigned long long>(counts.preemptions),
              static_cast<unsigned long long>(counts.cached));
}

// Caches that pack closed blocks: packing must not depend on who runs beside a request, on chunks, preemptions or hits.
TEST(ModelMix, IdsAreThoseOfEachAloneWithPackedCaches) {
  const std::pair<const char*, const char*> pairs[] = {{"tq3", "tq3"}, {"rq4_planar", "tq2"}, {"q8", "rq3_iso"}, {"tq4", "f16"}};
  Counts counts;
  for (const auto& [k, v] : pairs) {
    SCOPED_TRACE(std::string(k) + " and " + v);
    const std::vector<Case> cases = make_cases(16, k, v);
    ASSERT_FALSE(cases.empty());
    for (uint32_t seed = 100; seed < 102; ++seed) {
      run_mix(seed, cases, counts, k, v);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(counts.preemptions, 0u);
  EXPECT_GT(counts.cached, 0u);
}

}  // namespace turbo::engine::testing
