// Self-test: every op on the team and kernels of this pack, with the reference format and codec.
#include "pack.h"
#include "reference.h"

#include <turbo/pack/self_test.hpp>

namespace turbo::arch_cpu {
namespace {

// Handles of one test, which are the only ones there are.
struct Bench : pack::Facts {
  std::optional<pack::WeightFacts> weight(const turbo_weight* w) const override { return facts_of(*w); }
  std::optional<pack::PoolFacts> pool(const turbo_kv_pool* p) const override { return facts_of(*p); }

  std::vector<std::unique_ptr<turbo_weight>> weights;
  std::vector<std::unique_ptr<turbo_kv_pool>> pools;
  std::unique_ptr<turbo_plan> plan;
};

}  // namespace

void run_self_test(ThreadTeam& team, const Kernels& kernels, const char* isa) {
  Bench bench;
  pack::TestedPack tested;
  tested.name = "CPU";
  tested.hint = "this build or CPU computes wrongly; try TURBO_CPU_ISA=scalar";
  tested.load = [&](const turbo_weight_source& source) {
    return bench.weights.emplace_back(load_weight(source, reference_formats(), nullptr, team)).get();
  };
  tested.make_pool = [&](const turbo_kv_pool_desc& desc) {
    bench.pools.push_back(std::make_unique<turbo_kv_pool>(describe_pool(desc, reference_codecs())));
    allocate_pool(*bench.pools.back(), nullptr);
    return bench.pools.back().get();
  };
  tested.run = [&](const turbo_program& program, const turbo_step_caps& caps, const std::function<void(turbo_step_table&)>& fill) {
    bench.plan = compile_plan(program, bench, nullptr, team.size(), isa);
    StepTable table(caps);
    fill(table);
    run_plan(*bench.plan, table, team, kernels);
  };
  tested.read = [&](uint32_t buffer, uint32_t rows, uint32_t width) {
    const float* data = bench.plan->row(bench.plan->readable[buffer], 0);
    return std::vector<float>(data, data + uint64_t{rows} * width);
  };
  pack::run_known_answers(tested);
}

}  // namespace turbo::arch_cpu
