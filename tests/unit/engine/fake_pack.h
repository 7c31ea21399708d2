// A device without arithmetic: its "KV cache" stores token ids and its "logits" are a hash of the tokens on a row's
// path, read back through block tables, slots and paths exactly as attention would. So a wrong block, slot, path,
// move, pack or truncation changes the output, and the right answer is known without any engine (expected_tokens).
#pragma once

#include <turbo/abi/draft/arch_pack.h>
#include <turbo/abi/drafter.h>
#include <turbo/abi/sampler.h>
#include <turbo/kernel/random.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <vector>

#include "engine/parts.h"

namespace turbo::engine::testing {

inline constexpr uint32_t kVocab = 97;

inline uint64_t path_hash(const std::vector<int32_t>& tokens) {
  uint64_t hash = 1;
  for (const int32_t token : tokens) hash = turbo_mix64(hash ^ static_cast<uint64_t>(token));
  return hash;
}
inline float path_logit(uint64_t hash, int32_t token) {
  return static_cast<float>(turbo_mix64(hash ^ (0x1000u + static_cast<uint32_t>(token))) >> 44) * 1e-5f;
}
inline int32_t greedy(const std::vector<int32_t>& path) {
  const uint64_t hash = path_hash(path);
  int32_t best = 0;
  for (int32_t t = 1; t < static_cast<int32_t>(kVocab); ++t)
    if (path_logit(hash, t) > path_logit(hash, best)) best = t;
  return best;
}
/// What greedy decoding gives after a prompt, without any engine.
inline std::vector<int32_t> expected_tokens(std::vector<int32_t> tokens, uint32_t n) {
  std::vector<int32_t> generated;
  for (uint32_t i = 0; i < n; ++i) {
    tokens.push_back(greedy(tokens));
    generated.push_back(tokens.back());
  }
  return generated;
}

struct FakePlan {
  uint32_t max_rows, max_logit_rows;
};

struct FakePack {
  bool packs = false;  // open form apart from the packed one
  uint32_t sinks = 0;
  std::atomic<int> fail_runs{0};
  std::atomic<turbo_status> fail_status{TURBO_INTERNAL};
  std::atomic<int> slow_run_us{0};  // per step
  std::atomic<int> row_us{0};       // per row
  std::vector<int32_t> packed, open;  // [block][64] token ids
  std::vector<float> logits;
  uint64_t steps = 0, largest_step = 0;
  std::string violation;

  static FakePack& of(void* self) { return *static_cast<FakePack*>(self); }
  static turbo_status fail(turbo_error* error, const char* message) {
    if (error) std::snprintf(error->message, sizeof error->message, "%s", message);
    return TURBO_INTERNAL;
  }

  // The token of position p as row's query would read it: open form in its own block and in sinks, packed elsewhere.
  int32_t read(const turbo_step_table& t, uint32_t row, uint32_t p) {
    const int32_t seq = t.row_seq[row], position = t.position[row], committed = t.committed[seq];
    uint32_t slot = p;
    if (t.path_length[row] > 0 && static_cast<int32_t>(p) >= committed) slot = t.path[row * t.path_capacity + (p - committed)];
    const size_t entry = size_t(seq) * t.block_capacity + slot / 64;
    const bool use_open = packs && (p < sinks || p / 64 == static_cast<uint32_t>(position) / 64);
    const int32_t block = use_open ? t.open_table[entry] : t.block_table[entry];
    if (block < 0) {
      violation = "row reads a block that is not there";
      return -1;
    }
    return (use_open ? open : packed)[size_t(block) * 64 + slot % 64];
  }

  turbo_status run(const turbo_step_table& t, turbo_error* error) {
    if (fail_runs > 0) {
      --fail_runs;
      fail(error, "scripted failure");
      return fail_status;
    }
    ++steps;
    largest_step = std::max<uint64_t>(largest_step, t.n_rows);
    for (uint32_t row = 0; row < t.n_rows; ++row) {
      const size_t entry = size_t(t.row_seq[row]) * t.block_capacity + t.slot[row] / 64;
      const int32_t block = packs ? t.open_table[entry] : t.block_table[entry];
      if (block < 0) return fail(error, "row writes to a block that is not there");
      (packs ? open : packed)[size_t(block) * 64 + t.slot[row] % 64] = t.token[row];
    }
    logits.assign(size_t(t.n_logit_rows) * kVocab, 0.0f);
    for (uint32_t i = 0; i < t.n_logit_rows; ++i) {
      const uint32_t row = t.logit_row[i];
      std::vector<int32_t> path;
      for (int32_t p = 0; p <= t.position[row]; ++p) path.push_back(read(t, row, p));
      const uint64_t hash = path_hash(path);
      for (uint32_t token = 0; token < kVocab; ++token) logits[i * kVocab + token] = path_logit(hash, token);
    }
    return TURBO_OK;
  }
};

const turbo_arch_pack* fake_pack_api();
const turbo_sampler* fake_sampler_api();  // greedy, or a counter-based draw over all tokens when temperature > 0

/// Engine parts over a fake pack. Keep it alive as long as the engine.
struct FakeModel {
  explicit FakeModel(uint32_t n_blocks, uint32_t max_sequences, bool packs = false, uint32_t sinks = 0);
  EngineParts parts() const;

  FakePack pack;
  model::ModelConfig config;
  std::unique_ptr<model::WeightSet> weights;
  std::unique_ptr<kv::KvCache> cache;
  const turbo_drafter* drafter = nullptr;
  void* drafter_self = nullptr;
  uint32_t draft_slots = 0;
  std::string fingerprint = std::string(64, 'f');
};

}  // namespace turbo::engine::testing
