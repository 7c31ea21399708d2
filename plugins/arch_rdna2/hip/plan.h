// Plan: a compiled program. Steps run one after another on the pack's stream; each is one call of a format, a codec or a
// kernel of the pack, and may do several of the program's ops at once (lower.cpp). Buffers share one arena, placed by
// their life time; inputs lie in pinned memory, for the caller to write.
//
// The first run of a plan on a table enqueues step by step. The next ones replay a graph of the same calls, recorded for
// each reach of the keys (chunks of 256, rounded up to a power of two). The first replay of a plan is run both ways and
// compared, bit for bit; a plan that differs goes on step by step.
// [load] to build; run is [engine].
#pragma once

#include "kv_pool.h"
#include "ops.h"
#include "step_kernel.h"
#include "step_table.h"
#include "weights.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace turbo::arch_rdna2 {

/// What steps are enqueued with. In a recorded graph all of it is constant.
struct StepRun {
  const turbo_plan& plan;
  const Ops& ops;
  const turbo_device_table& table;
  uint32_t max_chunks;  // of keys, of any row; at least 1
  uint8_t* scratch;
  turbo_stream* stream;
};

struct Step {
  std::string what;                    // for messages: "op 3 (matmul 'blk.0.attn_q.weight')"
  std::vector<uint32_t> ops;           // of the program, rising
  uint32_t anchor = 0;                 // runs in the place of this one
  std::vector<uint32_t> reads, writes;  // buffers in memory
  std::function<void(const StepRun&)> enqueue;
  std::function<uint64_t(uint32_t max_chunks)> scratch_bytes;  // null: none
};

struct BufferPlace {
  bool used = false, always = false;  // always: an input, or kept
  bool pinned = false;
  uint64_t rows = 0, stride = 0;      // floats
  uint64_t offset = 0;
  int first = -1, last = -1;          // steps
};

struct Recorded {
  enum class State { fresh, ran, recorded } state = State::fresh;
  hip::Runtime::Graph* graph = nullptr;
  uint64_t scratch_generation = 0;
  FusedStep fused;  // what the graph has of step kernels
};

}  // namespace turbo::arch_rdna2

struct turbo_plan {
  explicit turbo_plan(turbo::hip::Device& device) : device(device) {}
  ~turbo_plan() { drop_graphs(nullptr); }
  turbo_plan(const turbo_plan&) = delete;
  turbo_plan& operator=(const turbo_plan&) = delete;

  turbo::hip::Device& device;
  std::string name, explanation;
  uint32_t max_rows = 0, max_logit_rows = 0, n_inputs = 0;
  std::vector<turbo_buffer> buffers;  // names cleared
  std::vector<turbo::arch_rdna2::BufferPlace> places;  // of the buffers, then of bytes between steps
  std::vector<turbo::arch_rdna2::Step> steps;
  turbo::hip::DeviceMemory arena, inputs;
  const turbo_kv_pool* pool = nullptr;
  turbo::pack::StepNeeds needs;
  turbo::pack::StepScratch check_scratch;

  bool records = true;    // may use graphs
  turbo::arch_rdna2::Mailroom mail;
  bool compared = false;  // a replay has given the bits of the steps
  std::map<std::pair<const void*, uint32_t>, turbo::arch_rdna2::Recorded> graphs;  // by table and reach in chunks

  float* row(uint32_t buffer, uint64_t i) const {
    const turbo::arch_rdna2::BufferPlace& place = places[buffer];
    return (place.pinned ? inputs : arena).get<float>() + place.offset / sizeof(float) + i * place.stride;
  }
  uint32_t rows_of(uint32_t buffer) const { return buffers[buffer].rows == TURBO_ROWS_LOGIT ? max_logit_rows : max_rows; }
  uint64_t scratch_bytes(uint32_t max_chunks) const;
  std::map<uint32_t, uint64_t> scratch_by_reach;  // what scratch_bytes gave before
  uint64_t bytes() const { return arena.bytes() + inputs.bytes(); }
  /// Of one table, or all.
  void drop_graphs(const void* table) noexcept;
};

namespace turbo::arch_rdna2 {

struct PlanTools {
  hip::Device& device;
  const Ops& ops;
  Scratch& scratch;
  bool graphs;  // the option
  bool fuse;    // the option
  StepKernels* step_kernels;  // null: none
};

/// Check the whole program and lower it. Throws Failure.
std::unique_ptr<turbo_plan> compile_plan(const turbo_program& program, const pack::Facts& facts, const PlanTools& tools);

/// Check the step and enqueue it. `warn` is told why a plan goes on without graphs. Throws Failure naming the op.
void run_plan(turbo_plan& plan, StepTable& table, const PlanTools& tools, Staging& staging, const std::function<void(const std::string&)>& warn);

}  // namespace turbo::arch_rdna2
