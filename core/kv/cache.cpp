#include "kv/cache.h"

#include <algorithm>

#include "base/abi_error.h"

namespace turbo::kv {
namespace {

turbo_kv_pool_desc describe(const CacheShape& shape, uint32_t n_open) {
  return {sizeof(turbo_kv_pool_desc), shape.n_layers, shape.n_kv_heads, shape.head_dim_k, shape.head_dim_v,
          shape.n_blocks, n_open};
}

}  // namespace

Result<turbo_kv_bytes> KvCache::bytes(const turbo_arch_pack* api, void* pack, const CacheShape& shape) {
  turbo_kv_bytes bytes{};
  bytes.struct_size = sizeof bytes;
  const turbo_kv_pool_desc desc = describe(shape, 0);
  AbiError failure;
  TURBO_RETURN_IF_ERROR(failure.check(api->kv_bytes(pack, &desc, &bytes, failure.out()), "KV cache layout"));
  if (bytes.block_bytes == 0) return error(Code::internal, "KV cache layout: a block of 0 bytes");
  return bytes;
}

Result<std::unique_ptr<KvCache>> KvCache::create(const turbo_arch_pack* api, void* pack, const CacheShape& shape) {
  TURBO_ASSIGN(const turbo_kv_bytes bytes, KvCache::bytes(api, pack, shape));
  // A sequence writes one block at a time, may look ahead into the next, and keeps its sink blocks open.
  const uint32_t n_open = bytes.open_is_packed ? 0 : shape.max_sequences * (2 + blocks_for(bytes.sinks));
  std::unique_ptr<KvCache> cache(new KvCache(api, pack, shape, bytes, n_open));
  const turbo_kv_pool_desc desc = describe(shape, n_open);
  AbiError failure;
  TURBO_RETURN_IF_ERROR(failure.check(api->kv_create(pack, &desc, &cache->pool_, failure.out()), "KV cache"));
  return cache;
}

KvCache::KvCache(const turbo_arch_pack* api, void* pack, const CacheShape& shape, const turbo_kv_bytes& bytes, uint32_t n_open)
    : api_(api), pack_(pack), shape_(shape), bytes_(bytes), open_is_packed_(bytes.open_is_packed != 0),
      packed_(shape.n_blocks), open_(n_open) {}

KvCache::~KvCache() {
  if (pool_) api_->kv_free(pack_, pool_);
}

uint64_t KvCache::pool_bytes() const {
  return uint64_t{packed_.capacity()} * bytes_.block_bytes + uint64_t{open_.capacity()} * bytes_.open_block_bytes;
}

bool KvCache::reserve(SequenceBlocks& sequence, uint64_t positions) {
  const uint32_t wanted = blocks_for(positions);
  if (wanted > packed_.capacity() - reserved_) return false;
  reserved_ += wanted;
  sequence.reserved = wanted;
  return true;
}

Status KvCache::grow(SequenceBlocks& sequence, uint64_t slots) {
  const uint32_t wanted = blocks_for(slots);
  if (wanted > sequence.reserved)
    return error(Code::internal, "KV cache: {} blocks wanted but {} reserved", wanted, sequence.reserved);
  while (sequence.packed.size() < wanted) {
    const auto id = packed_.allocate();
    if (!id) return error(Code::internal, "KV cache: no block left inside a reservation");
    sequence.packed.push_back(*id);
    sequence.open.push_back(-1);
    if (open_is_packed_) continue;
    const auto open_id = open_.allocate();
    if (!open_id) return error(Code::internal, "KV cache: no open block left");
    sequence.open.back() = *open_id;
  }
  return Status::ok();
}

Status KvCache::commit(SequenceBlocks& sequence, uint32_t committed) {
  const uint32_t closed_before = sequence.committed / kBlock, closed_now = committed / kBlock;
  sequence.committed = committed;
  if (open_is_packed_) return Status::ok();
  for (uint32_t i = closed_before; i < closed_now; ++i) {
    AbiError failure;
    TURBO_RETURN_IF_ERROR(failure.check(
        api_->kv_pack(pack_, pool_, sequence.open[i], sequence.packed[i], failure.out()), "packing a KV block"));
    if (keeps_open(i)) continue;
    open_.release(sequence.open[i]);
    sequence.open[i] = -1;
  }
  return Status::ok();
}

Status KvCache::move_row(SequenceBlocks& sequence, uint32_t src_slot, uint32_t dst_slot) {
  if (src_slot == dst_slot) return Status::ok();
  const std::vector<int32_t>& table = open_is_packed_ ? sequence.packed : sequence.open;
  const uint32_t src_block = src_slot / kBlock, dst_block = dst_slot / kBlock;
  if (std::max(src_block, dst_block) >= table.size() || table[src_block] < 0 || table[dst_block] < 0)
    return error(Code::internal, "KV cache: row move {} -> {} outside the open blocks", src_slot, dst_slot);
  AbiError failure;
  return failure.check(api_->kv_move_row(pack_, pool_, table[src_block], src_slot % kBlock, table[dst_block],
                                         dst_slot % kBlock, failure.out()),
                       "moving a KV row");
}

void KvCache::release(SequenceBlocks& sequence) {
  for (const int32_t id : sequence.packed)
    if (id >= 0) packed_.release(id);
  for (const int32_t id : sequence.open)
    if (id >= 0) open_.release(id);
  reserved_ -= sequence.reserved;
  sequence = SequenceBlocks{};
}

}  // namespace turbo::kv
