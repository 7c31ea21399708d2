// Runs one planned step on the device: step table in, drawn tokens out. Engine thread only.
//
// Owns the step table, the compiled plans and the arrays the sampler reads. Knows nothing of requests' lives.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "engine/plan_cache.h"
#include "engine/request.h"
#include "engine/row_masks.h"
#include "sched/planner.h"
#include "spec/draft_tree.h"

namespace turbo::engine {

struct GroupInput {
  const sched::RowGroup* group;
  const spec::DraftTree* draft;  // null when the group has no draft rows
  const Request* request;
  uint64_t seed;
};

struct GroupOutput {
  Status status;             // of the group as a whole: its token mask failed; other groups are not affected
  uint32_t first_row = 0;    // step row of the group's first token
  std::vector<Token> drawn;  // [0] after the last token, [1 + i] after draft node i; empty when nothing was due
  std::vector<Status> faults;  // per drawn token; not ok: its id is -1. not_found: no token was allowed
  std::vector<Token> scores; // prompt_logprobs: token first + 1 + i given those before it
  std::vector<std::span<const float>> logits;  // prompt_logits: rows of the scores, borrowed until the next run
};

/// Time of the engine thread since the last reset. On device tiers sampling is only started by the host; the wait for
/// it counts as computing.
struct StepTimes {
  uint64_t compute_ns = 0;  // the device's program, until it is done
  uint64_t sample_ns = 0;   // masks, draws and scores
};

class StepRunner {
 public:
  static Result<std::unique_ptr<StepRunner>> create(const EngineParts& parts, const turbo_step_caps& caps,
                                                    std::vector<int32_t> tap_layers);
  ~StepRunner();
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  /// All groups of a step. A failure here is the device's and fails every request of the step. On device tiers
  /// `meanwhile` runs while the device computes; where run is synchronous it runs before.
  Status run(std::span<const GroupInput> groups, std::vector<GroupOutput>& outputs, const std::function<void()>& meanwhile);

  /// Tap views of the last run, {rows, n_embd}.
  const std::vector<turbo_view>& taps() const { return tap_views_; }
  const StepTimes& times() const { return times_; }
  void reset_times() { times_ = {}; }
  uint64_t workspace_bytes() const { return plans_.workspace_bytes(); }

 private:
  // A logit row and who wants it.
  struct LogitRow {
    uint32_t group;
    uint32_t step_row;
    uint32_t position;  // of the row
    int32_t node;       // draft node, -1 for the last token; unused for scores
  };
  struct SamplingArrays;

  StepRunner(const EngineParts& parts, std::vector<int32_t> tap_layers);
  void fill_table(std::span<const GroupInput> groups, std::vector<GroupOutput>& outputs);
  void fill_tokens(const GroupInput& input, uint32_t sequence_index, uint32_t group_index);
  void fill_draft(const GroupInput& input, uint32_t sequence_index, uint32_t group_index);
  void fill_blocks(const kv::SequenceBlocks& blocks, uint32_t sequence_index);
  uint32_t add_row(int32_t token, uint32_t position, uint32_t slot, uint32_t sequence_index);
  Status draw(const CompiledStep& step, std::span<const GroupInput> groups, std::vector<GroupOutput>& outputs);
  Status read_logits(const CompiledStep& step);
  void mask(std::span<const GroupInput> groups, std::vector<GroupOutput>& outputs);
  Status sample(std::span<const GroupInput> groups, std::vector<GroupOutput>& outputs);
  void score(std::span<const GroupInput> groups, std::vector<GroupOutput>& outputs);

  const EngineParts& parts_;
  PlanCache plans_;
  turbo_step_table* table_ = nullptr;
  std::vector<LogitRow> sampled_, scored_;
  turbo_view logits_{};
  std::vector<float> logits_copy_;  // of scored rows, when logits are in device memory
  std::vector<turbo_view> tap_views_;
  std::unique_ptr<SamplingArrays> arrays_;
  RowMasks masks_;
  StepTimes times_;
};

}  // namespace turbo::engine
