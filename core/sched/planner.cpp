#include "sched/planner.h"

#include <algorithm>

namespace turbo::sched {
namespace {

uint32_t rows_to_block_edge(uint32_t position) { return kv::kBlock - position % kv::kBlock; }

// Logit rows a group of n tokens asks for.
uint32_t logit_rows(const Sequence& sequence, uint32_t n_tokens, uint32_t n_draft, bool last) {
  if (sequence.scores_prompt && sequence.computed < sequence.n_prompt)
    return n_tokens + (last && sequence.generates ? n_draft : 0);
  return last && sequence.generates ? 1 + n_draft : 0;
}

size_t missing_blocks(const Sequence& sequence) {
  const size_t wanted = kv::blocks_for(sequence.tokens.size());
  return wanted - std::min(wanted, sequence.blocks.packed.size());
}

// True when `leader`'s group computes the block that `follower` needs next.
bool computes_next_block(const RowGroup& leader, const Sequence& follower) {
  const Sequence& ahead = *leader.sequence;
  if (!follower.blocks.shared || ahead.blocks.shared != follower.blocks.shared) return false;
  const size_t begin = size_t{follower.blocks.shared->depth} * kv::kBlock, end = begin + kv::kBlock;
  if (follower.computed > ahead.computed || end > follower.adoptable() || end > ahead.tokens.size()) return false;
  return std::equal(ahead.tokens.begin() + begin, ahead.tokens.begin() + end, follower.tokens.begin() + begin);
}

class StepBuilder {
 public:
  StepBuilder(const Budget& budget, uint32_t decoders)
      : budget_(budget), decoders_left_(decoders), prompt_rows_left_(budget.max_prompt_rows) {}

  void add_decoding(Sequence& sequence) {
    --decoders_left_;
    add(sequence, 1, fitting_draft(sequence));
  }
  // Returns whether it got rows.
  bool add_prompt(Sequence& sequence, bool others_wait) {
    for (const RowGroup& group : plan_.groups)
      if (computes_next_block(group, sequence)) return true;
    const uint32_t free_rows = budget_.max_rows - plan_.n_rows;
    if (budget_.whole_chunks) {
      // What a row reads depends on where its chunk begins, so nothing but the request may decide that.
      const uint32_t chunk = std::min(sequence.pending(), budget_.prefill_chunk);
      if (chunk > free_rows && has_prompt_) return false;
      has_prompt_ = true;
      return add(sequence, std::min(chunk, free_rows), 0) > 0;
    }
    uint32_t room = std::min(free_rows, prompt_rows_left_);
    if (others_wait) room = (room + 1) / 2;
    const uint32_t n = add(sequence, std::min({sequence.pending(), budget_.prefill_chunk, room}), 0);
    prompt_rows_left_ -= n;
    return n > 0;
  }

  StepPlan take() { return std::move(plan_); }

 private:
  uint32_t add(Sequence& sequence, uint32_t n, uint32_t n_draft) {
    if (budget_.stay_in_block && !(budget_.whole_chunks && !sequence.decoding())) n = std::min(n, rows_to_block_edge(sequence.computed));
    const uint32_t logit_room = budget_.max_logit_rows - plan_.n_logit_rows;
    if (sequence.scores_prompt && sequence.computed < sequence.n_prompt) n = std::min(n, logit_room);
    if (n == 0) return 0;
    const bool last = n == sequence.pending();
    const uint32_t n_logits = logit_rows(sequence, n, n_draft, last);
    if (n_logits > logit_room) return 0;  // the next step has room
    plan_.groups.push_back({&sequence, sequence.computed, n, n_draft, last});
    plan_.n_rows += n + n_draft;
    plan_.n_logit_rows += n_logits;
    return n;
  }
  // Each decoder still to come keeps one row and one logit row, so a draft never delays a token.
  uint32_t fitting_draft(const Sequence& sequence) const {
    const uint32_t n = sequence.n_draft;
    const bool rows_fit = plan_.n_rows + 1 + n + decoders_left_ <= budget_.max_rows &&
                          plan_.n_logit_rows + 1 + n + decoders_left_ <= budget_.max_logit_rows;
    const bool block_fits = !budget_.stay_in_block || 1 + n <= rows_to_block_edge(sequence.computed);
    return rows_fit && block_fits ? n : 0;
  }

  const Budget& budget_;
  uint32_t decoders_left_;  // after the one being added
  uint32_t prompt_rows_left_;
  bool has_prompt_ = false;
  StepPlan plan_;
};

}  // namespace

StepPlan plan_step(std::span<Sequence* const> running, const Budget& budget) {
  std::vector<Sequence*> prompts;
  uint32_t decoders = 0;
  for (Sequence* sequence : running) {
    if (sequence->decoding()) ++decoders;
    else if (sequence->pending() > 0) prompts.push_back(sequence);
  }
  StepBuilder builder(budget, decoders);
  for (Sequence* sequence : running)
    if (sequence->decoding()) builder.add_decoding(*sequence);
  std::sort(prompts.begin(), prompts.end(), [](const Sequence* a, const Sequence* b) {
    const bool late_a = a->passed_over >= kStepsPassedOver, late_b = b->passed_over >= kStepsPassedOver;
    return late_a != late_b ? late_a : outranks(*a, *b);
  });
  for (size_t i = 0; i < prompts.size(); ++i)
    prompts[i]->passed_over = builder.add_prompt(*prompts[i], i + 1 < prompts.size()) ? 0 : prompts[i]->passed_over + 1;
  return builder.take();
}

std::vector<Sequence*> admit(WaitingQueue& waiting, std::vector<Sequence*>& running, kv::KvCache& cache,
                             const ClientShares& shares, const Budget& budget) {
  std::vector<Sequence*> admitted;
  while (running.size() < budget.max_running) {
    Sequence* next = waiting.best(shares);
    if (!next) break;
    if (next->shares && !next->blocks.shared) cache.share(next->blocks, next->salt);
    next->computed = cache.adopt(next->blocks, next->tokens, next->adoptable());
    // Blocks for its tokens, for those of the others that are not computed yet, and one for each to decode into.
    size_t wanted = missing_blocks(*next) + running.size();
    for (const Sequence* sequence : running) wanted += missing_blocks(*sequence);
    if (cache.n_available() < wanted && !running.empty()) {
      cache.release(next->blocks);  // while it waits it must not keep blocks from those that run
      next->computed = 0;
      break;
    }
    waiting.take(next);
    next->passed_over = 0;
    next->preempted = false;
    running.insert(std::upper_bound(running.begin(), running.end(), next,
                                    [](const Sequence* a, const Sequence* b) { return outranks(*a, *b); }),
                   next);
    admitted.push_back(next);
  }
  return admitted;
}

Sequence* choose_victim(std::span<Sequence* const> running) {
  Sequence* victim = nullptr;
  for (Sequence* sequence : running)
    if (!sequence->blocks.packed.empty() && (!victim || outranks(*victim, *sequence))) victim = sequence;
  return victim;
}

}  // namespace turbo::sched
