#include "engine/plan_cache.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <bit>

#include "base/abi_error.h"

namespace turbo::engine {

PlanCache::~PlanCache() {
  for (auto& [key, step] : steps_)
    if (step->plan) parts_.pack.api->plan_free(parts_.pack.self, step->plan);
}

Result<const CompiledStep*> PlanCache::get(uint32_t n_rows, uint32_t n_logit_rows) {
  const auto key = std::make_pair(std::bit_ceil(n_rows), std::bit_ceil(std::max(1u, n_logit_rows)));
  if (const auto found = steps_.find(key); found != steps_.end()) return found->second.get();

  auto step = std::make_unique<CompiledStep>();
  step->program = parts_.build_step(*parts_.config, *parts_.weights, {key.first, key.second, parts_.cache->pool(), tap_layers_});
  const turbo_program program = step->program.builder->program();
  AbiError failure;
  TURBO_RETURN_IF_ERROR(failure.check(
      parts_.pack.api->compile(parts_.pack.self, &program, &step->plan, failure.out()), "compiling the step program"));
  if (parts_.pack.api->plan_explain)
    spdlog::debug("plan of {} rows, {} that give logits: {}", key.first, key.second, parts_.pack.api->plan_explain(parts_.pack.self, step->plan));
  return steps_.emplace(key, std::move(step)).first->second.get();
}

uint64_t PlanCache::workspace_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [key, step] : steps_) bytes += parts_.pack.api->plan_bytes(parts_.pack.self, step->plan);
  return bytes;
}

}  // namespace turbo::engine
