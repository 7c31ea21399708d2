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
    if (budget.stay_in_block && !(budget.whole_chunks && !sequence.decoding())) {
      ASSERT_EQ(group.first / kv::kBlock, (group.first + group.n_tokens + group.n_draft - 1) / kv::kBlock);
    }
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

TEST(Planner, OnlyPromptsCrossBlocks) {
  Budget budget;
  budget.stay_in_block = budget.whole_chunks = true;
  Sequence prompt = make_sequence(1, 300, 1), decoder = make_sequence(2, 62, 9);
  decoder.computed = 61;
  decoder.n_draft = 3;
  std::vector<Sequence*> running{&prompt, &decoder};
  const StepPlan plan = plan_step(running, budget);
  ASSERT_EQ(plan.groups.size(), 2u);
  EXPECT_EQ(plan.groups[0].n_draft, 0u) << "its draft would reach into the next block";
  EXPECT_EQ(plan.groups[1].n_tokens, budget.prefill_chunk);
}

TEST(Planner, WholeChunksAreNotCutForOthers) {
  Budget budget;
  budget.stay_in_block = budget.whole_chunks = true;
  budget.max_rows = 300;
  budget.max_prompt_rows = 16;
  std::vector<Sequence> prompts;
  for (uint64_t id = 0; id < 4; ++id) prompts.push_back(make_sequence(id, 200, 1));
  prompts[3].tokens.resize(prompts[3].n_prompt = 40);
  std::vector<Sequence*> running;
  for (Sequence& prompt : prompts) running.push_back(&prompt);
  const StepPlan plan = plan_step(running, budget);
  ASSERT_EQ(plan.groups.size(), 3u) << "two chunks of 128, then one of 40; the third of 128 waits";
  EXPECT_EQ(plan.groups[1].n_tokens, 128u);
  EXPECT_EQ(plan.groups[2].n_tokens, 40u);
  EXPECT_EQ(prompts[2].passed_over, 1u);
  budget.max_rows = 100;  // the first in line goes on whatever there is
  EXPECT_EQ(plan_step(running, budget).groups.at(0).n_tokens, 100u);
}

TEST(Planner, RandomMixesKeepEveryPromiseAndEnd) {
  std::mt19937 rng(17);
  for (int round = 0; round < 200; ++round) {
    Budget budget;
    budget.max_running = 1 + rng() % 12;
    budget.max_logit_rows = budget.max_running + rng() % 16;
    budget.max_rows = budget.max_logit_rows + rng() % 200;
    budget.prefill_chunk = 1 + rng() % 150;
    budget.stay_in_block = rng() % 2;
    budget.whole_chunks = rng() % 2;
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
        if (sequence->decoding()) {
          ASSERT_TRUE(std::any_of(plan.groups.begin(), plan.groups.end(), [&](const RowGroup& g) { return g.sequence == sequence; }));
        }
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

TEST(Planner, AShortPromptDoesNotWaitForALongOne) {
  Sequence first = make_sequence(1, 5000, 10), second = make_sequence(2, 20, 10);
  std::vector<Sequence*> running{&first, &second};
  Budget budget;
  budget.max_prompt_rows = 64;
  const StepPlan plan = plan_step(running, budget);
  ASSERT_EQ(plan.groups.size(), 2u);
  EXPECT_EQ(plan.groups[0].n_tokens, 32u);
  EXPECT_EQ(plan.groups[1].n_tokens, 20u);
  budget.max_prompt_rows = 48;
  first.tokens.resize(3);
  EXPECT_EQ(plan_step(running, budget).groups[1].n_tokens, 20u) << "what the first leaves goes to the second";
}

TEST(Planner, PromptsThatGetNoRowsComeForwardInTime) {
  std::vector<std::unique_ptr<Sequence>> owned;
  std::vector<Sequence*> running;
  for (uint64_t i = 0; i < 12; ++i) {
    owned.push_back(std::make_unique<Sequence>(make_sequence(i, 1u << 20, 10)));
    running.push_back(owned.back().get());
  }
  Budget budget;
  budget.max_prompt_rows = 16;
  for (int step = 0; step < 400; ++step)
    for (const RowGroup& group : plan_step(running, budget).groups) group.sequence->computed += group.n_tokens;
  for (const Sequence* sequence : running) EXPECT_GT(sequence->computed, 0u) << sequence->id;
}

TEST(Planner, EqualPromptsComputeTheirSharedBlockOnce) {
  testing::KvDevice device;
  auto cache = std::move(kv::KvCache::create(testing::kv_device_api(), &device, {1, 1, 1, 1, 16, 8})).value();
  Sequence a = make_sequence(1, 130, 10), b = make_sequence(2, 130, 10), other = make_sequence(3, 130, 10);
  other.tokens[5] = 9;
  std::vector<Sequence*> running{&a, &b, &other};
  for (Sequence* sequence : running) cache->share(sequence->blocks, "");
  Budget budget;
  const StepPlan plan = plan_step(running, budget);
  ASSERT_EQ(plan.groups.size(), 2u);
  EXPECT_EQ(plan.groups[0].sequence, &a);
  EXPECT_EQ(plan.groups[1].sequence, &other);
  // Once the block is there, b takes it and goes on alone.
  ASSERT_TRUE(cache->grow(a.blocks, 128));
  ASSERT_TRUE(cache->commit(a.blocks, 128));
  cache->publish(a.blocks, a.tokens);
  a.computed = 128;
  b.computed = cache->adopt(b.blocks, b.tokens, b.adoptable());
  EXPECT_EQ(b.computed, 128u);
  EXPECT_EQ(plan_step(running, budget).groups.size(), 3u) << "the tails are short: each computes its own";
  for (Sequence* sequence : running) cache->release(sequence->blocks);
}

class AdmitTest : public ::testing::Test {
 protected:
  void make(uint32_t n_blocks) { cache = std::move(kv::KvCache::create(testing::kv_device_api(), &device, {1, 1, 1, 1, n_blocks, 8})).value(); }
  Sequence* add(uint64_t id, uint32_t n_prompt, int32_t priority = 0) {
    owned.push_back(std::make_unique<Sequence>(make_sequence(id, n_prompt, 10)));
    owned.back()->tokens.assign(n_prompt, static_cast<int32_t>(id));
    owned.back()->priority = priority;
    waiting.push(owned.back().get());
    return owned.back().get();
  }
  std::vector<Sequence*> admit_all() { return admit(waiting, running, *cache, shares, budget); }
  void TearDown() override {
    for (const auto& sequence : owned) cache->release(sequence->blocks);
    EXPECT_TRUE(cache->check_idle());
  }
  testing::KvDevice device;
  std::unique_ptr<kv::KvCache> cache;
  std::vector<std::unique_ptr<Sequence>> owned;
  WaitingQueue waiting;
  ClientShares shares;
  std::vector<Sequence*> running;
  Budget budget;
};

TEST_F(AdmitTest, TheFirstInLineIsNotPassed) {
  make(4);
  Sequence* small = add(1, 64);
  Sequence* large = add(2, 200);
  Sequence* tiny = add(3, 1);
  EXPECT_EQ(admit_all(), std::vector<Sequence*>{small});
  ASSERT_TRUE(cache->grow(small->blocks, 64));
  EXPECT_TRUE(admit_all().empty()) << "the large one must wait for blocks";
  cache->release(small->blocks);
  running.clear();
  EXPECT_EQ(admit_all(), std::vector<Sequence*>{large});
  EXPECT_EQ(waiting.size(), 1u);
  EXPECT_EQ(waiting.all()[0], tiny);
}

TEST_F(AdmitTest, NoMoreThanMayRunAndInRankOrder) {
  make(64);
  for (uint64_t i = 0; i < 5; ++i) add(i, 10, static_cast<int32_t>(i % 2));
  budget.max_running = 3;
  EXPECT_EQ(admit_all().size(), 3u);
  ASSERT_EQ(running.size(), 3u);
  EXPECT_EQ(running[0]->id, 1u);
  EXPECT_EQ(running[1]->id, 3u);
  EXPECT_EQ(running[2]->id, 0u);
  EXPECT_EQ(waiting.size(), 2u);
}

TEST_F(AdmitTest, WhatIsCachedNeedsNoNewBlocks) {
  make(5);
  const std::vector<int32_t> prompt(200, 1);
  kv::SequenceBlocks earlier;
  cache->share(earlier, "");
  ASSERT_TRUE(cache->grow(earlier, 192));
  ASSERT_TRUE(cache->commit(earlier, 192));
  cache->publish(earlier, prompt);
  Sequence* runs = add(2, 1);
  EXPECT_EQ(admit_all(), std::vector<Sequence*>{runs});
  ASSERT_TRUE(cache->grow(runs->blocks, 1));
  cache->release(earlier);
  Sequence* hit = add(1, 200);  // 4 blocks, 3 of them cached; 1 is free, and one is the headroom
  EXPECT_TRUE(admit_all().empty());
  EXPECT_TRUE(hit->blocks.packed.empty()) << "waiting keeps no blocks";
  cache->release(runs->blocks);
  running.clear();
  EXPECT_EQ(admit_all(), std::vector<Sequence*>{hit});
  EXPECT_EQ(hit->computed, 192u);
}

TEST(Victim, TheLowestInRankThatHoldsBlocks) {
  Sequence high = make_sequence(9, 1, 1), old = make_sequence(1, 1, 1), young = make_sequence(2, 1, 1), empty = make_sequence(3, 1, 1);
  high.priority = 1;
  std::vector<Sequence*> running{&high, &old, &young, &empty};
  EXPECT_EQ(choose_victim(running), nullptr);
  for (Sequence* sequence : {&high, &old, &young}) sequence->blocks.packed.push_back(0);
  EXPECT_EQ(choose_victim(running), &young);
  young.blocks.packed.clear();
  old.blocks.packed.clear();
  EXPECT_EQ(choose_victim(running), &high);
}

}  // namespace turbo::sched
