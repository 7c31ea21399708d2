// From steps to a plan: memory by life time, scratch, a count of launches.
#include <turbo/pack/program_check.hpp>

#include <algorithm>
#include <bit>
#include <cstring>

#include "lower.h"

namespace turbo::arch_rdna2 {
namespace {

constexpr uint64_t kAlignment = 256;

// Kernels that read in vectors may read to the end of the last row's stride, never beyond.
uint64_t bytes_of(const BufferPlace& place) { return align_up(checked_mul(checked_mul(place.rows, place.stride, "workspace"), sizeof(float), "workspace"), kAlignment); }

class Placement {
 public:
  explicit Placement(turbo_plan& plan) : plan_(plan) {}

  void run() {
    find_lives();
    uint64_t inputs = 0;
    std::vector<uint32_t> shared;
    for (uint32_t b = 0; b < plan_.places.size(); ++b) {
      BufferPlace& place = plan_.places[b];
      if (!place.used) continue;
      if (!place.always) shared.push_back(b);
      else give(place, place.pinned ? inputs : end_);
    }
    place_shared(shared);
    if (inputs) {
      plan_.inputs = hip::DeviceMemory(plan_.device, TURBO_MEMORY_PINNED, inputs, "workspace");
      std::memset(plan_.inputs.get(), 0, inputs);
    }
    if (end_ == 0) return;
    plan_.arena = hip::DeviceMemory(plan_.device, TURBO_MEMORY_DEVICE, end_, "workspace");
    // Kept rows never show old memory, and padding rows are computed on zeros.
    const turbo_device& table = *plan_.device.table();
    checked("workspace", [&](turbo_error* error) { return table.fill(table.ctx, table.stream, plan_.arena.get(), 0, end_, error); });
  }

 private:
  void find_lives() {
    for (size_t i = 0; i < plan_.steps.size(); ++i)
      for (const std::vector<uint32_t>* list : {&plan_.steps[i].reads, &plan_.steps[i].writes})
        for (const uint32_t b : *list) {
          BufferPlace& place = plan_.places[b];
          place.used = true;
          if (place.first < 0) place.first = static_cast<int>(i);
          place.last = static_cast<int>(i);
        }
  }

  static void give(BufferPlace& place, uint64_t& end) {
    place.offset = end;
    end = checked_add(end, bytes_of(place), "workspace");
  }

  // First fit by rising first step; a range is free again once its last step is over.
  void place_shared(std::vector<uint32_t>& shared) {
    std::vector<BufferPlace>& all = plan_.places;
    std::stable_sort(shared.begin(), shared.end(), [&all](uint32_t a, uint32_t b) { return all[a].first < all[b].first; });
    const uint64_t base = end_;
    std::vector<uint32_t> live;  // by offset
    for (const uint32_t b : shared) {
      std::erase_if(live, [&](uint32_t other) { return all[other].last < all[b].first; });
      uint64_t at = base;
      auto before = live.begin();
      for (; before != live.end() && at + bytes_of(all[b]) > all[*before].offset; ++before)
        at = std::max(at, all[*before].offset + bytes_of(all[*before]));
      all[b].offset = at;
      live.insert(before, b);
      end_ = std::max(end_, checked_add(at, bytes_of(all[b]), "workspace"));
    }
  }

  turbo_plan& plan_;
  uint64_t end_ = 0;
};

void copy_buffers(turbo_plan& plan, const turbo_program& program) {
  for (uint32_t i = 0; i < program.n_buffers; ++i) {
    turbo_buffer copy = program.buffers[i];
    copy.name = nullptr;
    plan.buffers.push_back(copy);
    BufferPlace place;
    place.pinned = i < program.n_inputs;
    place.always = place.used = place.pinned || copy.keep;
    place.rows = plan.rows_of(i);
    place.stride = align_up(copy.width, 32);
    plan.places.push_back(place);
  }
}

void note_needs(turbo_plan& plan, const turbo_program& program, const pack::Facts& facts) {
  pack::StepNeeds& needs = plan.needs;
  needs.max_rows = program.max_rows;
  needs.max_logit_rows = program.max_logit_rows;
  needs.packed_ids = true;
  plan.pool = program.kv;
  if (program.kv) needs.pool = facts.pool(program.kv);
  for (uint32_t i = 0; i < program.n_ops; ++i) {
    const turbo_op& op = program.ops[i];
    if (op.kind == TURBO_OP_EMBED) needs.vocabulary = op.u.embed.table->rows;
    needs.positions |= op.kind == TURBO_OP_ROPE;
    needs.appends |= op.kind == TURBO_OP_KV_APPEND;
    needs.attends |= op.kind == TURBO_OP_ATTEND;
  }
}

// A program that writes its inputs gives another answer the second time, so it cannot be compared.
bool repeatable(const turbo_plan& plan) {
  for (const Step& step : plan.steps)
    for (const uint32_t b : step.writes)
      if (b < plan.n_inputs) return false;
  return true;
}

// Launches of a step, found by recording them; 0 when the runtime records nothing.
uint32_t count_launches(const turbo_plan& plan, const PlanTools& tools) {
  hip::Runtime& runtime = tools.device.runtime();
  // Nothing runs, so any address does for the table.
  const int32_t* const any = plan.arena.get<const int32_t>();
  const turbo_device_table table{reinterpret_cast<const uint32_t*>(any), any, any, any, any, any, any, any, any, any, any, 1, 1};
  const StepRun run{plan, tools.ops, table, 1, tools.scratch.data(), tools.device.stream()};
  try {
    runtime.begin_capture(run.stream);
    for (const Step& step : plan.steps) step.enqueue(run);
    hip::Runtime::Graph* const graph = runtime.end_capture();
    const uint32_t nodes = runtime.graph_nodes(graph);
    runtime.destroy_graph(graph);
    return nodes;
  } catch (...) {
    runtime.drop_capture();
    return 0;
  }
}

std::string explain(const turbo_plan& plan, const turbo_program& program, const PlanTools& tools, uint32_t n_fused, uint32_t launches) {
  std::string text = (n_fused ? "fused on hip " : "plain on hip ") + tools.device.facts().isa + ": " + std::to_string(program.n_ops) + " ops in " +
                     std::to_string(plan.steps.size()) + " calls";
  if (launches) text += ", " + std::to_string(launches) + " launches";
  text += " (" + std::to_string(n_fused) + " ops fused into others), " + (plan.records ? "replayed as a graph" : "call by call") + ", workspace " +
          std::to_string(plan.bytes() >> 10) + " KiB and " + std::to_string(plan.scratch_bytes(1) >> 10) + " KiB shared";
  return text;
}

}  // namespace

std::unique_ptr<turbo_plan> compile_plan(const turbo_program& program, const pack::Facts& facts, const PlanTools& tools) {
  pack::check_program(program, facts);
  auto plan = std::make_unique<turbo_plan>(tools.device);
  plan->name = program.name ? program.name : "";
  plan->max_rows = program.max_rows;
  plan->max_logit_rows = program.max_logit_rows;
  plan->n_inputs = program.n_inputs;
  copy_buffers(*plan, program);
  note_needs(*plan, program, facts);
  Lowering lowering(program, tools.fuse);
  try {
    plan->steps = lowering.run();
  } catch (const Failure& failure) {
    throw Failure(failure.code, "program '" + plan->name + "': " + failure.message, failure.hint);
  }
  for (const BytePlace& bytes : lowering.byte_places()) {
    BufferPlace place;
    place.rows = bytes.rows;
    place.stride = TURBO_DEVICE_Q8_BYTES(1, bytes.cols) / sizeof(float);
    plan->places.push_back(place);
  }
  Placement(*plan).run();
  plan->records = tools.graphs && repeatable(*plan);
  tools.scratch.reserve(plan->scratch_bytes(1));
  plan->explanation = explain(*plan, program, tools, lowering.n_fused_ops(), count_launches(*plan, tools));
  return plan;
}

}  // namespace turbo::arch_rdna2

uint64_t turbo_plan::scratch_bytes(uint32_t max_chunks) const {
  uint64_t most = 0;
  for (const turbo::arch_rdna2::Step& step : steps)
    if (step.scratch_bytes) most = std::max(most, step.scratch_bytes(max_chunks));
  return most;
}

void turbo_plan::drop_graphs(const void* table) noexcept {
  for (auto at = graphs.begin(); at != graphs.end();) {
    if (table && at->first.first != table) {
      ++at;
      continue;
    }
    if (at->second.graph) device.runtime().destroy_graph(at->second.graph);
    at = graphs.erase(at);
  }
}
