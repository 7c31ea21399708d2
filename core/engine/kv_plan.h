// Figures of a KV cache before anything is loaded, for `turbo plan`. Pure.
#pragma once

#include <turbo/abi/draft/arch_pack.h>

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "model/config.h"
#include "profile/profile.h"

namespace turbo::engine {

struct KvPlan {
  std::string k, v;                // codecs
  uint64_t bytes_per_token = 0;
  double bits_per_element = 0;     // over all layers and both sides, scales and protected layers included
  uint64_t bytes_per_sequence = 0; // beside that: positions kept in open form, at most
  uint64_t context_fits = 0;       // positions of one sequence within the memory that the pool would take now
  uint64_t pool_budget = 0;        // that memory
};

/// `bytes` of a pool of the model's shape; `weight_bytes` will be taken from `free_bytes` first.
KvPlan plan_kv(const profile::Profile& profile, const model::ModelConfig& config, const turbo_kv_bytes& bytes, uint64_t weight_bytes,
               uint64_t free_bytes);
nlohmann::ordered_json to_json(const KvPlan& plan);
std::string to_text(const KvPlan& plan);

}  // namespace turbo::engine
