#include "engine/verify_cost.h"

#include <algorithm>

#include "base/clock.h"

namespace turbo::engine {
namespace {

constexpr uint32_t kMostReps = 16;

// A sequence of arbitrary tokens that no request sees.
class Subject {
 public:
  Subject(const EngineParts& parts, StepRunner& runner, uint32_t depth) : parts_(parts), runner_(runner) {
    sequence_.generates = true;
    for (uint32_t i = 0; i <= depth; ++i) sequence_.tokens.push_back(static_cast<int32_t>((i * 7919u + 13u) % parts.config->vocab_size));
    sequence_.n_prompt = depth + 1;
    request_.sampling.temperature = 0;
  }
  ~Subject() { parts_.cache->release(sequence_.blocks); }
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;

  Status grow(uint64_t slots) {
    if (parts_.cache->grow(sequence_.blocks, slots)) return Status::ok();
    return error(Code::resource_exhausted, "no KV blocks are free for timing {} positions", slots);
  }

  // Everything but the last token.
  Status prefill(const sched::Budget& budget) {
    const uint32_t end = sequence_.n_prompt - 1;
    while (sequence_.computed < end) {
      uint32_t n = std::min({end - sequence_.computed, budget.prefill_chunk, budget.max_rows});
      if (budget.stay_in_block) n = std::min(n, kv::kBlock - sequence_.computed % kv::kBlock);
      TURBO_RETURN_IF_ERROR(step(n, 0, false));
      sequence_.computed += n;
      TURBO_RETURN_IF_ERROR(parts_.cache->commit(sequence_.blocks, sequence_.computed));
    }
    return Status::ok();
  }

  // The root and rows - 1 nodes in a chain. Nothing is committed, so it can be done again.
  Status verify(uint32_t rows) {
    draft_ = {};
    for (uint32_t i = 0; i + 1 < rows; ++i) {
      draft_.tokens.push_back(static_cast<int32_t>((i * 31u + 5u) % parts_.config->vocab_size));
      draft_.parents.push_back(static_cast<int32_t>(i) - 1);
    }
    return step(1, rows - 1, true);
  }

 private:
  Status step(uint32_t n_tokens, uint32_t n_draft, bool last) {
    const sched::RowGroup group{&sequence_, sequence_.computed, n_tokens, n_draft, last};
    const GroupInput input{&group, n_draft ? &draft_ : nullptr, &request_, 1};
    return runner_.run({&input, 1}, outputs_, [] {});
  }

  const EngineParts& parts_;
  StepRunner& runner_;
  sched::Sequence sequence_;
  Request request_;
  spec::DraftTree draft_;
  std::vector<GroupOutput> outputs_;
};

}  // namespace

Result<std::vector<spec::RowCost>> measure_verify_cost(const EngineParts& parts, StepRunner& runner, const sched::Budget& budget,
                                                       std::span<const uint32_t> rows, uint32_t depth, uint32_t reps, uint64_t more_ns) {
  const uint32_t room = budget.stay_in_block ? kv::kBlock - depth % kv::kBlock : ~0u;
  std::vector<uint32_t> widths;
  for (const uint32_t n : rows)
    if (n > 0 && n <= std::min({budget.max_rows, budget.max_logit_rows, room, spec::StepCost::kMostRows})) widths.push_back(n);
  std::vector<spec::RowCost> costs;
  if (widths.empty()) return costs;
  Subject subject(parts, runner, depth);
  TURBO_RETURN_IF_ERROR(subject.grow(uint64_t{depth} + *std::max_element(widths.begin(), widths.end())));
  TURBO_RETURN_IF_ERROR(subject.prefill(budget));
  // In turn: what disturbs the machine for a while disturbs all row counts alike.
  std::vector<std::vector<double>> times(widths.size());
  const uint64_t enough = now_ns() + more_ns;
  for (uint32_t i = 0; i <= reps || (i <= kMostReps && now_ns() < enough); ++i)
    for (size_t w = 0; w < widths.size(); ++w) {
      const uint64_t begin = now_ns();
      TURBO_RETURN_IF_ERROR(subject.verify(widths[w]));
      if (i > 0) times[w].push_back(seconds(now_ns() - begin));
    }
  for (size_t w = 0; w < widths.size(); ++w) {
    std::sort(times[w].begin(), times[w].end());
    costs.push_back({widths[w], times[w][times[w].size() / 2], times[w].front()});
  }
  return costs;
}

}  // namespace turbo::engine
