// The engine against the fake device: every test compares with decoding by the definition.
#include "engine/engine.h"

#include <future>
#include <gtest/gtest.h>

#include <random>

#include "requests.h"
#include "scripted_drafter.h"

namespace turbo::engine::testing {
TEST(Engine, GreedyDecodingEqualsTheDefinition) {
  FakeModel model(64, 8);
  auto engine = std::move(Engine::start(model.parts(), limits())).value();
  std::mt19937 rng(1);
  for (const uint32_t n : {1u, 2u, 63u, 64u, 65u, 200u}) {
    const auto prompt = random_prompt(rng, n);
    auto collector = std::make_shared<Collector>();
    ASSERT_TRUE(engine->submit(greedy_request(prompt, 70), collector));
    const Finish finish = collector->wait();
    EXPECT_EQ(finish.reason, FinishReason::length) << finish.status.message();
    EXPECT_EQ(finish.usage.prompt_tokens, n);
    EXPECT_EQ(finish.usage.completion_tokens, 70u);
    EXPECT_EQ(collector->ids(), expected_tokens(prompt, 70)) << n;
  }
}

// Invariants: batch membership is invisible; no block leaks; one finish per request.
TEST(Engine, RandomMixesOfRequestsGiveWhatEachGivesAlone) {
  for (const bool packs : {false, true}) {
    FakeModel model(40, 8, packs, packs ? 4 : 0);
    ScriptedDrafter drafter;
    model.drafter = scripted_api();
    model.drafter_self = &drafter;
    auto engine = std::move(Engine::start(model.parts(), limits(300))).value();
    std::mt19937 rng(packs ? 11 : 12);
    struct Sent {
      std::vector<int32_t> prompt;
      uint32_t n;
      std::shared_ptr<Collector> collector;
      bool cancelled;
    };
    std::vector<Sent> sent;
    for (int i = 0; i < 150; ++i) {
      Sent s{random_prompt(rng, 1 + rng() % 180), 1 + static_cast<uint32_t>(rng() % 90), std::make_shared<Collector>(), false};
      auto id = engine->submit(greedy_request(s.prompt, s.n), s.collector);
      ASSERT_TRUE(id) << id.status().message();
      if (rng() % 5 == 0) s.cancelled = engine->cancel(*id);
      sent.push_back(std::move(s));
    }
    for (Sent& s : sent) {
      const Finish finish = s.collector->wait();
      const auto expected = expected_tokens(s.prompt, s.n);
      auto got = s.collector->ids();
      if (finish.reason == FinishReason::cancelled) {
        ASSERT_TRUE(s.cancelled);
        ASSERT_LE(got.size(), expected.size());
        ASSERT_TRUE(std::equal(got.begin(), got.end(), expected.begin()));
      } else {
        ASSERT_EQ(finish.reason, FinishReason::length) << finish.status.message();
        ASSERT_EQ(got, expected);
      }
      ASSERT_EQ(s.collector->n_finished(), 1);
    }
    EXPECT_TRUE(engine->drain(5000));
    EXPECT_EQ(engine->snapshot().kv_blocks_used, 0u);
    EXPECT_TRUE(model.cache->check_idle());
    EXPECT_EQ(engine->snapshot().leaks, 0u);
    EXPECT_FALSE(drafter.wrong_history);
    EXPECT_GT(drafter.proposals, 100u);
    EXPECT_EQ(model.pack.violation, "");
    EXPECT_LE(model.pack.largest_step, 96u);
  }
}

TEST(Engine, SpeculationEqualsNoSpeculationSampled) {
  FakeModel plain(64, 8), drafted(64, 8);
  ScriptedDrafter drafter;
  drafted.drafter = scripted_api();
  drafted.drafter_self = &drafter;
  auto a = std::move(Engine::start(plain.parts(), limits())).value();
  auto b = std::move(Engine::start(drafted.parts(), limits())).value();
  std::mt19937 rng(5);
  for (int i = 0; i < 10; ++i) {
    Request request = greedy_request(random_prompt(rng, 1 + rng() % 100), 60);
    request.sampling.temperature = 0.8f;
    request.sampling.seed = rng();
    auto ca = std::make_shared<Collector>(), cb = std::make_shared<Collector>();
    ASSERT_TRUE(a->submit(request, ca));
    ASSERT_TRUE(b->submit(request, cb));
    ca->wait();
    cb->wait();
    ASSERT_EQ(ca->ids(), cb->ids());
    ASSERT_EQ(ca->ids().size(), 60u);
  }
}

TEST(Engine, AFaultyDrafterCostsNothingButItsDrafts) {
  for (const int mode : {1, 2, 3, 4, 5}) {
    FakeModel model(64, 8);
    ScriptedDrafter drafter;
    drafter.mode = mode;
    model.drafter = scripted_api();
    model.drafter_self = &drafter;
    auto engine = std::move(Engine::start(model.parts(), limits())).value();
    std::mt19937 rng(3);
    const auto prompt = random_prompt(rng, 40);
    auto collector = std::make_shared<Collector>();
    ASSERT_TRUE(engine->submit(greedy_request(prompt, 80), collector));
    const Finish finish = collector->wait();
    EXPECT_EQ(collector->ids(), expected_tokens(prompt, 80)) << mode;
    if (mode == 1) EXPECT_GT(finish.speculation.accepted, 20u);
    else EXPECT_EQ(finish.speculation.accepted, 0u);
  }
}

TEST(Engine, EndTokensStopAndAreNotEmitted) {
  FakeModel model(64, 8);
  auto engine = std::move(Engine::start(model.parts(), limits())).value();
  const std::vector<int32_t> prompt{5, 6, 7};
  const auto expected = expected_tokens(prompt, 20);
  Request request = greedy_request(prompt, 20);
  request.end_tokens = {expected[6]};
  size_t first = 0;
  while (expected[first] != expected[6]) ++first;
  auto collector = std::make_shared<Collector>();
  ASSERT_TRUE(engine->submit(request, collector));
  const Finish finish = collector->wait();
  EXPECT_EQ(finish.reason, FinishReason::stop);
  EXPECT_EQ(finish.stop_token, expected[6]);
  EXPECT_EQ(collector->ids().size(), first);
  EXPECT_EQ(finish.usage.completion_tokens, first);

  request.min_tokens = static_cast<uint32_t>(first) + 3;  // the end token is masked, others are drawn instead
  auto longer = std::make_shared<Collector>();
  ASSERT_TRUE(engine->submit(request, longer));
  longer->wait();
  EXPECT_GE(longer->ids().size(), first + 3);
}

TEST(Engine, PromptOnlyAndScoring) {
  FakeModel model(64, 8);
  EngineLimits few = limits();
  few.max_logit_rows = 16;
  auto engine = std::move(Engine::start(model.parts(), few)).value();
  std::mt19937 rng(9);
  Request request = greedy_request(random_prompt(rng, 150), 0);
  request.prompt_logprobs = true;
  auto collector = std::make_shared<Collector>();
  ASSERT_TRUE(engine->submit(request, collector));
  EXPECT_EQ(collector->wait().reason, FinishReason::length);
  const auto scores = collector->scores();
  ASSERT_EQ(scores.size(), 149u);
  EXPECT_FALSE(collector->gap());
  for (size_t i = 0; i < scores.size(); ++i) {
    const std::vector<int32_t> before(request.prompt.begin(), request.prompt.begin() + i + 1);
    const uint64_t hash = path_hash(before);
    double sum = 0;
    for (uint32_t t = 0; t < kVocab; ++t) sum += std::exp(double(path_logit(hash, t)));
    ASSERT_EQ(scores[i].id, request.prompt[i + 1]);
    ASSERT_NEAR(scores[i].logprob, path_logit(hash, scores[i].id) - std::log(sum), 1e-4);
  }
}

TEST(Engine, RefusesWhatCannotRun) {
  FakeModel model(2, 8);
  EngineLimits small = limits(1024);
  small.max_queue = 4;
  auto engine = std::move(Engine::start(model.parts(), small)).value();
  auto collector = std::make_shared<Collector>();
  EXPECT_EQ(engine->submit(greedy_request({}, 4), collector).status().code(), Code::invalid_argument);
  EXPECT_EQ(engine->submit(greedy_request({-1}, 4), collector).status().code(), Code::invalid_argument);
  EXPECT_EQ(engine->submit(greedy_request({static_cast<int32_t>(kVocab)}, 4), collector).status().code(), Code::invalid_argument);
  EXPECT_EQ(engine->submit(greedy_request({1}, 4000), collector).status().code(), Code::invalid_argument);
  EXPECT_EQ(engine->submit(greedy_request({1}, 200), collector).status().code(), Code::resource_exhausted);
}

TEST(Engine, QueueIsBoundedAndTimeoutsFire) {
  FakeModel model(2, 8);
  model.pack.slow_run_us = 2000;
  EngineLimits small = limits(128);
  small.max_queue = 3;
  auto engine = std::move(Engine::start(model.parts(), small)).value();
  std::vector<std::shared_ptr<Collector>> collectors;
  int refused = 0;
  for (int i = 0; i < 12; ++i) {
    Request request = greedy_request({1, 2, 3}, 120);
    request.timeout_ms = i == 0 ? 0 : 50;
    auto collector = std::make_shared<Collector>();
    auto id = engine->submit(request, collector);
    if (!id) {
      EXPECT_EQ(id.status().code(), Code::resource_exhausted);
      ++refused;
    } else {
      collectors.push_back(collector);
    }
  }
  EXPECT_GT(refused, 4);
  EXPECT_EQ(collectors[0]->wait().reason, FinishReason::length);
  EXPECT_EQ(collectors.back()->wait().reason, FinishReason::timeout);
}

TEST(Engine, ADeviceFailureEndsTheStepsRequestsAndTheEngineGoesOn) {
  FakeModel model(64, 8);
  auto engine = std::move(Engine::start(model.parts(), limits())).value();
  model.pack.fail_runs = 1;
  auto collector = std::make_shared<Collector>();
  ASSERT_TRUE(engine->submit(greedy_request({1, 2}, 5), collector));
  const Finish finish = collector->wait();
  EXPECT_EQ(finish.reason, FinishReason::failed);
  EXPECT_NE(finish.status.message().find("scripted failure"), std::string::npos);
  auto next = std::make_shared<Collector>();
  ASSERT_TRUE(engine->submit(greedy_request({1, 2}, 5), next));
  EXPECT_EQ(next->wait().reason, FinishReason::length);
}

TEST(Engine, ALostDeviceEndsAllRequestsForGood) {
  FakeModel model(64, 8);
  EngineLimits one = limits();
  one.max_running = 1;
  auto engine = std::move(Engine::start(model.parts(), one)).value();
  std::promise<Status> told;
  engine->on_failure([&](const Status& status) { told.set_value(status); });
  EXPECT_TRUE(engine->failure().is_ok());
  model.pack.slow_run_us = 2000;
  auto running = std::make_shared<Collector>(), waiting = std::make_shared<Collector>();
  ASSERT_TRUE(engine->submit(greedy_request({1, 2}, 900), running));
  ASSERT_TRUE(engine->submit(greedy_request({1, 2}, 5), waiting));
  ASSERT_TRUE(running->wait_for_tokens(2));
  model.pack.fail_status = TURBO_DEVICE_LOST;
  model.pack.fail_runs = 1000000;
  for (const auto& collector : {running, waiting}) {
    const Finish finish = collector->wait();
    EXPECT_EQ(finish.reason, FinishReason::failed);
    EXPECT_EQ(finish.status.code(), Code::device_lost);
  }
  EXPECT_EQ(told.get_future().get().code(), Code::device_lost);
  EXPECT_EQ(engine->failure().code(), Code::device_lost);
  const auto refused = engine->submit(greedy_request({1, 2}, 5), std::make_shared<Collector>());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.status().code(), Code::device_lost);
  EXPECT_TRUE(engine->drain(1000));
  bool at_once = false;
  engine->on_failure([&](const Status&) { at_once = true; });
  EXPECT_TRUE(at_once);
}

TEST(Engine, ShutdownCancelsWhatRuns) {
  FakeModel model(64, 8);
  model.pack.slow_run_us = 1000;
  auto collector = std::make_shared<Collector>();
  {
    auto engine = std::move(Engine::start(model.parts(), limits())).value();
    ASSERT_TRUE(engine->submit(greedy_request({1}, 900), collector));
    ASSERT_TRUE(collector->wait_for_tokens(2));
  }
  EXPECT_EQ(collector->wait().reason, FinishReason::cancelled);
  EXPECT_EQ(collector->n_finished(), 1);
}

TEST(Engine, WhatItsListenerFinishesIsStoppedAndNotCancelled) {
  FakeModel model(64, 8);
  model.pack.slow_run_us = 500;
  auto engine = std::move(Engine::start(model.parts(), limits())).value();
  auto collector = std::make_shared<Collector>();
  const auto id = engine->submit(greedy_request({1}, 900), collector);
  ASSERT_TRUE(id);
  ASSERT_TRUE(collector->wait_for_tokens(3));
  EXPECT_TRUE(engine->finish(*id));
  EXPECT_EQ(collector->wait().reason, FinishReason::stop);
  EXPECT_EQ(engine->metrics().cancelled.Value(), 0);
  EXPECT_TRUE(engine->drain(1000));
  EXPECT_EQ(engine->snapshot().kv_blocks_used, 0u);
}

TEST(Engine, TimeIsCountedByWhatItWentTo) {
  FakeModel model(64, 8);
  model.pack.slow_run_us = 2000;
  auto engine = std::move(Engine::start(model.parts(), limits())).value();
  auto collector = std::make_shared<Collector>();
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(engine->submit(greedy_request({1}, 50), collector));
  ASSERT_EQ(collector->wait().reason, FinishReason::length);
  EXPECT_TRUE(engine->drain(1000));
  const double whole = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const Metrics& metrics = engine->metrics();
  EXPECT_GE(metrics.compute_seconds.Value(), 50 * 2e-3);
  EXPECT_GT(metrics.sample_seconds.Value(), 0);
  EXPECT_GT(metrics.deliver_seconds.Value(), 0);
  EXPECT_GT(metrics.schedule_seconds.Value(), 0);
  EXPECT_LE(metrics.compute_seconds.Value() + metrics.sample_seconds.Value() + metrics.deliver_seconds.Value() + metrics.schedule_seconds.Value(),
            whole);
}

}  // namespace turbo::engine::testing
