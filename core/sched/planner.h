// Which rows the next step computes. Pure functions of the sequences; no clocks, no device.
#pragma once

#include <span>
#include <vector>

#include "sched/queue.h"
#include "sched/sequence.h"

namespace turbo::sched {

struct Budget {
  uint32_t max_rows = 512;         // rows of one step
  uint32_t prefill_chunk = 128;    // rows of one sequence in one step
  uint32_t max_prompt_rows = ~0u;  // rows of one step that do not decode; see StepPace
  uint32_t max_logit_rows = 64;    // rows of one step that give logits
  uint32_t max_running = 32;       // sequences admitted at once
  bool stay_in_block = false;      // a group's rows must not cross a KV block edge (see KvCache)
  bool whole_chunks = false;       // prompts advance by prefill_chunk rows, across block edges and whatever others want
};

/// A prefilling sequence that got no rows for so many steps goes before the others.
inline constexpr uint32_t kStepsPassedOver = 32;

/// Consecutive wanted rows of one sequence in a step, then its draft nodes.
struct RowGroup {
  Sequence* sequence = nullptr;
  uint32_t first = 0;     // position of the first row
  uint32_t n_tokens = 0;  // rows for tokens[first, first + n_tokens)
  uint32_t n_draft = 0;   // draft rows after them
  bool last = false;      // reaches the end of tokens: its last row gives the logits of the next token
};

struct StepPlan {
  std::vector<RowGroup> groups;
  uint32_t n_rows = 0;
  uint32_t n_logit_rows = 0;
  bool empty() const { return groups.empty(); }
};

/// Rows for the running sequences: first those that decode (one row and their drafts each), in the given order, then
/// prompts by rank. While others wait behind it, a prompt takes at most half of the rows that are left, so that a
/// short prompt does not wait for a long one. A prompt whose next block another group is computing waits and takes it
/// from the prefix cache afterwards. A draft that does not fit is dropped, never a token.
StepPlan plan_step(std::span<Sequence* const> running, const Budget& budget);

/// Move waiting sequences to `running` (kept in rank order) while there is a place, and blocks for the tokens they
/// have plus one more for each sequence, so that an admission does not preempt at once. One that is first in line and
/// does not fit blocks those behind it. Returns those admitted.
std::vector<Sequence*> admit(WaitingQueue& waiting, std::vector<Sequence*>& running, kv::KvCache& cache,
                             const ClientShares& shares, const Budget& budget);

/// The running sequence that gives up its blocks first: the lowest in rank of those that hold some. Null when none.
Sequence* choose_victim(std::span<Sequence* const> running);

}  // namespace turbo::sched
