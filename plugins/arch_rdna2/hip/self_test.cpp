// Self-test: every op on the device with the plain format and codec; each program three times, so that its steps, its
// first replay (which is compared) and a replay alone are all looked at.
#include <turbo/pack/self_test.hpp>

#include "pack.h"
#include "reference.h"

namespace turbo::arch_rdna2 {
namespace {

// Handles of one test, which are the only ones there are.
struct Bench : pack::Facts {
  std::optional<pack::WeightFacts> weight(const turbo_weight* w) const override { return facts_of(*w); }
  std::optional<pack::PoolFacts> pool(const turbo_kv_pool* p) const override { return facts_of(*p); }

  std::vector<std::unique_ptr<turbo_weight>> weights;
  std::vector<std::unique_ptr<turbo_kv_pool>> pools;
  std::unique_ptr<StepTable> table;
  std::unique_ptr<turbo_plan> plan;
};

}  // namespace

void run_self_test(const PlanTools& tools, Staging& staging) {
  const Reference reference(*tools.device.table());
  Bench bench;
  pack::TestedPack tested;
  tested.name = "HIP";
  tested.hint = "this device or its driver computes wrongly";
  tested.load = [&](const turbo_weight_source& source) {
    return bench.weights.emplace_back(load_weight(source, reference, tools.device, staging, 1)).get();
  };
  tested.make_pool = [&](const turbo_kv_pool_desc& desc) {
    bench.pools.push_back(std::make_unique<turbo_kv_pool>(describe_pool(desc, reference)));
    allocate_pool(*bench.pools.back(), tools.device);
    return bench.pools.back().get();
  };
  tested.run = [&](const turbo_program& program, const turbo_step_caps& caps, const std::function<void(turbo_step_table&)>& fill) {
    bench.plan.reset();
    bench.table = std::make_unique<StepTable>(caps, tools.device);
    bench.plan = compile_plan(program, bench, tools);
    fill(*bench.table);
    const auto warn = [](const std::string& why) { throw Failure(TURBO_INTERNAL, "HIP self-test: " + why); };
    for (int i = 0; i < 3; ++i) run_plan(*bench.plan, *bench.table, tools, staging, warn);
  };
  tested.read = [&](uint32_t buffer, uint32_t rows, uint32_t width) {
    std::vector<float> values(uint64_t{rows} * width);
    staging.rows_to_host(values.data(), bench.plan->row(buffer, 0), rows, width * sizeof(float), bench.plan->places[buffer].stride * sizeof(float));
    return values;
  };
  pack::run_known_answers(tested);
}

}  // namespace turbo::arch_rdna2
