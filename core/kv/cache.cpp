#include "kv/cache.h"

#include <algorithm>
#include <cassert>
#include <utility>

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

// A sequence writes one block at a time, may look ahead into the next, and keeps its sink blocks open; the prefix tree
// may keep as many sinks again. Prompts that cross blocks fill more of them before the step ends.
uint32_t KvCache::open_blocks(const turbo_kv_bytes& bytes, uint32_t max_sequences, uint32_t exact_rows) {
  const uint64_t n = bytes.open_is_packed ? 0 : uint64_t{max_sequences} * (2 + 2 * uint64_t{blocks_for(bytes.sinks)}) + blocks_for(exact_rows);
  return static_cast<uint32_t>(std::min<uint64_t>(n, UINT32_MAX));
}

Result<std::unique_ptr<KvCache>> KvCache::create(const turbo_arch_pack* api, void* pack, const CacheShape& shape) {
  TURBO_ASSIGN(const turbo_kv_bytes bytes, KvCache::bytes(api, pack, shape));
  const uint32_t n_open = open_blocks(bytes, shape.max_sequences, shape.exact_rows);
  std::unique_ptr<KvCache> cache(new KvCache(api, pack, shape, bytes, n_open));
  const turbo_kv_pool_desc desc = describe(shape, n_open);
  AbiError failure;
  const Status status = failure.check(api->kv_create(pack, &desc, &cache->pool_, failure.out()), "KV cache");
  if (!status.is_ok()) return status.hint().empty() ? status.with_hint("lower kv.pool_tokens, or pick a smaller KV codec") : status;
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

void KvCache::share(SequenceBlocks& sequence, std::string_view salt) {
  assert(!sequence.shared && sequence.packed.empty());
  sequence.shared = tree_.pin_root(salt);
}

uint32_t KvCache::adopt(SequenceBlocks& sequence, std::span<const int32_t> tokens, uint32_t limit) {
  if (!sequence.shared || sequence.packed.size() != sequence.shared->depth) return sequence.committed;
  const uint64_t end = std::min<uint64_t>(limit, tokens.size());
  for (uint64_t at = uint64_t{sequence.shared->depth} * kBlock; at + kBlock <= end; at += kBlock) {
    PrefixTree::Node* next = tree_.child(sequence.shared, tokens.subspan(at).first<kBlock>());
    if (!next) break;
    tree_.pin(next);
    packed_.retain(next->packed);
    if (next->open >= 0) open_.retain(next->open);
    sequence.packed.push_back(next->packed);
    sequence.open.push_back(next->open);
    sequence.shared = next;
    sequence.committed = next->depth * kBlock;
  }
  return sequence.committed;
}

void KvCache::evict(const PrefixTree::Blocks& blocks) {
  packed_.release(blocks.packed);
  if (blocks.open >= 0) open_.release(blocks.open);
}

std::optional<int32_t> KvCache::allocate(BlockPool& pool) {
  while (true) {
    if (const auto id = pool.allocate()) return id;
    const auto victim = tree_.evict();
    if (!victim) return std::nullopt;
    evict(*victim);
  }
}

bool KvCache::grow(SequenceBlocks& sequence, uint64_t slots) {
  const uint32_t wanted = blocks_for(slots);
  while (sequence.packed.size() < wanted) {
    // The open form first: a packed block without it would look as if it were closed.
    std::optional<int32_t> open_id = -1;
    if (!open_is_packed_) open_id = allocate(open_);
    if (!open_id) return false;
    const auto id = allocate(packed_);
    if (!id) {
      if (*open_id >= 0) open_.release(*open_id);
      return false;
    }
    sequence.packed.push_back(*id);
    sequence.open.push_back(*open_id);
  }
  return true;
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
  const auto place = [&](uint32_t slot) {
    return turbo_kv_place{sizeof(turbo_kv_place), slot % kBlock, sequence.packed[slot / kBlock], sequence.open[slot / kBlock]};
  };
  const turbo_kv_place src = place(src_slot), dst = place(dst_slot);
  AbiError failure;
  return failure.check(api_->kv_move_row(pack_, pool_, &src, &dst, failure.out()), "moving a KV row");
}

void KvCache::publish(SequenceBlocks& sequence, std::span<const int32_t> tokens) {
  if (!sequence.shared) return;
  assert(tokens.size() >= sequence.committed);  // a block's key is the tokens that it holds
  while ((uint64_t{sequence.shared->depth} + 1) * kBlock <= sequence.committed)
    publish_next(sequence, tokens.subspan(uint64_t{sequence.shared->depth} * kBlock).first<kBlock>());
}

void KvCache::publish_next(SequenceBlocks& sequence, PrefixTree::Tokens tokens) {
  int32_t &packed = sequence.packed[sequence.shared->depth], &open = sequence.open[sequence.shared->depth];
  PrefixTree::Node* node = tree_.child(sequence.shared, tokens);
  if (node) {
    // Equal tokens gave equal bits: keep one copy.
    tree_.pin(node);
    packed_.retain(node->packed);
    packed_.release(std::exchange(packed, node->packed));
    if (node->open >= 0) open_.retain(node->open);
    if (open >= 0) open_.release(open);
    open = node->open;
  } else {
    node = tree_.add(sequence.shared, tokens, {packed, open});
    packed_.retain(packed);
    if (open >= 0) open_.retain(open);
  }
  sequence.shared = node;
}

void KvCache::release(SequenceBlocks& sequence) {
  for (const int32_t id : sequence.packed)
    if (id >= 0) packed_.release(id);
  for (const int32_t id : sequence.open)
    if (id >= 0) open_.release(id);
  for (PrefixTree::Node* node = sequence.shared; node;) {
    PrefixTree::Node* parent = node->parent;
    tree_.unpin(node);
    node = parent;
  }
  sequence = SequenceBlocks{};
}

uint32_t KvCache::flush() {
  uint32_t n = 0;
  while (const auto victim = tree_.evict()) {
    evict(*victim);
    ++n;
  }
  return n;
}

Status KvCache::check_idle() const {
  if (!tree_.consistent()) return Status(Code::internal, "KV cache: the prefix tree's counters are wrong");
  if (tree_.n_unpinned() != tree_.size())
    return error(Code::internal, "KV cache: {} cached blocks are held by sequences that are gone", tree_.size() - tree_.n_unpinned());
  if (packed_.n_used() != tree_.size())
    return error(Code::internal, "KV cache: {} blocks leaked", static_cast<int64_t>(packed_.n_used()) - tree_.size());
  return Status::ok();
}

uint64_t KvCache::bytes_of(uint32_t index) const {
  return bytes_.block_bytes + (!open_is_packed_ && keeps_open(index) ? bytes_.open_block_bytes : 0);
}

Status KvCache::read_block(int32_t packed, int32_t open, std::span<std::byte> bytes) const {
  if (!api_->kv_read || !api_->kv_write) return error(Code::unsupported, "the arch pack cannot save its KV cache");
  if (bytes.size() != bytes_.block_bytes + (open >= 0 ? bytes_.open_block_bytes : 0))
    return error(Code::internal, "KV cache: a block is not {} bytes", bytes.size());
  AbiError failure;
  TURBO_RETURN_IF_ERROR(failure.check(
      api_->kv_read(pack_, pool_, packed, TURBO_KV_FORM_PACKED, bytes.data(), bytes_.block_bytes, failure.out()), "reading a KV block"));
  if (open < 0) return Status::ok();
  return failure.check(api_->kv_read(pack_, pool_, open, TURBO_KV_FORM_OPEN, bytes.data() + bytes_.block_bytes,
                                     bytes_.open_block_bytes, failure.out()),
                       "reading an open KV block");
}

Status KvCache::restore_block(SequenceBlocks& sequence, PrefixTree::Tokens tokens, std::span<const std::byte> bytes) {
  if (!api_->kv_read || !api_->kv_write) return error(Code::unsupported, "the arch pack cannot restore its KV cache");
  assert(sequence.shared && sequence.packed.size() == sequence.shared->depth);
  const uint32_t index = sequence.shared->depth;
  if (bytes.size() != bytes_of(index)) return error(Code::corrupt_input, "a KV block of {} bytes, {} expected", bytes.size(), bytes_of(index));
  const auto packed = allocate(packed_);
  if (!packed) return Status(Code::resource_exhausted, "the KV pool is in use", "wait for running requests, or raise kv.pool_tokens");
  std::optional<int32_t> open = -1;
  if (bytes.size() > bytes_.block_bytes) open = allocate(open_);
  AbiError failure;
  Status status = open ? Status::ok() : Status(Code::resource_exhausted, "no open KV block is free", "wait for running requests");
  if (status.is_ok())
    status = failure.check(api_->kv_write(pack_, pool_, *packed, TURBO_KV_FORM_PACKED, bytes.data(), bytes_.block_bytes, failure.out()),
                           "restoring a KV block");
  if (status.is_ok() && *open >= 0)
    status = failure.check(api_->kv_write(pack_, pool_, *open, TURBO_KV_FORM_OPEN, bytes.data() + bytes_.block_bytes,
                                          bytes_.open_block_bytes, failure.out()),
                           "restoring an open KV block");
  if (!status.is_ok()) {
    packed_.release(*packed);
    if (open && *open >= 0) open_.release(*open);
    return status;
  }
  sequence.packed.push_back(*packed);
  sequence.open.push_back(*open);
  sequence.committed = (index + 1) * kBlock;
  publish_next(sequence, tokens);
  return Status::ok();
}

}  // namespace turbo::kv
