// Times steps that verify drafts of several widths, on the real device. Engine thread, or before it starts.
#pragma once

#include <span>
#include <vector>

#include "engine/step_runner.h"
#include "sched/planner.h"
#include "spec/step_cost.h"

namespace turbo::engine {

/// Median and best seconds of `reps` steps for each row count of one sequence (root included), after `depth` cached positions
/// and a warm-up; more of them, up to 16, while all took less than `more_ns`. Row counts that a step or a KV block cannot hold are left out. The blocks are given back.
/// resource_exhausted: the pool is too full.
Result<std::vector<spec::RowCost>> measure_verify_cost(const EngineParts& parts, StepRunner& runner, const sched::Budget& budget,
                                                       std::span<const uint32_t> rows, uint32_t depth, uint32_t reps, uint64_t more_ns = 0);

}  // namespace turbo::engine
