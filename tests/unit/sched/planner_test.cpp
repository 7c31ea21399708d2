// The planner's promises, over random sequences and budgets.
#include "sched/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <set>

#include "support/kv_device.h"

namespace turbo::sched {
namespace {

Sequence make_sequence(uint64_t id, uint32_t n_prompt, uint32_t n_generate) {
  Sequence sequence;
  sequence.id = id;
  sequence.tokens.assign(n_prompt, 1);
  sequence.n_prompt = n_prompt;
  sequence.max_tokens_total = n_prompt + n_generate;
  sequence.generates = n_generate > 0;
  return sequence;
}

// Everything a step must satisfy, whatever the sequences.
void check_plan(const StepPlan& plan, const Budget& budget) {
  uint32_t rows = 0, logits = 0;
  std::set<uint64_t> seen;
  for (const RowGroup& group : plan.groups) {
    const Sequence& sequence = *group.sequence;
    ASSERT_TRUE(seen.insert(sequence.id).second) << "two groups of one sequence";
    ASSERT_EQ(group.first, sequence.computed);
    ASSERT_GE(group.n_tokens, 1u);
    ASSERT_LE(group.n_tokens, std::min(sequence.pending(), budget.prefill_chunk));
    ASSERT_EQ(group.last, group.n_tokens == sequence.pending());
    ASSERT_TRUE(group.n_draft == 0 || (group.n_draft == sequence.n_draft && sequence.decoding())) << "a draft is whole or absent";
    if (budget.stay_in_block)
      ASSERT_EQ(group.first / kv::kBlock, (group.first + group.n_tokens + group.n_draft - 1) / kv::kBlock);
    rows += group.n_tokens + group.n_draft;
    // Rows that will give logits: scored prompt rows, then the last row and its draft.
    const bool scores = sequence.scores_prompt && group.first < sequence.n_prompt;
    if (scores) logits += std::min(group.first + group.n_tokens, sequence.n_prompt - 1) - group.first;
    if (group.last && sequence.generates) logits += 1 + group.n_draft;
  }
  ASSERT_EQ(plan.n_rows, rows);
  ASSERT_LE(logits, plan.n_logit_rows);
  ASSERT_LE(rows, budget.max_rows);
  ASSERT_LE(plan.n_logit_rows, budget.max_logit_rows);
}

}  // namespace

TEST(Planner, RandomMixesKeepEveryPromiseAndEnd) {
  std::mt19937 rng(17);
  for (int round = 0; round < 200; ++round) {
    Budget budget;
    budget.max_running = 1 + rng() % 12;
    budget.max_logit_rows = budget.max_running + rng() % 16;
    budget.max_rows = budget.max_logit_rows + rng() % 200;
    budget.prefill_chunk = 1 + rng() % 150;
    budget.stay_in_block = rng() % 2;
    std::vector<std::unique_ptr<Sequence>> owned;
    std::vector<Sequence*> running;
    for (uint32_t i = 0; i < budget.max_running; ++i) {
      owned.push_back(std::make_unique<Sequence>(make_sequence(i, 1 + rng() % 300, rng() % 40)));
      owned.back()->scores_prompt = rng() % 4 == 0;
      running.push_back(owned.back().get());
    }
    int steps = 0;
    while (!running.empty()) {
      ASSERT_LT(++steps, 20000) << "a sequence starves";
      for (Sequence* sequence : running) sequence->n_draft = sequence->decoding() ? rng() % 8 : 0;
      const StepPlan plan = plan_step(running, budget);
      check_plan(plan, budget);
      if (HasFatalFailure()) return;
      ASSERT_FALSE(plan.empty());
      // Every decoding sequence gets its token in every step.
      for (const Sequence* sequence : running)
        if (sequence->decoding())
          ASSERT_TRUE(std::any_of(plan.groups.begin(), plan.groups.end(), [&](const RowGroup& g) { return g.sequence == sequence; }));
      for (const RowGroup& group : plan.groups) {
        group.sequence->computed += group.n_tokens;
        if (group.last && group.sequence->generates) group.sequence->tokens.push_back(1);
      }
      std::erase_if(running, [](const Sequence* s) { return s->generates ? s->tokens.size() >= s->max_tokens_total : s->pending() == 0; });
    }
  }
}

TEST(Planner, DecodersComeBeforePrefill) {
  Sequence prefill = make_sequence(1, 500, 10), decoder = make_sequence(2, 1, 10);
  std::vector<Sequence*> running{&prefill, &decoder};
  Budget budget;
  budget.max_rows = 64;
  const StepPlan plan = plan_step(running, budget);
  ASSERT_EQ(plan.groups.size(), 2u);
  EXPECT_EQ(plan.groups[0].sequence, &decoder);
  EXPECT_EQ(plan.groups[1].n_tokens, 63u);
}

TEST(Planner, ADraftGivesWayToOtherSequencesTokens) {
  Sequence first = make_sequence(1, 1, 10), second = make_sequence(2, 1, 10);
  first.n_draft = second.n_draft = 3;
  std::vector<Sequence*> running{&first, &second};
  Budget budget;
  budget.max_rows = 5;
  const StepPlan plan = plan_step(running, budget);
  ASSERT_EQ(plan.groups.size(), 2u);
  EXPECT_EQ(plan.groups[0].n_draft, 3u);
  EXPECT_EQ(plan.groups[1].n_draft, 0u);
  budget.max_rows = 4;
  EXPECT_EQ(plan_step(running, budget).groups[0].n_draft, 0u);
}

TEST(Admit, FirstComeFirstServed) {
  testing::KvDevice device;
  auto cache = std::move(kv::KvCache::create(testing::kv_device_api(), &device, {1, 1, 1, 1, 4, 8})).value();
  Sequence small = make_sequence(1, 64, 0), large = make_sequence(2, 200, 56), tiny = make_sequence(3, 1, 1);
  std::deque<Sequence*> waiting{&small, &large, &tiny};
  std::vector<Sequence*> running;
  Budget budget;
  EXPECT_EQ(admit(waiting, running, *cache, budget), 1u) << "the large one must wait for blocks, and no one passes it";
  EXPECT_EQ(waiting.size(), 2u);
  cache->release(small.blocks);
  EXPECT_EQ(admit(waiting, running, *cache, budget), 1u);
  EXPECT_EQ(running.back(), &large);
  cache->release(large.blocks);
  EXPECT_EQ(admit(waiting, running, *cache, budget), 1u);
}

TEST(Admit, NoMoreThanMayRun) {
  testing::KvDevice device;
  auto cache = std::move(kv::KvCache::create(testing::kv_device_api(), &device, {1, 1, 1, 1, 64, 8})).value();
  std::vector<Sequence> sequences;
  for (uint64_t i = 0; i < 5; ++i) sequences.push_back(make_sequence(i, 10, 10));
  std::deque<Sequence*> waiting;
  for (Sequence& sequence : sequences) waiting.push_back(&sequence);
  std::vector<Sequence*> running;
  Budget budget;
  budget.max_running = 3;
  EXPECT_EQ(admit(waiting, running, *cache, budget), 3u);
  EXPECT_EQ(waiting.size(), 2u);
  EXPECT_EQ(cache->n_reserved(), 3u);
}

}  // namespace turbo::sched
