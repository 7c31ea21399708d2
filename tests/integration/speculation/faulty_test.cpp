// A faulty drafter in the whole engine with a real model. Every fault of the interface by itself: tests/unit/engine/faulty_drafter_test.cpp.
#include "engine/speculator.h"
#include "integration/golden/harness.h"
#include "unit/engine/collector.h"

namespace turbo::engine::testing {
namespace {

struct Kind {
  const char* fault;
  bool faults, not_ready, off;
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.fault; }

std::unique_ptr<Runtime> load_nano(const char* fault) {
  ModelSetup setup{.model = "models/turbo-nano-q1.gguf", .kv = "f16"};
  setup.tune = [&](profile::Profile& profile) {
    profile.model.context = 512;
    if (!fault) return;
    profile.drafter.name = "faulty";
    profile.drafter.adaptive = false;
    profile.drafter.options = {{"fault", fault}};
    profile.plugins.paths = {std::string(TURBO_BUILD) + "/tests/plugins/faulty_drafter"};
  };
  return load(setup);
}

Request request(uint64_t n) {
  Request request;
  for (int32_t i = 0; i < 20; ++i) request.prompt.push_back(300 + static_cast<int32_t>(n) * 7 + i % 5);
  request.max_tokens = 40;
  request.sampling.temperature = n % 2 ? 0.8f : 0;
  request.sampling.seed = n;
  return request;
}

class FaultyPlugin : public ::testing::TestWithParam<Kind> {};

}  // namespace

TEST_P(FaultyPlugin, CostsItsDraftsAndNothingElse) {
  static const auto plain = load_nano(nullptr);
  const auto faulty = load_nano(GetParam().fault);
  ASSERT_TRUE(plain && faulty);
  std::vector<std::shared_ptr<Collector>> expected, got;
  constexpr uint64_t kRequests = 24;
  for (uint64_t n = 0; n < kRequests; ++n) {
    for (const auto& [runtime, runs] : {std::pair(plain.get(), &expected), std::pair(faulty.get(), &got)}) {
      runs->push_back(std::make_shared<Collector>());
      ASSERT_TRUE(runtime->engine().submit(request(n), runs->back()));
    }
    if (n % 3 == 2) got.back()->wait();
  }
  uint64_t drafted = 0;
  for (uint64_t n = 0; n < kRequests; ++n) {
    expected[n]->wait();
    const Finish finish = got[n]->wait();
    ASSERT_EQ(finish.reason, FinishReason::length) << finish.status.message();
    ASSERT_EQ(got[n]->ids(), expected[n]->ids());
    drafted += finish.speculation.drafted;
  }
  Metrics& metrics = faulty->engine().metrics();
  const uint64_t steps = faulty->engine().snapshot().steps;
  EXPECT_EQ(metrics.plugin_errors.Value() > 0, GetParam().faults);
  EXPECT_EQ(metrics.drafts_not_ready.Value() > 0, GetParam().not_ready);
  EXPECT_EQ(metrics.plugin_errors.Value() >= Speculator::kMaxFaults, GetParam().off);
  if (GetParam().off) { EXPECT_LT(metrics.plugin_errors.Value(), Speculator::kMaxFaults + 8); }
  const std::string fault = GetParam().fault;
  const bool drafts = fault == "none" || fault == "late" || fault == "flood" || fault == "closed" || fault == "slow";
  EXPECT_EQ(drafted > 0, drafts);
  // The engine's own part of a step is tens of microseconds. A slow drafter holds it up sixteen times.
  const double waited = metrics.schedule_seconds.Value() + metrics.draft_seconds.Value();
  if (fault == "slow") { EXPECT_LT(waited, 1.5); }
  else { EXPECT_LT(waited / static_cast<double>(steps), 0.001); }
  EXPECT_TRUE(faulty->engine().drain(10000));
  EXPECT_EQ(faulty->engine().snapshot().leaks, 0u);
}

INSTANTIATE_TEST_SUITE_P(All, FaultyPlugin,
                         ::testing::Values(Kind{"none", false, false, false}, Kind{"hangs", false, true, false},
                                           Kind{"exits", false, true, false}, Kind{"late", false, true, false},
                                           Kind{"flood", false, false, false}, Kind{"closed", false, false, false},
                                           Kind{"throws_open", true, false, true}, Kind{"throws_observe", true, false, true},
                                           Kind{"throws_begin", true, false, true}, Kind{"throws_poll", true, false, true},
                                           Kind{"slow", true, false, true}),
                         [](const auto& info) { return std::string(info.param.fault); });

}  // namespace turbo::engine::testing
