#include "engine/pool_size.h"

#include <algorithm>

#include "base/checked.h"
#include "base/human.h"
#include "kv/cache.h"

namespace turbo::engine {
namespace {

constexpr uint64_t kMostBlocks = INT32_MAX / 2;

uint64_t saturated(std::optional<uint64_t> bytes) { return bytes.value_or(UINT64_MAX); }

void warn_beyond(PoolSize& size, const Room& room, const char* key) {
  if (size.bytes > room.free)
    size.warnings.push_back(fmt::format("{}: {} of KV cache may not fit: {} of memory are available now", key, human_bytes(size.bytes), human_bytes(room.free)));
}

PoolSize finish(uint64_t n_blocks, uint32_t max_running, const turbo_kv_bytes& bytes, uint32_t exact_rows) {
  PoolSize size;
  size.n_blocks = static_cast<uint32_t>(std::min(n_blocks, kMostBlocks));
  size.max_running = max_running;
  size.open_bytes = saturated(checked_mul(uint64_t{kv::KvCache::open_blocks(bytes, max_running, exact_rows)}, bytes.open_block_bytes));
  const auto packed = checked_mul(uint64_t{size.n_blocks}, bytes.block_bytes);
  size.bytes = packed ? saturated(checked_add(*packed, size.open_bytes)) : UINT64_MAX;
  return size;
}

Result<PoolSize> of_tokens(const profile::Profile& profile, uint32_t max_running, const turbo_kv_bytes& bytes, const Room& room, uint32_t exact_rows) {
  PoolSize size = finish(std::max<uint64_t>(1, kv::blocks_for(profile.kv.pool_tokens)), max_running, bytes, exact_rows);
  if (size.bytes > room.total)
    return error(Code::invalid_argument, "kv.pool_tokens: {} tokens need {} of KV cache but {} is all the memory there is",
                 profile.kv.pool_tokens, human_bytes(size.bytes), human_bytes(room.total))
        .with_hint(size.open_bytes > size.bytes / 2 ? "lower engine.max_running: each sequence keeps blocks that are not packed yet"
                                                    : "lower kv.pool_tokens, or pick a smaller KV codec");
  warn_beyond(size, room, "kv.pool_tokens");
  return size;
}

// ": a context of 8192 fits, or a codec of 1200 bytes a token". `fixed` bytes are needed whatever the context.
std::string what_fits(uint32_t context, const turbo_kv_bytes& bytes, uint64_t budget, uint64_t fixed) {
  if (budget <= fixed) return "";
  const uint64_t left = budget - fixed, positions = left / bytes.block_bytes * kv::kBlock;
  const uint64_t per_token = left / (kv::blocks_for(context) * uint64_t{kv::kBlock});
  std::string text;
  if (positions > 0) text = fmt::format("a context of {} fits", positions);
  if (per_token > 0)
    text += fmt::format("{}a codec of {} bytes a token{} instead of {}", text.empty() ? "" : ", or ", per_token, text.empty() ? " fits" : "", bytes.block_bytes / kv::kBlock);
  return text.empty() ? "" : ": " + text;
}

}  // namespace

uint64_t pool_budget(const profile::Profile& profile, const Room& room) {
  return profile.kv.pool_bytes > 0 ? profile.kv.pool_bytes : room.free / 100 * room.share + room.free % 100 * room.share / 100;
}

uint64_t open_bytes_per_sequence(const turbo_kv_bytes& bytes) {
  return saturated(checked_mul(uint64_t{kv::KvCache::open_blocks(bytes, 1)}, bytes.open_block_bytes));
}

Result<PoolSize> choose_pool(const profile::Profile& profile, uint32_t context, const turbo_kv_bytes& bytes, const Room& room, uint32_t exact_rows) {
  const uint32_t wanted = static_cast<uint32_t>(std::max(1, profile.engine.max_running));
  if (profile.kv.pool_tokens > 0) return of_tokens(profile, wanted, bytes, room, exact_rows);
  if (profile.kv.pool_bytes > room.total)
    return error(Code::invalid_argument, "kv.pool_bytes: expected at most {}, all the memory there is, but found {}", human_bytes(room.total),
                 human_bytes(profile.kv.pool_bytes))
        .with_hint("lower kv.pool_bytes, or leave it at auto");
  const uint64_t budget = pool_budget(profile, room), one = kv::blocks_for(context), open = open_bytes_per_sequence(bytes);
  const uint64_t exact = saturated(checked_mul(uint64_t{kv::KvCache::open_blocks(bytes, 0, exact_rows)}, bytes.open_block_bytes));
  const uint64_t packed = saturated(checked_add(saturated(checked_mul(one, bytes.block_bytes)), exact)), least = saturated(checked_add(packed, open));
  if (budget < least)
    return error(profile.kv.pool_bytes > 0 ? Code::invalid_argument : Code::resource_exhausted, "a context of {} needs {} of KV cache but {} are {}", context, human_bytes(least),
                 human_bytes(budget), profile.kv.pool_bytes > 0 ? "granted by kv.pool_bytes" : "available")
        .with_hint((profile.kv.pool_bytes > 0 ? "raise kv.pool_bytes, lower --context, or pick a smaller KV codec"
                                              : "lower --context, pick a smaller KV codec, or free memory") +
                   what_fits(context, bytes, budget, saturated(checked_add(open, exact))));
  // Every running sequence has open blocks whether it needs them or not: fewer sequences before none at all.
  const uint32_t running = open == 0 ? wanted : static_cast<uint32_t>(std::min<uint64_t>(wanted, (budget - packed) / open));
  const uint64_t affordable = (budget - running * open - exact) / bytes.block_bytes;
  PoolSize size = finish(std::min(one * running, affordable), running, bytes, exact_rows);
  if (running < wanted)
    size.warnings.push_back(fmt::format("engine.max_running: {} instead of {} sequences: each keeps {} of blocks that are not packed yet, and the KV cache has {}",
                                        running, wanted, human_bytes(open), human_bytes(budget)));
  if (profile.kv.pool_bytes > 0 && one * running < affordable)
    size.infos.push_back(fmt::format("kv.pool_bytes: {} of the {} are used: enough for engine.max_running {} sequences of context {}",
                                     human_bytes(size.bytes), human_bytes(budget), running, context));
  if (profile.kv.pool_bytes > 0) warn_beyond(size, room, "kv.pool_bytes");
  return size;
}

}  // namespace turbo::engine
