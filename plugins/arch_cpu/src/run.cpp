// Running a plan: check the step, then walk the phases with the whole team.
#include "run.h"

#include <algorithm>
#include <chrono>
#include <string>

namespace turbo::arch_cpu {
namespace {

// Items of a job this step: every member computes the same numbers.
struct Items { uint32_t n; uint64_t grain; };

Items chain_items(const StepRun& run, const ChainJob& job) {
  const uint64_t units = uint64_t{run.rows(job.logit)} * job.groups;
  const uint64_t grain = std::max<uint64_t>(1, units / (uint64_t{run.n_threads} * 4));
  return {static_cast<uint32_t>((units + grain - 1) / grain), grain};
}

Items matmul_items(const StepRun& run, const MatmulJob& job) {
  if (run.rows(job.logit) == 0) return {0, 1};
  // Some items per thread, so that a thread slowed by another process costs little; not so few outputs that the
  // hand-out shows.
  const uint64_t share = job.outputs / (uint64_t{run.n_threads} * 8);
  const uint64_t grain = align_up(std::max<uint64_t>({share, job.tile, 32}), job.tile);
  return {static_cast<uint32_t>((job.outputs + grain - 1) / grain), grain};
}

Items items_of(const StepRun& run, const Job& job) {
  if (const ChainJob* chain = std::get_if<ChainJob>(&job.work)) return chain_items(run, *chain);
  if (const MatmulJob* matmul = std::get_if<MatmulJob>(&job.work)) return matmul_items(run, *matmul);
  return {run.plan.cut.n_items, 1};
}

void chain_item(StepRun& run, const ChainJob& job, uint32_t item, uint64_t grain) {
  const uint64_t begin = item * grain, end = std::min(begin + grain, uint64_t{run.rows(job.logit)} * job.groups);
  for (uint64_t unit = begin; unit < end; ++unit)
    for (const MicroOp& op : job.ops)
      run_micro(run, op, static_cast<uint32_t>(unit / job.groups), static_cast<uint32_t>(unit % job.groups), job.groups);
}

void matmul_item(StepRun& run, const MatmulJob& job, uint32_t item, uint64_t grain) {
  turbo_plan& plan = run.plan;
  const uint64_t begin = item * grain, end = std::min(begin + grain, job.outputs), n = end - begin;
  const uint32_t rows = run.rows(job.logit);
  for (const MatmulMember& member : job.members) {
    const turbo_weight& w = *member.weight;
    turbo_matmul args{};
    args.struct_size = sizeof args;
    args.n_rows = rows;
    args.matrix = &w.matrix;
    args.activations = plan.base(member.activation);
    args.activation_stride = plan.resources[member.activation].row_bytes;
    args.out = plan.row(member.out, 0);
    args.out_stride = w.rows;
    args.out_begin = begin;
    args.out_end = end;
    w.format->matmul(w.format_self, &args);
    if (member.bias)
      for (uint32_t row = 0; row < rows; ++row) {
        float* out = plan.row(member.out, row) + begin;
        run.kernels.add(out, member.bias->vector.data() + begin, out, n);
      }
  }
  for (const MicroOp& op : job.epilogue) {
    const auto apply = op.kind == Micro::add ? run.kernels.add : op.choice == TURBO_ACT_SILU ? run.kernels.silu_mul : run.kernels.gelu_mul;
    for (uint32_t row = 0; row < rows; ++row) apply(plan.row(op.a, row) + begin, plan.row(op.b, row) + begin, plan.row(op.out, row) + begin, n);
  }
}

void run_item(StepRun& run, const Job& job, uint32_t item, uint64_t grain, uint32_t member) {
  if (const ChainJob* chain = std::get_if<ChainJob>(&job.work)) return chain_item(run, *chain, item, grain);
  if (const MatmulJob* matmul = std::get_if<MatmulJob>(&job.work)) return matmul_item(run, *matmul, item, grain);
  run_attend_item(run, std::get<AttendJob>(job.work), item, member);
}

// Items of a phase are dealt out in one contiguous range for each member, which takes them in order, so that what it
// fetches ahead is what it computes next; who is done takes what is left of the others' ranges.
struct Range { uint64_t begin, end; };
Range own_range(uint64_t total, uint32_t member, uint32_t n_members) {
  return {total * member / n_members, total * (member + 1) / n_members};
}

uint64_t count_items(const StepRun& run, const Phase& phase) {
  uint64_t total = 0;
  for (const Job& job : phase.jobs) total += items_of(run, job).n;
  return total;
}

void run_nth(StepRun& run, const Phase& phase, uint64_t item, uint32_t member) {
  for (const Job& job : phase.jobs) {
    const Items items = items_of(run, job);
    if (item < items.n) return run_item(run, job, static_cast<uint32_t>(item), items.grain, member);
    item -= items.n;
  }
}

// The member's part of one phase; false when the phase has nothing to do this step.
bool run_phase(StepRun& run, const Phase& phase, Counter* taken, uint32_t member) {
  const uint64_t total = count_items(run, phase);
  if (total == 0) return false;
  for (uint32_t i = 0; i < run.n_threads; ++i) {
    const uint32_t owner = (member + i) % run.n_threads;
    const Range range = own_range(total, owner, run.n_threads);
    std::atomic<uint32_t>& next = taken[owner].next;
    while (range.begin + next.load(std::memory_order_relaxed) < range.end) {
      const uint64_t item = range.begin + next.fetch_add(1, std::memory_order_relaxed);
      if (item < range.end) run_nth(run, phase, item, member);
    }
  }
  return true;
}

struct TeamRun {
  StepRun& run;
  ThreadTeam& team;
  static void body(void* context, uint32_t member) {
    const TeamRun& self = *static_cast<TeamRun*>(context);
    const std::vector<Phase>& phases = self.run.plan.phases;
    for (size_t i = 0; i < phases.size(); ++i)
      if (run_phase(self.run, phases[i], self.run.plan.taken_of(i), member) && i + 1 < phases.size())
        self.team.barrier();
  }
};

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

}  // namespace

void run_plan(turbo_plan& plan, StepTable& table, ThreadTeam& team, const Kernels& kernels) {
  pack::check_step(table, plan.needs, plan.check_scratch);
  if (table.n_rows == 0) return;
  const uint64_t start = now_ns();
  const uint32_t members = std::min(team.size(), team.pace().members(start));
  if (plan.needs.attends) cut_attention(plan, table, members);
  for (size_t i = 0; i < plan.phases.size() * plan.n_members; ++i) plan.taken[i].next.store(0, std::memory_order_relaxed);
  StepRun run{plan, table, kernels, members};
  TeamRun body{run, team};
  const uint64_t stalled = team.run(&TeamRun::body, &body, members);
  const uint64_t end = now_ns();
  team.pace().ran(end, end - start, stalled);
  if (run.status != TURBO_OK)
    throw Failure(run.status, "program '" + plan.name + "': row " + std::to_string(run.failed_row) + ": the KV codec refused its key or value in layer " +
                                  std::to_string(run.failed_layer) + " (NaN or out of range)",
                  "the model's weights may be damaged");
}

}  // namespace turbo::arch_cpu
