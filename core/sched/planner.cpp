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

class StepBuilder {
 public:
  StepBuilder(const Budget& budget, uint32_t decoders) : budget_(budget), decoders_left_(decoders) {}

  void add(Sequence& sequence) {
    if (sequence.decoding()) --decoders_left_;
    uint32_t n = std::min({sequence.pending(), budget_.prefill_chunk, budget_.max_rows - plan_.n_rows});
    if (budget_.stay_in_block) n = std::min(n, rows_to_block_edge(sequence.computed));
    const uint32_t logit_room = budget_.max_logit_rows - plan_.n_logit_rows;
    if (sequence.scores_prompt && sequence.computed < sequence.n_prompt) n = std::min(n, logit_room);
    if (n == 0) return;
    const bool last = n == sequence.pending();
    uint32_t n_draft = last && sequence.decoding() ? fitting_draft(sequence, logit_room) : 0;
    const uint32_t n_logits = logit_rows(sequence, n, n_draft, last);
    if (n_logits > logit_room) return;  // the next step has room
    plan_.groups.push_back({&sequence, sequence.computed, n, n_draft, last});
    plan_.n_rows += n + n_draft;
    plan_.n_logit_rows += n_logits;
  }

  StepPlan take() { return std::move(plan_); }
  bool full() const { return plan_.n_rows >= budget_.max_rows; }

 private:
  // Each decoder still to come keeps one row and one logit row, so a draft never delays a token.
  uint32_t fitting_draft(const Sequence& sequence, uint32_t logit_room) const {
    const uint32_t n = sequence.n_draft;
    const bool rows_fit = plan_.n_rows + 1 + n + decoders_left_ <= budget_.max_rows && 1 + n + decoders_left_ <= logit_room;
    const bool block_fits = !budget_.stay_in_block || 1 + n <= rows_to_block_edge(sequence.computed);
    return rows_fit && block_fits ? n : 0;
  }

  const Budget& budget_;
  uint32_t decoders_left_;  // after the one being added
  StepPlan plan_;
};

}  // namespace

StepPlan plan_step(std::span<Sequence* const> running, const Budget& budget) {
  uint32_t decoders = 0;
  for (const Sequence* sequence : running) decoders += sequence->decoding();
  StepBuilder builder(budget, decoders);
  for (Sequence* sequence : running)
    if (!builder.full() && sequence->decoding()) builder.add(*sequence);
  for (Sequence* sequence : running)
    if (!builder.full() && !sequence->decoding() && sequence->pending() > 0) builder.add(*sequence);
  return builder.take();
}

uint32_t admit(std::deque<Sequence*>& waiting, std::vector<Sequence*>& running, kv::KvCache& cache, const Budget& budget) {
  uint32_t admitted = 0;
  while (!waiting.empty() && running.size() < budget.max_running) {
    Sequence* sequence = waiting.front();
    if (!cache.reserve(sequence->blocks, sequence->max_tokens_total)) break;
    waiting.pop_front();
    running.push_back(sequence);
    ++admitted;
  }
  return admitted;
}

}  // namespace turbo::sched
