// Steps timed on a device that takes a set time for each row, and drafts that follow the price.
#include "engine/verify_cost.h"

#include <gtest/gtest.h>

#include "requests.h"
#include "scripted_drafter.h"

namespace turbo::engine::testing {
namespace {

constexpr std::array<uint32_t, 4> kRows{1, 2, 4, 8};

}  // namespace

TEST(VerifyCost, IsTheDevicesTime) {
  for (const bool packs : {false, true}) {
    FakeModel model(16, 2, packs, packs ? 4 : 0);
    model.pack.row_us = 1000;
    auto engine = std::move(Engine::start(model.parts(), limits())).value();
    for (const uint32_t depth : {0u, 100u}) {
      const auto costs = engine->measure_verify_cost(kRows, depth, 3);
      ASSERT_TRUE(costs) << costs.status().message();
      ASSERT_EQ(costs->size(), kRows.size());
      for (size_t i = 0; i < kRows.size(); ++i) {
        EXPECT_EQ((*costs)[i].rows, kRows[i]);
        EXPECT_GE((*costs)[i].seconds, kRows[i] * 1e-3);
        EXPECT_LT((*costs)[i].seconds, kRows[i] * 1e-3 + 20e-3);
      }
    }
    EXPECT_EQ(model.pack.violation, "");
    EXPECT_TRUE(engine->drain(1000));
    EXPECT_EQ(engine->snapshot().kv_blocks_used, 0u);
    EXPECT_TRUE(model.cache->check_idle());
  }
}

TEST(VerifyCost, LeavesOutWhatAStepOrABlockCannotHold) {
  FakeModel model(16, 2, true, 0);
  auto engine = std::move(Engine::start(model.parts(), limits())).value();
  const auto costs = engine->measure_verify_cost(kRows, 61, 1);  // three slots are left in the block
  ASSERT_TRUE(costs);
  ASSERT_EQ(costs->size(), 2u);
  EXPECT_EQ(costs->back().rows, 2u);
}

TEST(VerifyCost, AFullPoolIsSaidAndNothingIsKept) {
  FakeModel model(2, 2);
  auto engine = std::move(Engine::start(model.parts(), limits())).value();
  const auto costs = engine->measure_verify_cost(kRows, 200, 1);
  ASSERT_FALSE(costs);
  EXPECT_EQ(costs.status().code(), Code::resource_exhausted);
  EXPECT_TRUE(engine->drain(1000));
  EXPECT_TRUE(model.cache->check_idle());
}

// The drafter is right three times of four. With rows as dear as the first, chains of such drafts cost more than they
// bring; with rows for nothing they are long. The text is the same either way.
TEST(VerifyCost, DraftsFollowThePrice) {
  uint64_t drafted[2] = {}, emitted[2] = {}, rounds[2] = {};
  for (const int dear : {0, 1}) {
    FakeModel model(64, 2);
    ScriptedDrafter drafter;
    drafter.mode = 1;
    model.drafter = scripted_api();
    model.drafter_self = &drafter;
    (dear ? model.pack.row_us : model.pack.slow_run_us) = 2000;  // far above what the host's own work takes
    EngineParts parts = model.parts();
    parts.adaptive_drafts = true;
    auto engine = std::move(Engine::start(parts, limits(1000))).value();
    const std::vector<int32_t> prompt{1, 2, 3, 4, 5};
    auto collector = std::make_shared<Collector>();
    ASSERT_TRUE(engine->submit(greedy_request(prompt, 120), collector));
    const Finish finish = collector->wait();
    ASSERT_EQ(collector->ids(), expected_tokens(prompt, 120));
    drafted[dear] = finish.speculation.drafted;
    emitted[dear] = finish.speculation.emitted;
    rounds[dear] = finish.speculation.rounds;
  }
  const double freely = static_cast<double>(drafted[0]) / static_cast<double>(rounds[0]);
  const double sparingly = static_cast<double>(drafted[1]) / static_cast<double>(rounds[1]);
  EXPECT_GT(freely, 4);
  EXPECT_LT(sparingly, 1);
  EXPECT_GT(static_cast<double>(emitted[0]) / static_cast<double>(rounds[0]), 2);
}

// What a step of so many rows took, and what the drafter took, is told with the request; with it the bound of docs/speculation.md.
TEST(VerifyCost, ARequestTellsItsStepsByRowsAndTheTimeOfDrafting) {
  FakeModel model(64, 2);
  ScriptedDrafter drafter;
  drafter.mode = 1;
  drafter.slow_us = 500;
  model.drafter = scripted_api();
  model.drafter_self = &drafter;
  model.pack.row_us = 1000;
  EngineParts parts = model.parts();
  parts.draft_slots = 3;
  auto engine = std::move(Engine::start(parts, limits(1000))).value();
  const std::vector<int32_t> prompt{1, 2, 3, 4, 5};
  auto collector = submit(*engine, greedy_request(prompt, 60));
  const Finish finish = collector->wait();
  const Speculation& speculation = finish.speculation;
  uint64_t steps = 0, nodes = 0, ns = 0;
  for (size_t rows = 0; rows < speculation.steps_by_rows.size(); ++rows) {
    const StepsOfWidth& width = speculation.steps_by_rows[rows];
    steps += width.steps;
    nodes += width.steps * (rows - 1);
    ns += width.ns;
    EXPECT_GE(width.ns, width.steps * rows * 1'000'000) << rows;
  }
  EXPECT_EQ(steps, speculation.rounds - 1) << "the first token came with the prompt";
  EXPECT_EQ(nodes, speculation.drafted);
  EXPECT_GT(speculation.steps_by_rows.at(3).steps, 0u);
  EXPECT_GE(speculation.draft_ns, (steps - 1) * 500'000);
  EXPECT_LE(ns + speculation.draft_ns, finish.timings.generate_ns);
  EXPECT_GE(2 * (ns + speculation.draft_ns), finish.timings.generate_ns) << "the rest is small";

  Request plain = greedy_request(prompt, 30);
  plain.use_drafter = false;
  const Speculation without = submit(*engine, plain)->wait().speculation;
  ASSERT_EQ(without.steps_by_rows.size(), 2u);
  EXPECT_EQ(without.steps_by_rows[1].steps, 29u);
  EXPECT_EQ(without.draft_ns, 0u);

  Speculation sum = without;
  sum.add(speculation);
  EXPECT_EQ(sum.steps_by_rows.size(), speculation.steps_by_rows.size());
  EXPECT_EQ(sum.steps_by_rows[1].steps, 29 + speculation.steps_by_rows[1].steps);
  EXPECT_EQ(sum.draft_ns, speculation.draft_ns);
  EXPECT_EQ(sum.rounds, without.rounds + speculation.rounds);
  sum.add_step(1000, 5);
  EXPECT_EQ(sum.steps_by_rows.size(), Speculation::kMostRows + 1u);
}

}  // namespace turbo::engine::testing
