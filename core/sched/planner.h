// Which rows the next step computes. Pure functions of the sequences; no clocks, no device.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "sched/sequence.h"

namespace turbo::sched {

struct Budget {
  uint32_t max_rows = 512;        // rows of one step
  uint32_t prefill_chunk = 128;   // rows of one sequence in one step
  uint32_t max_logit_rows = 64;   // rows of one step that give logits
  uint32_t max_running = 32;      // sequences admitted at once
  bool stay_in_block = false;     // a group's rows must not cross a KV block edge (see KvCache)
};

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

/// Rows for the running sequences, in order: first those that decode (one row and their drafts each), then
/// prefill chunks with what is left. A draft that does not fit is dropped, never a token. Every sequence of
/// `running` gets rows within a bounded number of steps because decoding takes one row each.
StepPlan plan_step(std::span<Sequence* const> running, const Budget& budget);

/// Move sequences from the front of `waiting` to `running` while there is room: a place and KV blocks for
/// their longest possible end. First come, first served, so none starves. Returns how many were admitted.
uint32_t admit(std::deque<Sequence*>& waiting, std::vector<Sequence*>& running, kv::KvCache& cache, const Budget& budget);

}  // namespace turbo::sched
