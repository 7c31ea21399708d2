// Random mixes against a reference that knows no scheduler: whatever runs beside it, a request's tokens are those of
// decoding by the definition. Tiny pools force preemption; shared beginnings use the prefix cache; blocks are poisoned
// by the fake device's content, so a wrong hit changes the output.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <thread>

#include "requests.h"
#include "scripted_drafter.h"

namespace turbo::engine::testing {
namespace {

// Longer by hand: TURBO_MIX_SECONDS=600 build/release/tests/engine_test --gtest_filter='Mix.*'
std::chrono::milliseconds time_limit() {
  const char* text = std::getenv("TURBO_MIX_SECONDS");
  return std::chrono::milliseconds(text ? std::atol(text) * 1000 : 1500);
}

struct Sent {
  Request request;
  std::vector<int32_t> expected;
  std::shared_ptr<Collector> collector;
  bool cancelled = false;
  bool stops = false;  // at an end token
};

class Mix {
 public:
  explicit Mix(uint32_t seed) : rng_(seed) {
    packs_ = rng_() % 2;
    n_blocks_ = 6 + rng_() % 60;
    limits_.max_running = 1 + rng_() % 8;
    limits_.max_step_rows = 16 + rng_() % 150;
    limits_.prefill_chunk = 8 + rng_() % 140;
    limits_.max_logit_rows = 4 + rng_() % 40;
    limits_.max_queue = 1000;
    limits_.context = 64 * std::min(n_blocks_, 8u);
    limits_.step_ms = rng_() % 2 ? 1 : 0;
    limits_.prefix_cache = rng_() % 4 != 0;
    for (int i = 0; i < 4; ++i) beginnings_.push_back(random_tokens(40 + rng_() % 200));
  }

  void run() {
    FakeModel model(n_blocks_, limits_.max_running, packs_, packs_ ? rng_() % 70 : 0);
    ScriptedDrafter drafter;
    if (rng_() % 2) {
      model.drafter = scripted_api();
      model.drafter_self = &drafter;
      drafter.mode = static_cast<int>(rng_() % 6);
    }
    EngineParts parts = model.parts();
    parts.adaptive_drafts = rng_() % 2;
    auto engine = std::move(Engine::start(parts, limits_)).value();
    std::vector<Sent> sent;
    for (uint32_t i = 0, n = 20 + rng_() % 60; i < n; ++i) {
      sent.push_back(make_one());
      auto id = engine->submit(sent.back().request, sent.back().collector);
      ASSERT_TRUE(id) << id.status().message();
      if (rng_() % 6 == 0) sent.back().cancelled = engine->cancel(*id);
      if (rng_() % 10 == 0) sent[rng_() % sent.size()].collector->wait_for_tokens(1 + rng_() % 10);
      if (rng_() % 20 == 0) {
        ASSERT_TRUE(engine->flush_prefix_cache());
      }
    }
    for (Sent& one : sent) check(one);
    EXPECT_TRUE(engine->drain(10000));
    const Snapshot end = engine->snapshot();
    preemptions += end.preemptions;
    EXPECT_EQ(end.kv_blocks_used, 0u);
    EXPECT_EQ(end.leaks, 0u);
    EXPECT_TRUE(model.cache->check_idle());
    EXPECT_EQ(model.pack.violation, "");
    EXPECT_LE(model.pack.largest_step, std::max(limits_.max_step_rows, std::max(limits_.max_logit_rows, limits_.max_running)));
    EXPECT_FALSE(drafter.wrong_history);
    EXPECT_TRUE(drafter.history.empty()) << "a drafter session outlived its request";
  }

  static inline uint64_t preemptions = 0, cached = 0;

 private:
  std::vector<int32_t> random_tokens(uint32_t n) {
    std::vector<int32_t> tokens(n);
    for (int32_t& token : tokens) token = static_cast<int32_t>(rng_() % kVocab);
    return tokens;
  }
  Sent make_one() {
    Sent one;
    Request& request = one.request;
    request.prompt = beginnings_[rng_() % beginnings_.size()];
    request.prompt.resize(1 + rng_() % request.prompt.size());
    const std::vector<int32_t> rest = random_tokens(rng_() % 80);
    request.prompt.insert(request.prompt.end(), rest.begin(), rest.end());
    request.prompt.resize(std::min<size_t>(request.prompt.size(), limits_.context - 1));
    request.max_tokens = std::min<uint32_t>(limits_.context - static_cast<uint32_t>(request.prompt.size()), 1 + rng_() % 120);
    request.sampling.temperature = 0;
    request.priority = static_cast<int32_t>(rng_() % 3);
    request.client = rng_() % 4;
    request.cache_salt = rng_() % 5 == 0 ? "other" : "";
    request.use_prefix_cache = rng_() % 6 != 0;
    request.use_drafter = rng_() % 4 != 0;
    request.prompt_logprobs = rng_() % 10 == 0;
    one.expected = expected_tokens(request.prompt, request.max_tokens);
    if (rng_() % 3 == 0) request.end_tokens = {static_cast<int32_t>(rng_() % kVocab), static_cast<int32_t>(rng_() % kVocab)};
    const auto end = std::find_first_of(one.expected.begin(), one.expected.end(), request.end_tokens.begin(), request.end_tokens.end());
    one.stops = end != one.expected.end();
    one.expected.erase(end, one.expected.end());
    one.collector = std::make_shared<Collector>();
    return one;
  }
  void check(Sent& one) {
    const Finish finish = one.collector->wait();
    const std::vector<int32_t> got = one.collector->ids();
    cached += finish.usage.cached_tokens;
    ASSERT_LT(finish.usage.cached_tokens, one.request.prompt.size());
    if (finish.reason == FinishReason::cancelled) {
      ASSERT_TRUE(one.cancelled);
      ASSERT_LE(got.size(), one.expected.size());
      ASSERT_TRUE(std::equal(got.begin(), got.end(), one.expected.begin()));
    } else {
      ASSERT_EQ(finish.reason, one.stops ? FinishReason::stop : FinishReason::length) << finish.status.message();
      ASSERT_EQ(got, one.expected) << "preempted " << finish.preemptions << " times, cached " << finish.usage.cached_tokens;
      if (one.request.prompt_logprobs) {
        ASSERT_EQ(one.collector->scores().size(), one.request.prompt.size() - 1);
      }
    }
    ASSERT_FALSE(one.collector->gap());
    ASSERT_EQ(one.collector->n_finished(), 1);
  }

  std::mt19937 rng_;
  bool packs_;
  uint32_t n_blocks_;
  EngineLimits limits_;
  std::vector<std::vector<int32_t>> beginnings_;
};

}  // namespace

TEST(Mix, AnyMixGivesWhatEachGivesAlone) {
  const auto end = std::chrono::steady_clock::now() + time_limit();
  uint32_t seed = 1;
  for (; std::chrono::steady_clock::now() < end; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Mix(seed).run();
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(Mix::preemptions, 0u) << "the pools were never too small; the test proves less than it says";
  EXPECT_GT(Mix::cached, 0u);
  std::printf("%u mixes, %llu preemptions, %llu cached tokens\n", seed - 1, static_cast<unsigned long long>(Mix::preemptions),
              static_cast<unsigned long long>(Mix::cached));
}

TEST(Mix, TenThousandCancelsLeakNothing) {
  FakeModel model(24, 8, true, 3);
  ScriptedDrafter drafter;
  model.drafter = scripted_api();
  model.drafter_self = &drafter;
  EngineLimits limits;
  limits.context = 512;
  limits.max_running = 8;
  limits.max_queue = 64;
  limits.max_step_rows = 64;
  auto engine = std::move(Engine::start(model.parts(), limits)).value();
  std::vector<std::thread> clients;
  std::atomic<uint32_t> ended{0}, twice{0};
  for (uint32_t c = 0; c < 2; ++c)
    clients.emplace_back([&, c] {
      std::mt19937 rng(c);
      for (int i = 0; i < 5000; ++i) {
        Request request;
        request.prompt.assign(1 + rng() % 200, static_cast<int32_t>(rng() % 3));
        request.max_tokens = 100;
        request.client = c;
        auto collector = std::make_shared<Collector>();
        auto id = engine->submit(request, collector);
        if (!id) {
          --i;
          std::this_thread::yield();
          continue;
        }
        if (rng() % 3 == 0) collector->wait_for_tokens(1 + rng() % 4);
        engine->cancel(*id);
        if (rng() % 8 == 0) engine->cancel(*id);
        collector->wait();
        ++ended;
        twice += collector->n_finished() != 1;
      }
    });
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(ended, 10000u);
  EXPECT_EQ(twice, 0u);
  EXPECT_TRUE(engine->drain(5000));
  EXPECT_EQ(engine->snapshot().kv_blocks_used, 0u);
  EXPECT_EQ(engine->snapshot().leaks, 0u);
  EXPECT_TRUE(model.cache->check_idle());
}

}  // namespace turbo::engine::testing
