// Plan: a compiled program. Phases run one after another with a barrier between them; the jobs of a phase are
// independent, and each is cut into items that the team's members share (run.cpp).
//
//   chain    row-wise ops in sequence; one item is one row, or one head of one row
//   matmul   one or more matrices of equal height on the same rows, then element-wise ops on the item's outputs
//   attend   attention of one layer; one item is (row group, kv head, run of 64-key splits)
//
// Everything an op touches is a resource: program buffers first, then prepared activations, prepared queries, rope
// tables, tap copies, cache layers and scratch. Resources with bytes share one arena, placed by their life time.
// [load] to build; run is [engine]; jobs are [team].
#pragma once

#include "kernels.h"
#include "kv_pool.h"
#include "memory.h"
#include "step_table.h"
#include "team.h"
#include "weights.h"

#include <atomic>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace turbo::arch_cpu {

using Resource = uint32_t;

enum class Micro : uint8_t {
  embed, rms_norm, add, rope, kv_append, gated_act, gather, concat, top_k, tap,
  prepare_activation, prepare_query, rope_table,
};

/// One row-wise op. Widths are floats of a whole row; an item works on its group's slice.
struct MicroOp {
  Micro kind;
  Resource a = 0, b = 0, out = 0;
  uint64_t a_width = 0, b_width = 0, out_width = 0;
  const turbo_weight* weight = nullptr;
  float eps = 0;        // rms_norm; rope table: magnitude
  uint32_t layer = 0;   // kv_append, prepare_query
  uint32_t choice = 0;  // act, rope style
  uint32_t dims = 0;    // rope
};

struct ChainJob {
  bool logit = false;
  uint32_t groups = 1;
  std::vector<MicroOp> ops;
};

struct MatmulMember {
  const turbo_weight* weight;
  const turbo_weight* bias;
  Resource activation, out;
};

struct MatmulJob {
  bool logit = false;
  uint64_t outputs = 0;
  uint64_t tile = 1;
  std::vector<MatmulMember> members;
  std::vector<MicroOp> epilogue;  // add, gated_act on the item's outputs
};

struct AttendJob {
  uint32_t layer = 0, n_heads = 0;
  float scale = 0;
  Resource query = 0, out = 0;
};

struct Job {
  std::variant<ChainJob, MatmulJob, AttendJob> work;
  std::vector<Resource> reads, writes;
};

struct Phase { std::vector<Job> jobs; };

struct ResourceInfo {
  uint64_t bytes = 0;       // 0: no storage (cache layers)
  bool always = false;      // inputs, kept buffers, taps: never shared
  uint64_t row_bytes = 0;   // distance between rows
  bool logit = false;
  uint64_t offset = 0;      // in the arena
  int first = -1, last = -1;  // phases
};

/// Rows of one sequence that read the cache together.
struct RowGroup {
  uint32_t row_begin, n_rows;
  uint32_t splits;      // 64-key splits of its longest row
  uint32_t item_begin;  // first (kv head, split run) item of the group
};

struct Counter { alignas(64) std::atomic<uint32_t> next{0}; };

/// How attention of this step is cut.
struct AttendCut {
  std::vector<RowGroup> groups;
  uint32_t n_groups = 0;
  uint32_t splits_per_item = 0;
  uint32_t n_items = 0;
  uint32_t max_splits = 0;
};

}  // namespace turbo::arch_cpu

struct turbo_plan {
  std::string name, explanation;
  uint32_t max_rows = 0, max_logit_rows = 0, n_inputs = 0;
  std::vector<turbo_buffer> buffers;  // names cleared
  std::vector<turbo::arch_cpu::Resource> readable;  // per buffer: resource behind plan_buffer, or TURBO_NO_BUFFER
  std::vector<turbo::arch_cpu::ResourceInfo> resources;
  std::vector<turbo::arch_cpu::Phase> phases;
  turbo::arch_cpu::StepNeeds needs;
  const turbo_kv_pool* pool = nullptr;
  turbo::arch_cpu::StepScratch check_scratch;

  // attention
  uint32_t max_heads = 0, max_gqa = 1, group_rows = 1;
  uint64_t partial_stride = 0;  // floats of one stored split partial
  uint64_t partial_capacity = 0;
  turbo::arch_cpu::Resource partials = 0;
  turbo::arch_cpu::AttendCut cut;

  turbo::arch_cpu::Memory arena, scratch;
  uint64_t scratch_stride = 0;  // bytes per member
  uint32_t n_members = 1;                                      // of the team it was made for
  std::unique_ptr<turbo::arch_cpu::Counter[]> taken;            // [phase][member]: items of the member's range that were taken
  std::unique_ptr<std::atomic<uint32_t>[]> arrivals;            // per (group, kv head)
  uint32_t n_arrivals = 0;

  uint8_t* base(turbo::arch_cpu::Resource r) const { return arena.data() + resources[r].offset; }
  float* row(turbo::arch_cpu::Resource r, uint64_t i) const {
    return reinterpret_cast<float*>(base(r) + i * resources[r].row_bytes);
  }
  turbo::arch_cpu::Counter* taken_of(size_t phase) const { return taken.get() + phase * n_members; }
  uint64_t bytes() const { return arena.bytes() + scratch.bytes(); }
};

namespace turbo::arch_cpu {

inline pack::WeightFacts facts_of(const turbo_weight& w) { return {w.name, w.rows, w.cols}; }
inline pack::PoolFacts facts_of(const turbo_kv_pool& p) { return p.facts(); }

/// Check the whole program and lower it. Throws Failure.
std::unique_ptr<turbo_plan> compile_plan(const turbo_program& program, const pack::Facts& facts, const turbo_host_alloc* alloc,
                                         uint32_t n_threads, const char* isa);

/// Check the step and run it over the team. Throws Failure.
void run_plan(turbo_plan& plan, StepTable& table, ThreadTeam& team, const Kernels& kernels);

}  // namespace turbo::arch_cpu
