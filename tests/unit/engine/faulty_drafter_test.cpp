// Drafters that break every rule there is: texts are those of no drafter, requests end, the engine thread does not wait,
// faults are counted, and the sixteenth in a row is the last, said once.
#include <gtest/gtest.h>
#include <spdlog/sinks/ringbuffer_sink.h>
#include <spdlog/spdlog.h>

#include <cmath>
#include <stdexcept>
#include <thread>

#include "requests.h"
#include "scripted_drafter.h"

namespace turbo::engine::testing {
namespace {

enum class Fault {
  none,
  throws_in_open,
  throws_in_close,
  throws_in_observe,
  throws_in_begin,
  throws_in_poll,
  throws_in_cancel,  // with polls that are never ready
  throws_no_exception,  // something else than one
  unknown_status,
  token_too_large,
  token_negative,
  parent_forward,
  parent_itself,
  parent_far,
  one_too_many,
  huge_count,
  duplicate_siblings,
  never_ready,
  slow,  // right, but the engine waits for it
  slow_observer,
};

struct Expected {
  bool counted = true;       // as faults
  bool switched_off = true;
  bool accepts = false;      // some drafts are good
};

Expected expected_of(Fault fault) {
  switch (fault) {
    case Fault::none: return {false, false, true};
    case Fault::throws_in_close: return {true, false, true};
    case Fault::throws_in_cancel: return {true, true, false};
    case Fault::never_ready: return {false, false, false};
    case Fault::slow:
    case Fault::slow_observer: return {true, true, true};
    default: return {};
  }
}

struct FaultyDrafter : ScriptedDrafter {
  Fault fault = Fault::none;
  std::atomic<uint64_t> polls{0}, cancels{0};

  static FaultyDrafter& of(void* self) { return *static_cast<FaultyDrafter*>(self); }
  void spoil(turbo_proposal& p) const {
    switch (fault) {
      case Fault::token_too_large: p.tokens[0] = static_cast<int32_t>(kVocab); break;
      case Fault::token_negative: p.tokens[0] = -1; break;
      case Fault::parent_forward: p.parents[0] = 1; break;
      case Fault::parent_itself: p.parents[0] = 0; break;
      case Fault::parent_far: p.parents[p.n - 1] = 1'000'000; break;
      case Fault::one_too_many: p.n = p.max_slots; break;
      case Fault::huge_count: p.n = UINT32_MAX; break;
      case Fault::duplicate_siblings: {
        if (p.max_slots < 3) { p.tokens[0] = -7; break; }  // no room for two
        p.n = 2;
        p.parents[0] = p.parents[1] = -1;
        p.tokens[1] = p.tokens[0];
        break;
      }
      default: break;
    }
    if (p.probabilities && p.n > 0 && p.n < p.max_slots) p.probabilities[0] = std::nanf("");
  }
};

const turbo_drafter* faulty_api() {
  static const turbo_drafter api = [] {
    turbo_drafter d = *scripted_api();
    d.open = [](void* self, uint32_t sequence, turbo_error* error) -> turbo_status {
      if (FaultyDrafter::of(self).fault == Fault::throws_in_open) throw std::runtime_error("open broke");
      return scripted_api()->open(self, sequence, error);
    };
    d.close = [](void* self, uint32_t sequence) {
      scripted_api()->close(self, sequence);
      if (FaultyDrafter::of(self).fault == Fault::throws_in_close) throw std::runtime_error("close broke");
    };
    d.observe = [](void* self, uint32_t sequence, const turbo_observation* o, turbo_error* error) -> turbo_status {
      if (FaultyDrafter::of(self).fault == Fault::throws_in_observe) throw std::runtime_error("observe broke");
      if (FaultyDrafter::of(self).fault == Fault::slow_observer) std::this_thread::sleep_for(std::chrono::milliseconds(25));
      return scripted_api()->observe(self, sequence, o, error);
    };
    d.begin = [](void* self, turbo_proposal*, uint32_t, turbo_error*) -> turbo_status {
      if (FaultyDrafter::of(self).fault == Fault::throws_in_begin) throw std::runtime_error("begin broke");
      return TURBO_OK;
    };
    d.poll = [](void* self, turbo_proposal* proposals, uint32_t n, turbo_error* error) -> turbo_status {
      FaultyDrafter& drafter = FaultyDrafter::of(self);
      ++drafter.polls;
      if (drafter.fault == Fault::throws_in_poll) throw std::runtime_error("poll broke");
      if (drafter.fault == Fault::throws_no_exception) throw 7;
      if (drafter.fault == Fault::unknown_status) return 4711;
      if (drafter.fault == Fault::never_ready || drafter.fault == Fault::throws_in_cancel) return TURBO_PENDING;
      if (drafter.fault == Fault::slow) std::this_thread::sleep_for(std::chrono::milliseconds(25));
      const turbo_status status = scripted_api()->poll(self, proposals, n, error);
      for (uint32_t i = 0; i < n; ++i) drafter.spoil(proposals[i]);
      return status;
    };
    d.cancel = [](void* self) {
      ++FaultyDrafter::of(self).cancels;
      if (FaultyDrafter::of(self).fault == Fault::throws_in_cancel) throw std::runtime_error("cancel broke");
    };
    return d;
  }();
  return &api;
}

/// Log lines of the process while it lives.
class LogLines {
 public:
  LogLines() : sink_(std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(1000)) { spdlog::default_logger()->sinks().push_back(sink_); }
  ~LogLines() { std::erase(spdlog::default_logger()->sinks(), spdlog::sink_ptr(sink_)); }
  size_t count(const std::string& text) const {
    size_t n = 0;
    for (const std::string& line : sink_->last_formatted()) n += line.find(text) != std::string::npos;
    return n;
  }

 private:
  std::shared_ptr<spdlog::sinks::ringbuffer_sink_mt> sink_;
};

class FaultyDrafters : public ::testing::TestWithParam<int> {};

}  // namespace

TEST_P(FaultyDrafters, CostTheirDraftsAndNothingElse) {
  const auto fault = static_cast<Fault>(GetParam());
  const Expected expected = expected_of(fault);
  LogLines log;
  FakeModel model(64, 8);
  FaultyDrafter drafter;
  drafter.mode = 1;
  drafter.fault = fault;
  model.drafter = faulty_api();
  model.drafter_self = &drafter;
  auto engine = std::move(Engine::start(model.parts(), limits())).value();
  std::mt19937 rng(3);
  uint64_t accepted = 0;
  for (int i = 0; i < 10; ++i) {  // pairs, so that there are steps of two
    const auto a = random_prompt(rng, 40), b = random_prompt(rng, 3);
    const auto first = submit(*engine, greedy_request(a, 60)), second = submit(*engine, greedy_request(b, 60));
    for (const auto& [prompt, run] : {std::pair(a, first), std::pair(b, second)}) {
      const Finish finish = run->wait();
      ASSERT_EQ(finish.reason, FinishReason::length) << finish.status.message();
      ASSERT_EQ(run->ids(), expected_tokens(prompt, 60));
      accepted += finish.speculation.accepted;
    }
  }
  const uint64_t polls = drafter.polls, steps = engine->snapshot().steps;
  const double faults = engine->metrics().plugin_errors.Value(), thread_seconds = engine->metrics().schedule_seconds.Value() + engine->metrics().draft_seconds.Value();
  EXPECT_TRUE(engine->drain(5000));
  EXPECT_EQ(engine->snapshot().leaks, 0u);

  EXPECT_EQ(accepted > 0, expected.accepts);
  EXPECT_EQ(faults > 0, expected.counted);
  EXPECT_EQ(log.count("switched off"), expected.switched_off ? 1u : 0u);
  if (expected.switched_off && fault != Fault::slow_observer) { EXPECT_LE(faults, 16 + 8.0); }  // a round has a fault a sequence
  if (expected.switched_off) { EXPECT_LE(polls, 40u) << "it is asked on and on"; }
  if (fault == Fault::never_ready) {
    EXPECT_GT(engine->metrics().drafts_not_ready.Value(), 100);
    EXPECT_EQ(drafter.cancels, polls);
  }
  // The engine's own work of a step, drafter included, takes tens of microseconds; a wait would take a millisecond.
  const bool waits = fault == Fault::slow || fault == Fault::slow_observer;
  if (!waits) { EXPECT_LT(thread_seconds / static_cast<double>(steps), 0.001); }
  else { EXPECT_LT(thread_seconds, 0.025 * 80); }
}

INSTANTIATE_TEST_SUITE_P(All, FaultyDrafters, ::testing::Range(0, static_cast<int>(Fault::slow_observer) + 1));

// One request's faults, another's good drafts.
TEST(FaultyDrafter, IsSwitchedOffThoughSomeOfItsDraftsAreGood) {
  LogLines log;
  FakeModel model(64, 8);
  FaultyDrafter drafter;
  drafter.mode = 1;
  turbo_drafter api = *faulty_api();
  api.poll = [](void* self, turbo_proposal* proposals, uint32_t n, turbo_error* error) -> turbo_status {
    const turbo_status status = scripted_api()->poll(self, proposals, n, error);
    if (n > 1) proposals[0].tokens[0] = -1;
    return status;
  };
  model.drafter = &api;
  model.drafter_self = &drafter;
  auto engine = std::move(Engine::start(model.parts(), limits())).value();
  std::mt19937 rng(4);
  std::vector<std::pair<std::vector<int32_t>, std::shared_ptr<Collector>>> runs;
  for (int i = 0; i < 4; ++i) {
    const auto prompt = random_prompt(rng, 20);
    runs.emplace_back(prompt, submit(*engine, greedy_request(prompt, 200)));
  }
  for (const auto& [prompt, run] : runs) {
    EXPECT_EQ(run->wait().reason, FinishReason::length);
    EXPECT_EQ(run->ids(), expected_tokens(prompt, 200));
  }
  EXPECT_EQ(log.count("switched off"), 1u);
  EXPECT_EQ(engine->metrics().plugin_errors.Value(), 16);
}

TEST(FaultyDrafter, WithoutUsableNeedsTheEngineRunsWithoutIt) {
  LogLines log;
  for (const int kind : {0, 1, 2, 3, 4}) {
    FakeModel model(64, 8);
    FaultyDrafter drafter;
    turbo_drafter api = *faulty_api();
    static int which;
    which = kind;
    api.needs = [](void*, turbo_drafter_needs* needs, turbo_error*) -> turbo_status {
      needs->max_slots = 8;
      if (which == 0) throw std::runtime_error("needs broke");
      if (which == 1) needs->max_slots = 1'000'000;
      if (which == 2) needs->n_taps = 1000;
      if (which == 3) { needs->n_taps = 1; needs->tap_layers[0] = 99; }
      return which == 4 ? TURBO_INTERNAL : TURBO_OK;
    };
    model.drafter = &api;
    model.drafter_self = &drafter;
    auto engine = Engine::start(model.parts(), limits());
    ASSERT_TRUE(engine) << engine.status().message();
    const auto run = submit(**engine, greedy_request({1, 2, 3}, 20));
    EXPECT_EQ(run->wait().reason, FinishReason::length);
    EXPECT_EQ(run->ids(), expected_tokens({1, 2, 3}, 20));
    EXPECT_EQ(drafter.polls, 0u);
  }
  EXPECT_EQ(log.count("running without a drafter"), 5u);
}

// Speculation is counted as it was emitted: what an end token cuts off was not accepted by anybody.
TEST(DraftStatistics, WhatLiesBeyondAnEndTokenIsNotCounted) {
  FakeModel model(64, 8);
  ScriptedDrafter drafter;
  drafter.mode = 1;
  model.drafter = scripted_api();
  model.drafter_self = &drafter;
  auto engine = std::move(Engine::start(model.parts(), limits())).value();
  std::mt19937 rng(8);
  uint64_t cut = 0;
  double accepted = 0;
  for (int i = 0; i < 40; ++i) {
    const auto prompt = random_prompt(rng, 10);
    Request request = greedy_request(prompt, 60);
    const auto whole = expected_tokens(prompt, 60);
    request.end_tokens = {whole[3 + rng() % 20]};
    const auto run = submit(*engine, request);
    const Finish finish = run->wait();
    ASSERT_EQ(finish.reason, FinishReason::stop);
    const Speculation& s = finish.speculation;
    EXPECT_LE(s.accepted, run->ids().size());
    EXPECT_EQ(s.emitted, run->ids().size() + 1);
    uint64_t by_depth = 0;
    for (const uint64_t n : s.accepted_by_depth) by_depth += n;
    EXPECT_EQ(by_depth, s.accepted);
    cut += s.accepted + s.rounds > s.emitted;
    accepted += static_cast<double>(s.accepted);
  }
  EXPECT_EQ(engine->metrics().accepted_draft_tokens.Value(), accepted);
}

TEST(DraftStatistics, MetricsTellAcceptanceByDepth) {
  FakeModel model(64, 8);
  ScriptedDrafter drafter;
  model.drafter = scripted_api();
  model.drafter_self = &drafter;
  auto engine = std::move(Engine::start(model.parts(), limits())).value();
  std::vector<uint64_t> accepted;
  std::mt19937 rng(9);
  for (int i = 0; i < 4; ++i) {
    const auto run = submit(*engine, greedy_request(random_prompt(rng, 10), 80));
    const std::vector<uint64_t> one = run->wait().speculation.accepted_by_depth;
    accepted.resize(std::max(accepted.size(), one.size()));
    for (size_t depth = 0; depth < one.size(); ++depth) accepted[depth] += one[depth];
  }
  ASSERT_GT(accepted.size(), 2u);
  std::map<std::string, std::map<size_t, double>> told;
  for (const prometheus::MetricFamily& family : engine->metrics().registry->Collect())
    for (const prometheus::ClientMetric& metric : family.metric)
      for (const auto& label : metric.label)
        if (label.name == "depth") told[family.name][std::stoul(label.value)] = metric.counter.value;
  const auto& held = told["turbo_draft_depth_accepted_total"];
  const auto& reached = told["turbo_draft_depth_reached_total"];
  ASSERT_EQ(held.size(), accepted.size());
  for (size_t depth = 1; depth <= accepted.size(); ++depth) {
    EXPECT_EQ(held.at(depth), static_cast<double>(accepted[depth - 1])) << depth;
    EXPECT_GE(reached.at(depth), held.at(depth)) << depth;
    if (depth > 1) { EXPECT_LE(reached.at(depth), reached.at(depth - 1)); }
  }
}

}  // namespace turbo::engine::testing
