#include "engine/kv_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/human.h"
#include "kv/cache.h"

namespace turbo::engine {

KvPlan plan_kv(const profile::Profile& profile, const model::ModelConfig& config, const turbo_kv_bytes& bytes, const KvTokenBytes& token,
               uint64_t draft_block_bytes, uint32_t context, const Room& room, uint32_t exact_rows) {
  KvPlan plan;
  plan.k = profile.kv.k;
  plan.v = profile.kv.v;
  plan.token = token;
  const double elements = static_cast<double>(config.n_layers) * config.n_kv_heads * (config.head_dim_k + config.head_dim_v) * kv::kBlock;
  plan.bits_per_element = static_cast<double>(bytes.block_bytes) * 8 / elements;
  plan.bytes_per_sequence = open_bytes_per_sequence(bytes);
  plan.model_context = config.context_length;
  const turbo_kv_bytes both = with_draft_cache(bytes, draft_block_bytes);
  const Result<PoolSize> pool = choose_pool(profile, context, both, room, exact_rows);
  if (pool) plan.notes = pool->warnings;
  else plan.notes.push_back(pool.status().message());
  plan.max_running = pool ? pool->max_running : 1;
  plan.open_pool_bytes = pool ? pool->open_bytes : plan.bytes_per_sequence;
  plan.pool_bytes = pool ? pool->bytes : 0;
  plan.pool_budget = pool && profile.kv.pool_tokens > 0 ? pool->bytes : pool_budget(profile, room);
  plan.context_fits = (plan.pool_budget - std::min(plan.pool_budget, plan.open_pool_bytes)) / both.block_bytes * kv::kBlock;
  return plan;
}

nlohmann::ordered_json to_json(const KvPlan& plan) {
  return {{"k", plan.k},
          {"v", plan.v},
          {"bytes_per_token", plan.token.bytes},
          {"self_check_may_promote", plan.token.may_promote},
          {"bytes_per_token_promoted", plan.token.bytes_promoted},
          {"bits_per_element", plan.bits_per_element},
          {"bytes_per_sequence", plan.bytes_per_sequence},
          {"max_running", plan.max_running},
          {"open_pool_bytes", plan.open_pool_bytes},
          {"pool_budget_bytes", plan.pool_budget},
          {"pool_bytes", plan.pool_bytes},
          {"context_fits", plan.context_fits},
          {"model_context", plan.model_context},
          {"notes", plan.notes}};
}

std::string promotion_text(const KvTokenBytes& token, const std::string& most) {
  if (!token.may_promote) return {};
  return fmt::format("before the self-check, which may keep some layers' K in {}: {} if it kept every layer's", token.promote_k, most);
}

std::string to_text(const KvPlan& plan) {
  std::string text = fmt::format("kv cache: K {}, V {}: {} bytes a token ({:.4g} bits an element)", plan.k, plan.v, plan.token.bytes, plan.bits_per_element);
  if (const std::string note = promotion_text(plan.token, fmt::format("{} bytes a token", plan.token.bytes_promoted)); !note.empty())
    text += "\n          " + note;
  if (plan.bytes_per_sequence)
    text += fmt::format("\n          {} a running sequence for positions not packed yet, {} for {}", human_bytes(plan.bytes_per_sequence),
                        human_bytes(plan.open_pool_bytes), plan.max_running);
  text += fmt::format("\n          one sequence of {} tokens fits into {} (the model's context is {})\n", plan.context_fits,
                      human_bytes(plan.pool_budget), plan.model_context);
  for (const std::string& note : plan.notes) text += fmt::format("          {}\n", note);
  return text;
}

}  // namespace turbo::engine
