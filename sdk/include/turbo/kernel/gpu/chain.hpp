// A chain of drafts, from draft step to committed tokens, in few launches: argument structs (for host code too) and the
// bodies of the kernels. Results are what the plain definitions give (turbo/kernel/chain_ops.hpp), entry by entry.
//
// Requests i of B, places j of W (0 the root, the rest drafts), flat row r = i * W + j. Nothing but addresses and
// constants is in the structs, so the launches can be captured; the expected number of blocks follows from the grid.
#pragma once

#include <turbo/kernel/gpu/argmax.hpp>

namespace turbo::gpu {

/// End of a draft step: the row's token and everything that follows from it.
struct DraftStepArgs {
  LogitRows logits;
  ArgmaxRow* scratch;           // [rows] zeros
  int64_t* token;               // [rows]
  float* probability;           // [rows] 1; null: not wanted
  int64_t* draft_tokens;        // [rows][draft_stride]; null: not wanted
  uint64_t draft_stride;
  uint32_t column;              // of draft_tokens that takes the token
  uint32_t reserved;
  const int64_t* first_tokens;  // [rows] into column 0, in the first step alone; null otherwise
  int64_t* positions;           // [rows] incremented; null: none
  const int64_t* target_id;     // [vocab] of a reduced draft vocabulary; null: ids are the target's
  uint32_t* nan;                // [rows] set to 1 for rows with a NaN, never cleared; may be null
};

/// Meeting place of a verification, in device memory, zeros: one counter and a key a row.
struct ChainScratch {
  uint32_t* arrivals;  // [1]
  uint32_t* row_nan;   // [rows]
  uint64_t* keys;      // [rows]
};

struct ChainVerifyArgs {
  LogitRows logits;           // rows = B * W
  ChainScratch scratch;
  const int64_t* candidates;  // [B][W]
  uint32_t n_requests, width;
  int32_t* predict;           // [B * W] the target's token up to the last accepted place, 0 beyond
  int32_t* accept_index;      // [B][W] flat row, -1 beyond
  int32_t* num_correct;       // [B]
  int32_t* accept_lens;       // [B] num_correct + 1
  int32_t* target;            // [B * W] the target's token of every row; null: not wanted
  uint32_t* nan;              // [B] set to 1 for requests with a NaN in their rows, never cleared; may be null
};

/// For measurements alone: as if the first *length places had been right.
struct SimulatedAcceptArgs {
  uint32_t n_requests, width;
  const uint32_t* length;     // device, [1]; clamped to 1..width
  const int64_t* candidates;  // null: every place predicts fixed_token
  const int32_t* target;      // with candidates
  int32_t fixed_token;
  uint32_t reserved;
  int32_t *predict, *accept_index, *num_correct, *accept_lens;
};

struct ChainTreeArgs {
  uint32_t n_requests, width;
  const int32_t* seq;        // [B] committed length; padded requests may have less than 1
  const int64_t* bonus;      // [B] root of the chain
  const int64_t* drafts;     // [B][draft_stride]; W - 1 are read
  uint64_t draft_stride;
  int64_t* tokens;           // [B * W]
  int64_t* positions;        // [B * W] seq + j
  int64_t* retrieve_index;   // [B][W]
  int64_t* next_token;       // [B][W]
  int64_t* next_sibling;     // [B][W]
  uint8_t* mask;             // [B][W][W]; null: not wanted
  const int32_t* slot_table; // [B][slot_stride] slot by position
  uint64_t slot_stride;
  int32_t* slots;            // [B * W]; null: not wanted. -1 past the table
  int64_t* sections;         // [3][B * W] positions once a section; null: not wanted
  // Layout of the draft's own rows over the same window; null: not wanted, all or none.
  int32_t* prefix_lens;      // [B] max(seq, 0)
  int32_t* extend_lens;      // [B] W
  int32_t* post_lens;        // [B] seq + W
  int64_t* extend_positions; // [B * W]
  int32_t* start_locs;       // [B] i * W
};

struct ChainCommitArgs {
  uint32_t n_requests, width;
  const int32_t *predict, *accept_index, *accept_lens;
  const int32_t* seq;   // [B]
  const int32_t* slot;  // [B] of the relay; -1: a padded request, which commits nothing
  uint32_t relay_size;
  uint32_t reserved;
  int64_t* bonus;       // [B]
  int32_t* new_lens;    // [B] seq + accept_lens
  int64_t* select;      // [B] flat row of the last accepted place
  int32_t* relay_lens;  // [relay_size] by slot
  int32_t* accept_offsets;  // [B + 1] accepted places of all requests before; padded ones have none. Null: not wanted
};

}  // namespace turbo::gpu

#if defined(TB_FIBER) || defined(__CUDACC__) || defined(__HIP__)

namespace turbo::gpu {

/// Row and range of this block, and its part of the row.
TB_DEVICE ArgmaxPart chain_part(const LogitRows& logits, uint32_t& row, uint64_t* slots) {
  row = block_x() / logits.splits;
  const uint64_t first = uint64_t{block_x() % logits.splits} * logits.split, vocab = logits.vocab;
  const uint64_t begin = first < vocab ? first : vocab, end = begin + logits.split < vocab ? begin + logits.split : vocab;
  return block_argmax(argmax_part(logits.data + uint64_t{row} * logits.stride, begin, end), slots);
}

TB_DEVICE void draft_step_body(const DraftStepArgs& a) {
  using Slots = uint64_t[kArgmaxThreads / kWave];
  TB_SHARED(Slots, slots);
  uint32_t row;
  const ArgmaxPart part = chain_part(a.logits, row, slots);
  ArgmaxPart whole;
  if (thread() != 0 || !argmax_arrive(a.scratch + row, part, a.logits.splits, whole)) return;
  const uint32_t index = key_index(whole.key);
  const int64_t token = a.target_id ? a.target_id[index] : static_cast<int64_t>(index);
  a.token[row] = token;
  if (a.probability) a.probability[row] = 1;
  if (a.draft_tokens) {
    int64_t* const chain = a.draft_tokens + row * a.draft_stride;
    if (a.first_tokens) chain[0] = a.first_tokens[row];
    chain[a.column] = token;
  }
  if (a.positions) a.positions[row] += 1;
  if (a.nan && whole.nan) a.nan[row] = 1;
}

/// Places of one chain that the target agrees with, root excluded.
template <typename Target>
TB_DEVICE uint32_t chain_correct(const int64_t* candidates, uint32_t width, Target target) {
  uint32_t correct = 0;
  while (correct + 1 < width && candidates[correct + 1] == target(correct)) ++correct;
  return correct;
}

TB_DEVICE void chain_verify_body(const ChainVerifyArgs& a) {
  using Slots = uint64_t[kArgmaxThreads / kWave];
  TB_SHARED(Slots, slots);
  TB_SHARED(uint32_t, is_last);
  uint32_t row;
  const ArgmaxPart part = chain_part(a.logits, row, slots);
  if (thread() == 0) {
    atomic_max(a.scratch.keys + row, part.key);
    if (part.nan) atomic_or(a.scratch.row_nan + row, 1);
    fence_device();
    is_last = atomic_add(a.scratch.arrivals, 1) + 1 == grid_x();
  }
  sync_block();
  if (!is_last) return;
  fence_device();
  for (uint32_t i = thread(); i < a.n_requests; i += threads()) {
    const uint64_t base = uint64_t{i} * a.width;
    const auto target = [&](uint32_t j) { return static_cast<int64_t>(key_index(load_shared_word(a.scratch.keys + base + j))); };
    const uint32_t correct = chain_correct(a.candidates + base, a.width, target);
    uint32_t nan = 0;
    for (uint32_t j = 0; j < a.width; ++j) {
      const int32_t token = static_cast<int32_t>(target(j));
      a.predict[base + j] = j <= correct ? token : 0;
      a.accept_index[base + j] = j <= correct ? static_cast<int32_t>(base + j) : -1;
      if (a.target) a.target[base + j] = token;
      nan |= load_shared_word(a.scratch.row_nan + base + j);
      store_shared_word(a.scratch.keys + base + j, uint64_t{0});
      store_shared_word(a.scratch.row_nan + base + j, uint32_t{0});
    }
    a.num_correct[i] = static_cast<int32_t>(correct);
    a.accept_lens[i] = static_cast<int32_t>(correct) + 1;
    if (a.nan && nan) a.nan[i] = 1;
  }
  if (thread() == 0) store_shared_word(a.scratch.arrivals, uint32_t{0});
}

/// One thread a row.
TB_DEVICE void simulated_accept_body(const SimulatedAcceptArgs& a) {
  const uint64_t r = uint64_t{block_x()} * threads() + thread();
  if (r >= uint64_t{a.n_requests} * a.width) return;
  const uint32_t i = static_cast<uint32_t>(r / a.width), j = static_cast<uint32_t>(r % a.width);
  uint32_t length = *a.length;
  length = length < 1 ? 1 : length > a.width ? a.width : length;
  int32_t token = a.fixed_token;
  if (a.candidates) token = j + 1 < length ? static_cast<int32_t>(a.candidates[r + 1]) : j + 1 == length ? a.target[r] : 0;
  a.predict[r] = token;
  a.accept_index[r] = j < length ? static_cast<int32_t>(r) : -1;
  if (j != 0) return;
  a.num_correct[i] = static_cast<int32_t>(length) - 1;
  a.accept_lens[i] = static_cast<int32_t>(length);
}

/// One thread a row.
TB_DEVICE void chain_tree_body(const ChainTreeArgs& a) {
  const uint64_t r = uint64_t{block_x()} * threads() + thread(), rows = uint64_t{a.n_requests} * a.width;
  if (r >= rows) return;
  const uint32_t i = static_cast<uint32_t>(r / a.width), j = static_cast<uint32_t>(r % a.width);
  const int64_t position = int64_t{a.seq[i]} + j;
  a.tokens[r] = j == 0 ? a.bonus[i] : a.drafts[i * a.draft_stride + j - 1];
  a.positions[r] = position;
  a.retrieve_index[r] = static_cast<int64_t>(r);
  a.next_token[r] = j + 1 < a.width ? int64_t{j} + 1 : -1;
  a.next_sibling[r] = -1;
  if (a.mask)
    for (uint32_t column = 0; column < a.width; ++column) a.mask[r * a.width + column] = column <= j;
  if (a.slots) {
    const bool inside = position >= 0 && static_cast<uint64_t>(position) < a.slot_stride;
    const int32_t slot = a.slot_table[i * a.slot_stride + (inside ? static_cast<uint64_t>(position) : 0)];
    a.slots[r] = inside ? slot : -1;
  }
  if (a.sections)
    for (uint32_t s = 0; s < 3; ++s) a.sections[s * rows + r] = position;
  if (!a.prefix_lens) return;
  a.extend_positions[r] = position;
  if (j != 0) return;
  a.prefix_lens[i] = a.seq[i] > 0 ? a.seq[i] : 0;
  a.extend_lens[i] = static_cast<int32_t>(a.width);
  a.post_lens[i] = a.seq[i] + static_cast<int32_t>(a.width);
  a.start_locs[i] = static_cast<int32_t>(r);
}

/// Each thread adds up for itself: batches are small, and a sum that needs no other lane is the same for every width of a
/// wave.
TB_DEVICE void chain_offsets(const ChainCommitArgs& a, uint32_t i) {
  const auto accepted = [&](uint32_t request) { return a.slot[request] < 0 ? 0 : a.accept_lens[request]; };
  int32_t before = 0;
  for (uint32_t request = 0; request < i; ++request) before += accepted(request);
  a.accept_offsets[i] = before;
  if (i + 1 == a.n_requests) a.accept_offsets[a.n_requests] = before + accepted(i);
}

/// One thread a request.
TB_DEVICE void chain_commit_body(const ChainCommitArgs& a) {
  const uint32_t i = block_x() * threads() + thread();
  if (i >= a.n_requests) return;
  if (a.accept_offsets) chain_offsets(a, i);
  const uint64_t base = uint64_t{i} * a.width;
  const int32_t length = a.accept_lens[i];
  const uint64_t last = base + static_cast<uint32_t>(length - 1);
  a.bonus[i] = a.predict[a.accept_index[last]];
  a.new_lens[i] = a.seq[i] + length;
  a.select[i] = static_cast<int64_t>(last);
  const int32_t slot = a.slot[i];
  if (slot >= 0 && static_cast<uint32_t>(slot) < a.relay_size) a.relay_lens[slot] = a.seq[i] + length;
}

}  // namespace turbo::gpu
#endif
