#include "engine/kv_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/human.h"
#include "kv/cache.h"

namespace turbo::engine {

KvPlan plan_kv(const profile::Profile& profile, const model::ModelConfig& config, const turbo_kv_bytes& bytes, uint64_t weight_bytes,
               uint64_t free_bytes) {
  KvPlan plan;
  plan.k = profile.kv.k;
  plan.v = profile.kv.v;
  plan.bytes_per_token = bytes.block_bytes / kv::kBlock;
  const double elements = static_cast<double>(config.n_layers) * config.n_kv_heads * (config.head_dim_k + config.head_dim_v) * kv::kBlock;
  plan.bits_per_element = static_cast<double>(bytes.block_bytes) * 8 / elements;
  if (!bytes.open_is_packed) plan.bytes_per_sequence = bytes.open_block_bytes * (2 + uint64_t{kv::blocks_for(bytes.sinks)});
  plan.pool_budget = profile.kv.pool_bytes > 0 ? profile.kv.pool_bytes : (free_bytes - std::min(free_bytes, weight_bytes)) / 2;
  const uint64_t room = plan.pool_budget - std::min(plan.pool_budget, plan.bytes_per_sequence);
  plan.context_fits = bytes.block_bytes ? room / bytes.block_bytes * kv::kBlock : 0;
  return plan;
}

nlohmann::ordered_json to_json(const KvPlan& plan) {
  return {{"k", plan.k},
          {"v", plan.v},
          {"bytes_per_token", plan.bytes_per_token},
          {"bits_per_element", plan.bits_per_element},
          {"bytes_per_sequence", plan.bytes_per_sequence},
          {"pool_budget_bytes", plan.pool_budget},
          {"context_fits", plan.context_fits}};
}

std::string to_text(const KvPlan& plan) {
  std::string text = fmt::format("kv cache: K {}, V {}: {} bytes a token ({:.2f} bits an element)", plan.k, plan.v, plan.bytes_per_token, plan.bits_per_element);
  if (plan.bytes_per_sequence) text += fmt::format(", {} a sequence for positions not packed yet", human_bytes(plan.bytes_per_sequence));
  return text + fmt::format("\n          one sequence of {} tokens fits into {}\n", plan.context_fits, human_bytes(plan.pool_budget));
}

}  // namespace turbo::engine
