// Step table: the pack's own arrays behind a turbo_step_table, and the check of every value before a step runs.
// [load] to create; the engine thread fills it; the check and the run are [engine].
#pragma once

#include <turbo/abi/draft/arch_pack.h>

#include "kv_pool.h"

#include <vector>

namespace turbo::arch_cpu {

struct StepTable : turbo_step_table {
  explicit StepTable(const turbo_step_caps& caps);
  /// Throws Failure when a count or an array address is not the pack's own.
  void check_shape() const;

 private:
  std::vector<int32_t> storage_;
  std::vector<uint32_t> masks_;
  turbo_step_table made_{};
};

/// What a plan reads from the table.
struct StepNeeds {
  uint32_t max_rows = 0, max_logit_rows = 0;
  uint64_t vocabulary = 0;  // 0: tokens are not read
  bool positions = false;
  const turbo_kv_pool* pool = nullptr;
  bool appends = false, attends = false;
};

/// Scratch of the check, sized once.
struct StepScratch {
  std::vector<int32_t> direct_blocks;    // per sequence
  std::vector<uint64_t> append_places;   // per row
};

/// Throws Failure on the first value that is out of range or contradicts another; after it, no op can leave a buffer.
void check_step(const StepTable& table, const StepNeeds& needs, StepScratch& scratch);

}  // namespace turbo::arch_cpu
