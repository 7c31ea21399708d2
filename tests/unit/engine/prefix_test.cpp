// The prefix cache seen from outside: what is counted, and that nothing else shows.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "requests.h"
#include "scripted_drafter.h"
#include "support/temp_dir.h"

namespace turbo::engine::testing {

TEST(Prefix, ASecondTurnComputesOnlyWhatIsNew) {
  for (const bool packs : {false, true}) {
    FakeModel model(64, 8, packs, packs ? 4 : 0);
    auto engine = std::move(Engine::start(model.parts(), limits())).value();
    std::mt19937 rng(1);
    std::vector<int32_t> chat = random_prompt(rng, 100);
    uint32_t expected_cached = 0;
    for (int turn = 0; turn < 6; ++turn) {
      auto collector = submit(*engine, greedy_request(chat, 30));
      EXPECT_EQ(collector->wait().usage.cached_tokens, expected_cached) << turn;
      ASSERT_EQ(collector->ids(), expected_tokens(chat, 30));
      const auto answer = collector->ids();
      chat.insert(chat.end(), answer.begin(), answer.end());
      expected_cached = (static_cast<uint32_t>(chat.size()) - 1) / 64 * 64;  // the last token was never computed
      const auto question = random_prompt(rng, 20);
      chat.insert(chat.end(), question.begin(), question.end());
    }
    // 379 positions were computed: five whole blocks.
    EXPECT_EQ(engine->snapshot().kv_blocks_cached, 5u);
    EXPECT_EQ(engine->flush_prefix_cache().value(), 5u);
    EXPECT_EQ(model.cache->n_used(), 0u);
  }
}

TEST(Prefix, SaltsAndOptOutsShareNothing) {
  FakeModel model(64, 8);
  auto engine = std::move(Engine::start(model.parts(), limits())).value();
  std::mt19937 rng(2);
  Request request = greedy_request(random_prompt(rng, 200), 3);
  EXPECT_EQ(submit(*engine, request)->wait().usage.cached_tokens, 0u);
  EXPECT_EQ(submit(*engine, request)->wait().usage.cached_tokens, 192u);
  request.cache_salt = "tenant";
  EXPECT_EQ(submit(*engine, request)->wait().usage.cached_tokens, 0u);
  EXPECT_EQ(submit(*engine, request)->wait().usage.cached_tokens, 192u);
  request.use_prefix_cache = false;
  EXPECT_EQ(submit(*engine, request)->wait().usage.cached_tokens, 0u);
  request.use_prefix_cache = true;
  request.prompt_logprobs = true;  // every row must run
  EXPECT_EQ(submit(*engine, request)->wait().usage.cached_tokens, 0u);
}

TEST(Prefix, TurnedOffItKeepsNothing) {
  FakeModel model(64, 8);
  EngineLimits off = limits();
  off.prefix_cache = false;
  auto engine = std::move(Engine::start(model.parts(), off)).value();
  const Request request = greedy_request(std::vector<int32_t>(200, 1), 3);
  submit(*engine, request)->wait();
  EXPECT_EQ(submit(*engine, request)->wait().usage.cached_tokens, 0u);
  EXPECT_EQ(engine->flush_prefix_cache().value(), 0u);
}

TEST(Prefix, EqualPromptsSentTogetherAreComputedOnce) {
  FakeModel model(64, 8);
  model.pack.slow_run_us = 200;
  auto engine = std::move(Engine::start(model.parts(), limits())).value();
  std::mt19937 rng(3);
  const auto prompt = random_prompt(rng, 300);
  std::vector<std::shared_ptr<Collector>> collectors;
  for (int i = 0; i < 6; ++i) collectors.push_back(submit(*engine, greedy_request(prompt, 5)));
  uint32_t computed = 0;
  for (const auto& collector : collectors) {
    const Finish finish = collector->wait();
    computed += finish.usage.prompt_tokens - finish.usage.cached_tokens;
    EXPECT_EQ(collector->ids(), expected_tokens(prompt, 5));
  }
  EXPECT_EQ(computed, 300u + 5u * (300 - 256));
}

TEST(Prefix, ADrafterHearsCachedTokensToo) {
  FakeModel model(64, 8);
  ScriptedDrafter drafter;
  model.drafter = scripted_api();
  model.drafter_self = &drafter;
  auto engine = std::move(Engine::start(model.parts(), limits())).value();
  std::mt19937 rng(4);
  const auto prompt = random_prompt(rng, 150);
  submit(*engine, greedy_request(prompt, 40))->wait();
  auto collector = submit(*engine, greedy_request(prompt, 40));
  const Finish finish = collector->wait();
  EXPECT_EQ(finish.usage.cached_tokens, 128u);
  EXPECT_GT(finish.speculation.accepted, 5u);
  EXPECT_FALSE(drafter.wrong_history);
  EXPECT_EQ(collector->ids(), expected_tokens(prompt, 40));
}

// All but the last prompt token came from the cache: that one is the next step's root, and no draft fits below it yet.
TEST(Prefix, ADrafterIsNotAskedBeforeItKnowsTheRoot) {
  FakeModel model(64, 8);
  ScriptedDrafter drafter;
  model.drafter = scripted_api();
  model.drafter_self = &drafter;
  auto engine = std::move(Engine::start(model.parts(), limits())).value();
  std::mt19937 rng(6);
  const auto prompt = random_prompt(rng, 65);
  for (int i = 0; i < 2; ++i) {
    auto collector = submit(*engine, greedy_request(prompt, 30));
    EXPECT_EQ(collector->wait().usage.cached_tokens, i * 64u);
    EXPECT_EQ(collector->ids(), expected_tokens(prompt, 30));
  }
  EXPECT_GT(drafter.proposals, 5u);
  EXPECT_FALSE(drafter.asked_early);
}

// Draft nodes beyond an end token were computed and accepted, but they are no tokens of the request: a block that only
// they close must not be found by anyone.
TEST(Prefix, WhatLiesBeyondAnEndTokenIsNotPublished) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    FakeModel model(64, 8, seed % 2, 0);
    ScriptedDrafter drafter;
    drafter.mode = 1;
    drafter.rng.seed(seed);
    model.drafter = scripted_api();
    model.drafter_self = &drafter;
    auto engine = std::move(Engine::start(model.parts(), limits())).value();
    std::mt19937 rng(seed);
    Request request = greedy_request(random_prompt(rng, 58), 40);
    const auto expected = expected_tokens(request.prompt, 40);
    request.end_tokens = {expected[seed % 6]};
    auto collector = submit(*engine, request);
    EXPECT_EQ(collector->wait().reason, FinishReason::stop);
    const auto end = std::find(expected.begin(), expected.end(), request.end_tokens[0]) - expected.begin();
    ASSERT_EQ(collector->ids(), std::vector<int32_t>(expected.begin(), expected.begin() + end));
    ASSERT_EQ(engine->flush_prefix_cache().value(), (58 + end) / 64) << "seed " << seed;
  }
}

class PrefixFiles : public ::testing::TestWithParam<bool> {
 protected:
  turbo::testing::TempDir folder;
  std::filesystem::path file = folder.path() / "prefix.kv";
  FakeModel model{64, 8, GetParam(), GetParam() ? 70u : 0u};
};

TEST_P(PrefixFiles, ASavedPrefixServesAnotherEngine) {
  std::mt19937 rng(5);
  const auto prompt = random_prompt(rng, 200);
  {
    auto engine = std::move(Engine::start(model.parts(), limits())).value();
    EXPECT_EQ(engine->save_prefix(prompt, "", file).status().code(), Code::not_found);
    submit(*engine, greedy_request(prompt, 10))->wait();
    const auto saved = engine->save_prefix(prompt, "", file);
    ASSERT_TRUE(saved) << saved.status().message();
    EXPECT_EQ(*saved, 192u);
    EXPECT_EQ(engine->save_prefix(prompt, "tenant", file).status().code(), Code::not_found);
  }
  FakeModel other(16, 4, GetParam(), GetParam() ? 70u : 0u);
  auto engine = std::move(Engine::start(other.parts(), limits())).value();
  ASSERT_EQ(engine->restore_prefix("", file).value(), 192u);
  ASSERT_EQ(engine->restore_prefix("", file).value(), 192u) << "what is there already is no error";
  EXPECT_EQ(engine->snapshot().kv_blocks_used, 0u);
  auto collector = submit(*engine, greedy_request(prompt, 60));
  EXPECT_EQ(collector->wait().usage.cached_tokens, 192u);
  EXPECT_EQ(collector->ids(), expected_tokens(prompt, 60));
  EXPECT_EQ(other.pack.violation, "");
  EXPECT_TRUE(engine->drain(1000));
  EXPECT_EQ(engine->snapshot().leaks, 0u);
  EXPECT_EQ(engine->restore_prefix("", file).status().code(), Code::cancelled);
}

TEST_P(PrefixFiles, WhatDoesNotFitIsRefusedAndServingGoesOn) {
  const std::vector<int32_t> prompt(200, 3);
  auto engine = std::move(Engine::start(model.parts(), limits())).value();
  submit(*engine, greedy_request(prompt, 2))->wait();
  ASSERT_TRUE(engine->save_prefix(prompt, "", file));
  ASSERT_TRUE(engine->flush_prefix_cache());
  model.fingerprint[5] = '0';
  EXPECT_EQ(engine->restore_prefix("", file).status().code(), Code::unsupported);
  model.fingerprint[5] = 'f';
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(-5, std::ios::end).put('!');
  EXPECT_EQ(engine->restore_prefix("", file).status().code(), Code::corrupt_input);
  EXPECT_EQ(engine->snapshot().kv_blocks_cached, 0u) << "a damaged file leaves nothing behind";
  FakeModel tiny(2, 2, GetParam(), GetParam() ? 70u : 0u);
  auto small = std::move(Engine::start(tiny.parts(), limits(128))).value();
  EXPECT_EQ(small->restore_prefix("", file).status().code(), Code::resource_exhausted);
  EXPECT_EQ(submit(*engine, greedy_request(prompt, 2))->wait().reason, FinishReason::length);
}

INSTANTIATE_TEST_SUITE_P(Forms, PrefixFiles, ::testing::Bool(), [](const auto& info) { return info.param ? "two" : "one"; });

}  // namespace turbo::engine::testing
