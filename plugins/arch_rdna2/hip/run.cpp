// Running a plan: check the step, then enqueue it, step by step or as a recorded graph.
#include "plan.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

namespace turbo::arch_rdna2 {
namespace {

using State = Recorded::State;

class PlanRun {
 public:
  PlanRun(turbo_plan& plan, StepTable& table, const PlanTools& tools, Staging& staging, const std::function<void(const std::string&)>& warn)
      : plan_(plan), table_(table), tools_(tools), staging_(staging), warn_(warn), runtime_(tools.device.runtime()) {}

  void run() {
    pack::check_step(table_, plan_.needs, plan_.check_scratch);
    if (table_.n_rows == 0) return;
    if (plan_.needs.attends) check_together();
    table_.set_head();
    const uint32_t chunks = reach();
    tools_.scratch.reserve(scratch_bytes(chunks));
    StepRun run{plan_, tools_.ops, table_.on_device_table(), chunks, tools_.scratch.data(), tools_.device.stream()};
    if (!plan_.records) return steps(run);
    Recorded& recorded = plan_.graphs[{&table_, chunks}];
    if (recorded.scratch_generation != tools_.scratch.generation() || (!recorded.fused.empty() && !tools_.step_kernels->allowed())) forget(recorded);
    if (recorded.state == State::fresh) {
      steps(run);
      recorded.state = State::ran;
      recorded.scratch_generation = tools_.scratch.generation();
      return;
    }
    if (recorded.state == State::ran && !record(run, recorded)) return steps(run);
    if (!plan_.compared) return compare(run, recorded);
    replay(run, recorded);
  }

 private:
  // Kernels share what rows of a sequence read, so these must lie together.
  void check_together() const {
    for (uint32_t row = 1; row < table_.n_rows; ++row) {
      if (table_.row_seq[row] == table_.row_seq[row - 1]) continue;
      if (std::find(table_.row_seq, table_.row_seq + row, table_.row_seq[row]) != table_.row_seq + row)
        throw Failure(TURBO_INVALID_ARGUMENT, "step table: the rows of sequence " + std::to_string(table_.row_seq[row]) + " do not lie together");
    }
  }

  // Chunks of keys that the longest row reads, as a power of two.
  uint32_t reach() const {
    if (!plan_.needs.attends) return 1;
    const int32_t last = *std::max_element(table_.position, table_.position + table_.n_rows);
    return std::bit_ceil(static_cast<uint32_t>(last) / TURBO_DEVICE_CHUNK + 1);
  }

  // Asking every step takes longer than launching their graph.
  uint64_t scratch_bytes(uint32_t chunks) const {
    const auto [at, first] = plan_.scratch_by_reach.try_emplace(chunks, 0);
    if (first) at->second = plan_.scratch_bytes(chunks);
    return at->second;
  }

  void steps(const StepRun& run) const {
    tools_.ops.table(table_.args());
    for (const Step& step : plan_.steps) {
      try {
        step.enqueue(run);
      } catch (const Failure& failure) {
        throw Failure(failure.code, "program '" + plan_.name + "', " + step.what + ": " + failure.message, failure.hint);
      }
    }
  }

  void replay(const StepRun& run, const Recorded& recorded) {
    if (!recorded.fused.empty()) table_.set_tag(tools_.step_kernels->next_tag(plan_.mail));
    runtime_.launch_graph(run.stream, recorded.graph);
  }

  void forget(Recorded& recorded) {
    if (recorded.graph) runtime_.destroy_graph(recorded.graph);
    recorded = {};
    recorded.scratch_generation = tools_.scratch.generation();
  }

  void give_up(const std::string& why) {
    plan_.records = false;
    plan_.drop_graphs(nullptr);
    warn_("program '" + plan_.name + "' goes on without recorded graphs: " + why);
  }

  bool record(const StepRun& run, Recorded& recorded) {
    try {
      const std::optional<std::vector<hip::Enqueued>> launches = list(run);
      if (launches) recorded.fused = fuse(*launches);
      runtime_.begin_capture(run.stream);
      if (launches) tools_.step_kernels->enqueue(recorded.fused, *launches, run.stream);
      else steps(run);
      recorded.graph = runtime_.end_capture();
      recorded.state = State::recorded;
      return true;
    } catch (const Failure& failure) {
      runtime_.drop_capture();
      if (runtime_.lost()) throw;
      give_up(failure.message);
      return false;
    }
  }

  // The step's launches, for step kernels to take some; none: they are not wanted, or the step is more than launches.
  std::optional<std::vector<hip::Enqueued>> list(const StepRun& run) {
    if (!tools_.step_kernels || !tools_.step_kernels->allowed()) return std::nullopt;
    std::vector<hip::Enqueued> launches;
    runtime_.begin_list(launches);
    try {
      steps(run);
    } catch (...) {
      if (runtime_.end_list()) throw;
      return std::nullopt;
    }
    runtime_.end_list();
    return launches;
  }

  // Without memory for it the launches stay as they are.
  FusedStep fuse(std::span<const hip::Enqueued> launches) {
    try {
      return tools_.step_kernels->fuse(launches, table_.on_device_table().counts, plan_.mail, staging_);
    } catch (const Failure& failure) {
      if (failure.code != TURBO_RESOURCE_EXHAUSTED) throw;
      return {};
    }
  }

  void sync() const {
    const turbo_device& table = *tools_.device.table();
    checked("", [&](turbo_error* error) { return table.sync(table.ctx, table.stream, error); });
  }

  // Live rows of all kept buffers.
  std::vector<float> kept() {
    std::vector<float> all;
    for (uint32_t b = plan_.n_inputs; b < plan_.buffers.size(); ++b) {
      const turbo_buffer& buffer = plan_.buffers[b];
      const uint64_t rows = buffer.rows == TURBO_ROWS_LOGIT ? table_.n_logit_rows : table_.n_rows;
      if (!buffer.keep || rows == 0) continue;
      const size_t at = all.size();
      all.resize(at + rows * buffer.width);
      staging_.rows_to_host(all.data() + at, plan_.row(b, 0), rows, buffer.width * sizeof(float), plan_.places[b].stride * sizeof(float));
    }
    return all;
  }

  // The same step both ways. Appending keys twice writes the same bits.
  void compare(const StepRun& run, Recorded& recorded) {
    steps(run);
    const std::vector<float> want = kept();
    replay(run, recorded);
    const std::vector<float> got = kept();
    sync();
    if (want.size() == got.size() && std::memcmp(want.data(), got.data(), want.size() * sizeof(float)) == 0) {
      plan_.compared = true;
      return;
    }
    if (tools_.step_kernels && tools_.step_kernels->stopped()) {
      forget(recorded);  // whoever waits for the step takes it back
      return;
    }
    give_up("a replay did not give the bits of its steps");
    steps(run);
  }

  turbo_plan& plan_;
  StepTable& table_;
  const PlanTools& tools_;
  Staging& staging_;
  const std::function<void(const std::string&)>& warn_;
  hip::Runtime& runtime_;
};

}  // namespace

void run_plan(turbo_plan& plan, StepTable& table, const PlanTools& tools, Staging& staging, const std::function<void(const std::string&)>& warn) {
  PlanRun(plan, table, tools, staging, warn).run();
}

}  // namespace turbo::arch_rdna2
