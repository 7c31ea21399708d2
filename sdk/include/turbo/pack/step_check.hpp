// Step table for arch packs: the arrays behind a turbo_step_table, and the check of every value before a step runs.
// [load] to create; the engine thread fills it; the check is [engine].
#pragma once

#include <turbo/pack/facts.hpp>
#include <turbo/plugin.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace turbo::pack {

/// What a plan reads from the table.
struct StepNeeds {
  uint32_t max_rows = 0, max_logit_rows = 0;
  uint64_t vocabulary = 0;  // 0: tokens are not read
  bool positions = false;
  std::optional<PoolFacts> pool;
  bool appends = false, attends = false;
  /// A block that a row reads in packed form must have a packed id. Else its open id may stand in for it.
  bool packed_ids = false;
};

/// Scratch of the check, sized once.
struct StepScratch {
  std::vector<int32_t> direct_blocks;   // per sequence
  std::vector<int32_t> packed_blocks;   // per sequence: blocks before the last row's own, read at their own slots
  std::vector<uint64_t> append_places;  // per row
};

namespace detail {

[[noreturn]] inline void refuse(const std::string& why) { throw Failure(TURBO_INVALID_ARGUMENT, "step table: " + why); }
inline std::string at_row(uint32_t row) { return "row " + std::to_string(row) + ": "; }

// Ids of one logical block of a sequence.
struct BlockIds { int32_t packed, open; };
inline BlockIds block_ids(const turbo_step_table& table, uint32_t seq, uint64_t block) {
  const uint64_t at = uint64_t{seq} * table.block_capacity + block;
  return {table.block_table[at], table.open_table[at]};
}

class StepKvCheck {
 public:
  StepKvCheck(const turbo_step_table& table, const StepNeeds& needs, StepScratch& scratch)
      : t_(table), needs_(needs), pool_(*needs.pool), scratch_(scratch), any_two_form_(pool_.any_two_form), any_one_form_(pool_.any_one_form),
        sinks_(pool_.sinks) {}

  void run() {
    for (std::vector<int32_t>* blocks : {&scratch_.direct_blocks, &scratch_.packed_blocks}) std::fill_n(blocks->begin(), t_.n_seqs, 0);
    for (uint32_t row = 0; row < t_.n_rows; ++row) check_row(row);
    if (needs_.attends)
      for (uint32_t seq = 0; seq < t_.n_seqs; ++seq)
        for (int32_t block = 0; block < scratch_.direct_blocks[seq]; ++block) readable(seq, block, uint64_t(block) * TURBO_KV_BLOCK < sinks_ || uncommitted(seq, block));
    if (needs_.attends && needs_.packed_ids && any_two_form_)
      for (uint32_t seq = 0; seq < t_.n_seqs; ++seq)
        for (int32_t block = 0; block < scratch_.packed_blocks[seq]; ++block)
          if (!uncommitted(seq, block)) packed(seq, block);
    if (needs_.appends && t_.n_rows > 1) check_distinct();
  }

 private:
  void check_row(uint32_t row) {
    const int32_t seq = t_.row_seq[row], position = t_.position[row], slot = t_.slot[row], length = t_.path_length[row];
    if (seq < 0 || static_cast<uint32_t>(seq) >= t_.n_seqs) refuse(at_row(row) + "sequence " + std::to_string(seq) + " of " + std::to_string(t_.n_seqs));
    const int32_t committed = t_.committed[seq];
    if (committed < 0) refuse("sequence " + std::to_string(seq) + ": committed " + std::to_string(committed));
    check_slot(row, slot);
    if (needs_.appends) check_append(row, seq, slot);
    if (length == 0) {
      if (slot != position) refuse(at_row(row) + "slot " + std::to_string(slot) + " differs from position " + std::to_string(position) + " without a path");
      note_direct(seq, position + 1);
      note_packed(seq, position / 64);
    } else {
      check_path(row, seq, position, slot, length, committed);
    }
    if (needs_.attends && any_two_form_ && (length == 0 || position / 64 * 64 < committed)) readable(seq, position / 64, true);
  }

  void check_path(uint32_t row, int32_t seq, int32_t position, int32_t slot, int32_t length, int32_t committed) {
    if (length < 0 || static_cast<uint32_t>(length) > t_.path_capacity || int64_t{position} - committed + 1 != length)
      refuse(at_row(row) + "path of " + std::to_string(length) + " for position " + std::to_string(position) + " after " + std::to_string(committed) + " committed");
    const int32_t* path = t_.path + uint64_t{row} * t_.path_capacity;
    if (path[length - 1] != slot) refuse(at_row(row) + "its path does not end at its slot");
    note_direct(seq, committed);
    note_packed(seq, std::min(position / 64, (committed + 63) / 64));
    for (int32_t i = 0; i < length; ++i) {
      check_slot(row, path[i]);
      const int64_t key = int64_t{committed} + i;
      if (!needs_.attends) continue;
      readable(seq, path[i] / 64, key < sinks_ || key / 64 == position / 64 || uncommitted(seq, key / 64));
      if (needs_.packed_ids && any_two_form_ && key >= sinks_ && key / 64 != position / 64 && !uncommitted(seq, key / 64)) packed(seq, path[i] / 64);
    }
  }

  void check_slot(uint32_t row, int32_t slot) const {
    if (slot < 0 || static_cast<uint32_t>(slot) / 64 >= t_.block_capacity) refuse(at_row(row) + "slot " + std::to_string(slot) + " is past the block table");
  }

  void note_direct(int32_t seq, int32_t keys) {
    scratch_.direct_blocks[seq] = std::max(scratch_.direct_blocks[seq], (keys + 63) / 64);
  }

  void note_packed(int32_t seq, int32_t blocks) { scratch_.packed_blocks[seq] = std::max(scratch_.packed_blocks[seq], blocks); }
  void packed(uint32_t seq, int32_t block) const {
    if (in_packed(block_ids(t_, seq, block).packed)) return;
    refuse("sequence " + std::to_string(seq) + ": block " + std::to_string(block) + " is read packed but has no packed id");
  }

  // Every row reads the block in open form.
  bool uncommitted(uint32_t seq, int64_t block) const { return t_.open_uncommitted && block >= t_.committed[seq] / 64; }

  bool in_packed(int32_t id) const { return id >= 0 && static_cast<uint32_t>(id) < pool_.n_blocks(); }
  bool in_open(int32_t id) const { return id >= 0 && static_cast<uint32_t>(id) < pool_.n_open_blocks(); }

  // Every form that some row may read of this block exists.
  void readable(uint32_t seq, int32_t block, bool as_open) const {
    if (static_cast<uint32_t>(block) >= t_.block_capacity) refuse("sequence " + std::to_string(seq) + ": more keys than its block table holds");
    const BlockIds ids = block_ids(t_, seq, block);
    bool good = !any_one_form_ || in_packed(ids.packed);
    if (any_two_form_) good = good && (ids.packed >= 0 ? in_packed(ids.packed) : in_open(ids.open)) && (!as_open || in_open(ids.open));
    if (!good)
      refuse("sequence " + std::to_string(seq) + ": block " + std::to_string(block) + " has ids " + std::to_string(ids.packed) + " and " +
             std::to_string(ids.open) + " (open)");
  }

  void check_append(uint32_t row, uint32_t seq, int32_t slot) {
    const BlockIds ids = block_ids(t_, seq, slot / 64);
    if ((any_one_form_ && !in_packed(ids.packed)) || (any_two_form_ && !in_open(ids.open)))
      refuse(at_row(row) + "its slot lies in a block with ids " + std::to_string(ids.packed) + " and " + std::to_string(ids.open) + " (open)");
    const uint32_t id = static_cast<uint32_t>(any_two_form_ ? ids.open : ids.packed);
    scratch_.append_places[row] = uint64_t{id} * TURBO_KV_BLOCK + static_cast<uint32_t>(slot) % TURBO_KV_BLOCK;
  }

  void check_distinct() {
    const auto begin = scratch_.append_places.begin(), end = begin + t_.n_rows;
    std::sort(begin, end);
    if (std::adjacent_find(begin, end) != end) refuse("two rows write the same place of the cache");
  }

  const turbo_step_table& t_;
  const StepNeeds& needs_;
  const PoolFacts& pool_;
  StepScratch& scratch_;
  const bool any_two_form_, any_one_form_;
  const uint32_t sinks_;
};

}  // namespace detail

/// A table over memory of its maker, remembered so that replaced counts or addresses are noticed.
struct StepArrays : turbo_step_table {
  static constexpr uint64_t kMaxRows = 65536, kMaxEntries = uint64_t{1} << 28;

  /// Throws Failure when the sizes are out of range. Afterwards words() and mask_words_of() do not overflow.
  static void check_caps(const turbo_step_caps& caps) {
    if (caps.rows == 0 || caps.rows > kMaxRows || caps.sequences > kMaxRows || caps.logit_rows > kMaxRows ||
        uint64_t{caps.logit_rows} * caps.mask_words > kMaxEntries || uint64_t{caps.sequences} * caps.blocks_per_sequence > kMaxEntries ||
        uint64_t{caps.rows} * caps.path > kMaxEntries)
      throw Failure(TURBO_INVALID_ARGUMENT, "step table: " + std::to_string(caps.rows) + " rows, " + std::to_string(caps.sequences) +
                                                " sequences of " + std::to_string(caps.blocks_per_sequence) + " blocks, paths of " +
                                                std::to_string(caps.path) + " are out of range");
  }
  /// 32-bit words of all arrays but the masks.
  static uint64_t words(const turbo_step_caps& caps) {
    const uint64_t rows = caps.rows, seqs = caps.sequences;
    return 5 * rows + rows * caps.path + seqs + 2 * seqs * caps.blocks_per_sequence + caps.logit_rows;
  }

  /// Lays the arrays into `storage` (words() long) and `masks` (logit_rows * mask_words), and empties them.
  StepArrays(const turbo_step_caps& caps, int32_t* storage, uint32_t* masks) : turbo_step_table{} {
    struct_size = sizeof(turbo_step_table);
    row_capacity = caps.rows;
    seq_capacity = caps.sequences;
    logit_capacity = caps.logit_rows;
    block_capacity = caps.blocks_per_sequence;
    path_capacity = caps.path;
    const uint64_t rows = caps.rows, seqs = caps.sequences, blocks = seqs * caps.blocks_per_sequence, paths = rows * caps.path;
    std::fill_n(storage, words(caps), 0);
    const auto take = [&storage](uint64_t n) { return storage += n, storage - n; };
    token = take(rows);
    position = take(rows);
    row_seq = take(rows);
    slot = take(rows);
    path_length = take(rows);
    path = take(paths);
    committed = take(seqs);
    block_table = take(blocks);
    open_table = take(blocks);
    logit_row = take(caps.logit_rows);
    std::fill_n(block_table, 2 * blocks, -1);
    const uint64_t n_masks = uint64_t{caps.logit_rows} * caps.mask_words;
    if (n_masks) std::fill_n(masks, n_masks, 0u);
    mask = n_masks ? masks : nullptr;
    mask_words = caps.mask_words;
    made_ = *this;
  }
  StepArrays(const StepArrays&) = delete;
  StepArrays& operator=(const StepArrays&) = delete;

  /// Throws Failure when a capacity or an array address is not the maker's own.
  void check_shape() const {
    if (row_capacity != made_.row_capacity || seq_capacity != made_.seq_capacity || logit_capacity != made_.logit_capacity ||
        block_capacity != made_.block_capacity || path_capacity != made_.path_capacity || token != made_.token ||
        position != made_.position || row_seq != made_.row_seq || slot != made_.slot || path_length != made_.path_length ||
        path != made_.path || committed != made_.committed || block_table != made_.block_table || open_table != made_.open_table ||
        logit_row != made_.logit_row || mask != made_.mask || mask_words != made_.mask_words)
      detail::refuse("its capacities or arrays were replaced");
  }

 private:
  turbo_step_table made_{};
};

/// Throws Failure on the first value that is out of range or contradicts another; after it, no op can leave a buffer.
inline void check_step(const StepArrays& table, const StepNeeds& needs, StepScratch& scratch) {
  table.check_shape();
  const auto count = [](const char* what, uint32_t n, uint32_t table_limit, uint32_t plan_limit) {
    if (n > table_limit || n > plan_limit)
      detail::refuse(std::to_string(n) + " " + what + "; the table holds " + std::to_string(table_limit) + ", the plan " + std::to_string(plan_limit));
  };
  count("rows", table.n_rows, table.row_capacity, needs.max_rows);
  count("logit rows", table.n_logit_rows, table.logit_capacity, needs.max_logit_rows);
  count("sequences", table.n_seqs, table.seq_capacity, table.seq_capacity);
  for (uint32_t i = 0; i < table.n_logit_rows; ++i)
    if (table.logit_row[i] < 0 || static_cast<uint32_t>(table.logit_row[i]) >= table.n_rows)
      detail::refuse("logit row " + std::to_string(i) + " names row " + std::to_string(table.logit_row[i]) + " of " + std::to_string(table.n_rows));
  for (uint32_t row = 0; row < table.n_rows; ++row) {
    if (needs.vocabulary && (table.token[row] < 0 || static_cast<uint64_t>(table.token[row]) >= needs.vocabulary))
      detail::refuse(detail::at_row(row) + "token " + std::to_string(table.token[row]) + " is not in the vocabulary of " + std::to_string(needs.vocabulary));
    if ((needs.positions || needs.pool) && (table.position[row] < 0 || table.position[row] == INT32_MAX))
      detail::refuse(detail::at_row(row) + "position " + std::to_string(table.position[row]));
  }
  if (!needs.pool || !(needs.appends || needs.attends)) return;
  if (scratch.direct_blocks.size() < table.seq_capacity) scratch.direct_blocks.resize(table.seq_capacity);
  if (scratch.packed_blocks.size() < table.seq_capacity) scratch.packed_blocks.resize(table.seq_capacity);
  if (scratch.append_places.size() < table.row_capacity) scratch.append_places.resize(table.row_capacity);
  detail::StepKvCheck(table, needs, scratch).run();
}

}  // namespace turbo::pack
