// Figures of a KV cache before anything is loaded, for `turbo plan`. Pure.
#pragma once

#include <turbo/abi/draft/arch_pack.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/pool_size.h"
#include "model/config.h"
#include "profile/profile.h"

namespace turbo::engine {

/// Bytes that one position takes, as far as they are known without weights.
struct KvTokenBytes {
  uint64_t bytes = 0;           // before the self-check
  bool may_promote = false;     // the self-check may keep K of some layers in promote_k
  std::string promote_k;
  uint64_t bytes_promoted = 0;  // if it did so in every layer; else equal to bytes
  uint64_t bytes_per_sequence = 0;  // beside that: positions kept in open form
};

struct KvPlan {
  std::string k, v;  // codecs
  KvTokenBytes token;
  double bits_per_element = 0;      // over all layers and both sides, scales and protected layers included
  uint64_t bytes_per_sequence = 0;  // beside that: blocks of a running sequence that are in open form, as the pool has them
  uint32_t max_running = 0;         // sequences that would run at once
  uint64_t open_pool_bytes = 0;     // bytes_per_sequence of them all
  uint64_t pool_budget = 0;         // memory that the pool may take now
  uint64_t pool_bytes = 0;          // what it would take of that; 0: not even one sequence fits
  uint64_t context_fits = 0;        // positions of one sequence within the budget, beside the open blocks
  uint32_t model_context = 0;       // what the model was trained for
  std::vector<std::string> notes;   // what loading would say about its size, one sentence each
};

/// `bytes` of a pool of the model's shape; a draft model's cache takes `draft_block_bytes` beside each of its blocks;
/// `context` is what one sequence may take.
KvPlan plan_kv(const profile::Profile& profile, const model::ModelConfig& config, const turbo_kv_bytes& bytes, const KvTokenBytes& token,
               uint64_t draft_block_bytes, uint32_t context, const Room& room, uint32_t exact_rows);
nlohmann::ordered_json to_json(const KvPlan& plan);
std::string to_text(const KvPlan& plan);

/// "before the self-check, which may keep some layers' K in q8: 12 if it kept every layer's"; empty when it cannot.
std::string promotion_text(const KvTokenBytes& token, const std::string& most);

}  // namespace turbo::engine
