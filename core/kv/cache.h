// The paged KV cache of one model: which block holds which positions of which sequence.
//
// A block holds kBlock consecutive positions for all layers and both sides. Codecs whose open form is their
// final form have one block per position range; others have an open block (16-bit rows) while a range is being
// written and a packed block once it is closed and committed. Sink ranges keep their open form for ever.
// Closed, committed blocks can be published in a prefix tree and adopted by sequences with the same tokens before
// them; nobody writes to a block after it closed, so sharing needs no copy. Blocks held only by the tree are given
// up, oldest first, when a sequence grows. Engine thread only.
#pragma once

#include <turbo/abi/draft/arch_pack.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kv/block_pool.h"
#include "kv/prefix_tree.h"

namespace turbo::kv {

/// Blocks that hold `positions` positions.
constexpr uint32_t blocks_for(uint64_t positions) { return static_cast<uint32_t>((positions + kBlock - 1) / kBlock); }

struct CacheShape {
  uint32_t n_layers = 0, n_kv_heads = 0, head_dim_k = 0, head_dim_v = 0;
  uint32_t n_blocks = 0;       // of kBlock positions
  uint32_t max_sequences = 1;  // running at once; sizes the open pool
  uint32_t exact_rows = 0;     // prompt rows of a step that see each other's keys unpacked (prefill: exact); 0: as all others do
};

/// Block table of one sequence. -1 = none. Owned by the sequence, changed only through KvCache.
struct SequenceBlocks {
  std::vector<int32_t> packed;  // the only form when open is packed
  std::vector<int32_t> open;
  uint32_t committed = 0;            // positions final and cached
  PrefixTree::Node* shared = nullptr;  // its first shared->depth blocks are this path of the tree; null = none ever
};

class KvCache {
 public:
  static Result<std::unique_ptr<KvCache>> create(const turbo_arch_pack* api, void* pack, const CacheShape& shape);
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  /// Bytes of one block over all layers and both sides, in both forms.
  static Result<turbo_kv_bytes> bytes(const turbo_arch_pack* api, void* pack, const CacheShape& shape);

  /// Open blocks that a pool for so many sequences keeps beside its packed ones: 0 where open is packed.
  static uint32_t open_blocks(const turbo_kv_bytes& bytes, uint32_t max_sequences, uint32_t exact_rows = 0);

  /// Let an empty sequence adopt and publish blocks under a salt.
  void share(SequenceBlocks& sequence, std::string_view salt);
  /// Take over cached blocks that continue the sequence's `tokens`, up to `limit` positions in whole blocks. The
  /// sequence must hold nothing beyond what it shares. Returns the positions now committed.
  uint32_t adopt(SequenceBlocks& sequence, std::span<const int32_t> tokens, uint32_t limit);
  /// Allocate blocks so that slots [0, slots) exist, evicting cached ones. False: the pool is held by sequences; what
  /// was got stays with the sequence.
  bool grow(SequenceBlocks& sequence, uint64_t slots);
  /// Positions [0, committed) are final: packs every block that closed. On failure the sequence is unusable.
  Status commit(SequenceBlocks& sequence, uint32_t committed);
  /// Copy the row at src_slot to dst_slot (tree compaction, before commit).
  Status move_row(SequenceBlocks& sequence, uint32_t src_slot, uint32_t dst_slot);
  /// Offer the closed, committed blocks to others; `tokens` covers every committed position. A block that another sequence published first replaces ours.
  void publish(SequenceBlocks& sequence, std::span<const int32_t> tokens);
  /// Give back every block. Published ones stay cached until the space is needed.
  void release(SequenceBlocks& sequence);

  /// Drop every cached block that no sequence holds. Returns how many.
  uint32_t flush();
  /// With no sequence alive: every used block is the tree's and every count is right. Says what is not.
  Status check_idle() const;

  /// Raw bytes of one packed (or only) block, and of its open form where it keeps one: bytes_of() long.
  Status read_block(int32_t packed, int32_t open, std::span<std::byte> bytes) const;
  /// Append a block of finished positions, from bytes of read_block, to a sequence that shares all it holds.
  /// resource_exhausted: no block is free.
  Status restore_block(SequenceBlocks& sequence, PrefixTree::Tokens tokens, std::span<const std::byte> bytes);
  /// Bytes of block `index` of a sequence in both forms it keeps.
  uint64_t bytes_of(uint32_t index) const;

  /// True when rows of one step must stay inside one block (a query reads older blocks packed).
  bool step_stays_in_block() const { return !open_is_packed_; }
  /// True when prompt rows need not: blocks that a prompt closes in a step are packed behind it.
  bool prompts_cross_blocks() const { return !open_is_packed_ && shape_.exact_rows > 0; }
  turbo_kv_pool* pool() const { return pool_; }
  uint32_t n_blocks() const { return packed_.capacity(); }
  uint32_t n_used() const { return packed_.n_used(); }
  uint32_t n_open_blocks() const { return open_.capacity(); }
  uint32_t n_cached() const { return tree_.n_unpinned(); }                     // held by the tree alone
  uint32_t n_available() const { return packed_.n_free() + tree_.n_unpinned(); }  // what sequences could still get
  uint64_t block_bytes() const { return bytes_.block_bytes; }
  uint64_t open_block_bytes() const { return open_is_packed_ ? 0 : bytes_.open_block_bytes; }
  /// Leading blocks of a sequence that keep their open form.
  uint32_t n_sink_blocks() const { return open_is_packed_ ? 0 : blocks_for(bytes_.sinks); }
  uint64_t pool_bytes() const;
  uint64_t bytes_per_token() const { return bytes_.block_bytes / kBlock; }
  const CacheShape& shape() const { return shape_; }

 private:
  KvCache(const turbo_arch_pack* api, void* pack, const CacheShape& shape, const turbo_kv_bytes& bytes, uint32_t n_open);
  bool keeps_open(uint32_t block_index) const { return uint64_t{block_index} * kBlock < bytes_.sinks; }

  std::optional<int32_t> allocate(BlockPool& pool);
  void publish_next(SequenceBlocks& sequence, PrefixTree::Tokens tokens);
  void evict(const PrefixTree::Blocks& blocks);

  const turbo_arch_pack* api_;
  void* pack_;
  CacheShape shape_;
  turbo_kv_bytes bytes_;
  bool open_is_packed_;
  turbo_kv_pool* pool_ = nullptr;
  BlockPool packed_;
  BlockPool open_;
  PrefixTree tree_;
};

}  // namespace turbo::kv
