// One run of a plan: what every job of the step sees. [team]
#pragma once

#include "plan.h"

#include <cstring>

namespace turbo::arch_cpu {

struct StepRun {
  turbo_plan& plan;
  const StepTable& table;
  const Kernels& kernels;
  uint32_t n_threads;
  // first failure of a codec inside the step, by any member
  std::atomic<int32_t> status{TURBO_OK};
  std::atomic<uint32_t> failed_row{0}, failed_layer{0};

  uint32_t rows(bool logit) const { return logit ? table.n_logit_rows : table.n_rows; }
  void fail(turbo_status code, uint32_t row, uint32_t layer) {
    int32_t none = TURBO_OK;
    if (status.compare_exchange_strong(none, code)) {
      failed_row = row;
      failed_layer = layer;
    }
  }
};

/// Choose row groups and split runs of this step.
void cut_attention(turbo_plan& plan, const StepTable& table, uint32_t n_threads);
void run_attend_item(StepRun& run, const AttendJob& job, uint32_t item, uint32_t member);

/// Ops `op` of group `group` (of `groups`) of one row.
void run_micro(StepRun& run, const MicroOp& op, uint32_t row, uint32_t group, uint32_t groups);

}  // namespace turbo::arch_cpu
