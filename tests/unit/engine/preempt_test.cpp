// Too few blocks or places: who gives way, and that nobody can tell from the output.
#include <gtest/gtest.h>

#include "requests.h"
#include "scripted_drafter.h"

namespace turbo::engine::testing {
namespace {

// Listens to when requests end, in one list.
struct Finisher : Collector {
  Finisher(std::string name, std::vector<std::string>& order, std::mutex& mutex) : name(std::move(name)), order(order), mutex(mutex) {}
  void on_finish(const Finish& finish) override {
    {
      std::lock_guard lock(mutex);
      order.push_back(name);
    }
    Collector::on_finish(finish);
  }
  std::string name;
  std::vector<std::string>& order;
  std::mutex& mutex;
};

}  // namespace

TEST(Preempt, TheBackGivesWayAndResumesExactly) {
  for (const bool packs : {false, true}) {
    for (const bool drafts : {false, true}) {
      FakeModel model(6, 4, packs, packs ? 3 : 0);
      ScriptedDrafter drafter;
      if (drafts) {
        model.drafter = scripted_api();
        model.drafter_self = &drafter;
      }
      auto engine = std::move(Engine::start(model.parts(), limits(384))).value();
      std::mt19937 rng(7);
      std::vector<std::vector<int32_t>> prompts;
      std::vector<std::shared_ptr<Collector>> collectors;
      for (int i = 0; i < 4; ++i) {
        prompts.push_back(random_prompt(rng, 30));
        collectors.push_back(submit(*engine, greedy_request(prompts.back(), 250)));
      }
      uint32_t preemptions = 0;
      for (int i = 0; i < 4; ++i) {
        const Finish finish = collectors[i]->wait();
        ASSERT_EQ(finish.reason, FinishReason::length) << finish.status.message();
        ASSERT_EQ(collectors[i]->ids(), expected_tokens(prompts[i], 250)) << i;
        if (i == 0) {
          EXPECT_EQ(finish.preemptions, 0u) << "the first in rank never gives way";
        }
        preemptions += finish.preemptions;
      }
      EXPECT_GT(preemptions, 0u);
      EXPECT_EQ(engine->snapshot().preemptions, preemptions);
      EXPECT_FALSE(drafter.wrong_history);
      EXPECT_EQ(model.pack.violation, "");
    }
  }
}

TEST(Preempt, HigherPriorityTakesThePlaceOfLower) {
  FakeModel model(64, 8);
  model.pack.slow_run_us = 300;
  EngineLimits one = limits();
  one.max_running = 1;
  auto engine = std::move(Engine::start(model.parts(), one)).value();
  std::vector<std::string> order;
  std::mutex mutex;
  const auto send = [&](const char* name, int32_t priority, uint32_t n) {
    Request request = greedy_request({1, 2, 3}, n);
    request.priority = priority;
    auto finisher = std::make_shared<Finisher>(name, order, mutex);
    EXPECT_TRUE(engine->submit(request, finisher));
    return finisher;
  };
  auto low = send("low", 0, 300);
  ASSERT_TRUE(low->wait_for_tokens(5));
  auto equal = send("equal", 0, 5), high = send("high", 5, 5);
  for (const auto& finisher : {low, equal, high}) finisher->wait();
  EXPECT_EQ(order, (std::vector<std::string>{"high", "low", "equal"}));
  EXPECT_EQ(low->ids(), expected_tokens({1, 2, 3}, 300));
  EXPECT_EQ(engine->snapshot().preemptions, 1u);
}

TEST(Preempt, AClientWithManyRequestsDoesNotStarveOneWithFew) {
  FakeModel model(64, 8);
  EngineLimits one = limits();
  one.max_running = 1;
  model.pack.slow_run_us = 100;
  auto engine = std::move(Engine::start(model.parts(), one)).value();
  std::vector<std::string> order;
  std::mutex mutex;
  std::vector<std::shared_ptr<Finisher>> all;
  const auto send = [&](const char* name, uint64_t client) {
    Request request = greedy_request(std::vector<int32_t>(20, static_cast<int32_t>(client)), 20);
    request.client = client;
    all.push_back(std::make_shared<Finisher>(name, order, mutex));
    ASSERT_TRUE(engine->submit(request, all.back()));
  };
  for (int i = 0; i < 20; ++i) send("many", 1);
  send("few", 2);
  for (const auto& finisher : all) finisher->wait();
  const auto at = std::find(order.begin(), order.end(), "few") - order.begin();
  EXPECT_LT(at, 4) << "it waited for " << at << " others";
}

// What waited long enough to be admitted also keeps its place: it is not sent back for the next of higher priority.
TEST(Preempt, LowPriorityIsServedUnderASteadyStreamOfHigher) {
  FakeModel model(64, 8);
  EngineLimits one = limits();
  one.max_running = 1;
  model.pack.slow_run_us = 100;
  auto engine = std::move(Engine::start(model.parts(), one)).value();
  Request high = greedy_request({4, 5}, 3);
  high.priority = 2;
  std::vector<std::shared_ptr<Collector>> line;
  for (int i = 0; i < 8; ++i) line.push_back(submit(*engine, high));
  auto waiting = submit(*engine, greedy_request({1, 2, 3}, 20));
  for (int sent = 0; waiting->n_finished() == 0; ++sent) {
    ASSERT_LT(sent, 1000) << "it starved";
    line[sent % 8]->wait();
    line[sent % 8] = submit(*engine, high);
  }
  EXPECT_EQ(waiting->ids(), expected_tokens({1, 2, 3}, 20));
}

TEST(Preempt, StreamsKeepTheirRhythmWhileALongPromptComesIn) {
  FakeModel model(200, 8);
  model.pack.row_us = 50;
  EngineLimits paced = limits(8192);
  paced.max_step_rows = 1024;
  paced.prefill_chunk = 1024;
  paced.step_ms = 5;
  auto engine = std::move(Engine::start(model.parts(), paced)).value();
  auto stream = submit(*engine, greedy_request({1, 2}, 200));
  ASSERT_TRUE(stream->wait_for_tokens(3));
  auto prompt = submit(*engine, greedy_request(std::vector<int32_t>(3000, 5), 1));
  prompt->wait();
  stream->wait();
  // Steps of at most 5 ms are about 100 rows of 50 us; the first guess is 64.
  EXPECT_LE(model.pack.largest_step, 160u);
  EXPECT_GE(model.pack.largest_step, 32u);
}

TEST(Preempt, APromptAloneTakesWholeChunks) {
  FakeModel model(200, 8);
  model.pack.row_us = 50;
  EngineLimits paced = limits(8192);
  paced.max_step_rows = 1024;
  paced.prefill_chunk = 500;
  paced.step_ms = 5;
  auto engine = std::move(Engine::start(model.parts(), paced)).value();
  submit(*engine, greedy_request(std::vector<int32_t>(3000, 5), 1))->wait();
  EXPECT_EQ(model.pack.largest_step, 500u);
}

TEST(Preempt, LiveRequestsCanBeListed) {
  FakeModel model(64, 8);
  model.pack.slow_run_us = 500;
  EngineLimits one = limits();
  one.max_running = 1;
  auto engine = std::move(Engine::start(model.parts(), one)).value();
  Request request = greedy_request({4, 5, 6}, 300);
  request.name = "first";
  auto first = submit(*engine, request);
  ASSERT_TRUE(first->wait_for_tokens(2));
  request.name = "second";
  request.priority = -1;
  auto second = submit(*engine, request);
  const auto all = engine->requests(true);
  ASSERT_TRUE(all);
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ((*all)[0].name, "first");
  EXPECT_EQ((*all)[0].state, RequestState::generating);
  EXPECT_GE((*all)[0].generated_tokens, 2u);
  EXPECT_EQ((*all)[0].prompt, (std::vector<int32_t>{4, 5, 6}));
  EXPECT_EQ((*all)[1].state, RequestState::waiting);
  EXPECT_EQ((*all)[1].priority, -1);
  EXPECT_TRUE(engine->requests(false)->at(0).prompt.empty());
  engine->drain(0);
  EXPECT_EQ(engine->requests(false).status().code(), Code::cancelled);
}

}  // namespace turbo::engine::testing
