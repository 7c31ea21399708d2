// How large the KV pool of a run is: its blocks, and how many sequences may run in it. Pure; used by loading and by
// `turbo plan` alike, so that both give the same figures.
#pragma once

#include <turbo/abi/draft/arch_pack.h>

#include <string>
#include <vector>

#include "base/status.h"
#include "profile/profile.h"

namespace turbo::engine {

/// Bytes that the KV cache can come from.
struct Room {
  uint64_t free = 0, total = 0;
  uint32_t share = 50;  // percent of what is free that kv.pool_bytes: auto takes; a device's memory has no other use
};

struct PoolSize {
  uint32_t n_blocks = 0;
  uint32_t max_running = 1;  // engine.max_running, or fewer where their open blocks would leave no room for a context
  uint64_t open_bytes = 0;   // of the blocks that are being written, for max_running sequences
  uint64_t bytes = 0;        // of the whole pool
  std::vector<std::string> infos, warnings;
};

/// Memory that kv.pool_bytes or, with auto, its share of what is free gives to the pool. kv.pool_tokens is not looked at.
uint64_t pool_budget(const profile::Profile& profile, const Room& room);

/// Bytes of the open blocks that one running sequence adds to the pool.
uint64_t open_bytes_per_sequence(const turbo_kv_bytes& bytes);

/// Of a block together with the block of a draft model's cache that stands beside it.
inline turbo_kv_bytes with_draft_cache(turbo_kv_bytes bytes, uint64_t draft_block_bytes) {
  bytes.block_bytes += draft_block_bytes;
  return bytes;
}

/// What the profile says, else room for every running sequence of `context` within the budget. `bytes` describes a block.
/// exact_rows: prompt rows of a step that are open at once, see kv::CacheShape. Errors: invalid_argument
/// for a size that the profile asks for and that is too small or more than there is; resource_exhausted: too little is free.
Result<PoolSize> choose_pool(const profile::Profile& profile, uint32_t context, const turbo_kv_bytes& bytes, const Room& room, uint32_t exact_rows = 0);

}  // namespace turbo::engine
