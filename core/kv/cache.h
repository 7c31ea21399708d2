// The paged KV cache of one model: which block holds which positions of which sequence.
//
// A block holds kBlock consecutive positions for all layers and both sides. Codecs whose open form is their
// final form have one block per position range; others have an open block (16-bit rows) while a range is being
// written and a packed block once it is closed and committed. Sink ranges keep their open form for ever.
// Space is reserved when a request is admitted, so a running sequence never finds the pool empty.
// Engine thread only.
#pragma once

#include <turbo/abi/draft/arch_pack.h>

#include <memory>
#include <vector>

#include "base/status.h"
#include "kv/block_pool.h"

namespace turbo::kv {

inline constexpr uint32_t kBlock = TURBO_KV_BLOCK;

/// Blocks that hold `positions` positions.
constexpr uint32_t blocks_for(uint64_t positions) { return static_cast<uint32_t>((positions + kBlock - 1) / kBlock); }

struct CacheShape {
  uint32_t n_layers = 0, n_kv_heads = 0, head_dim_k = 0, head_dim_v = 0;
  uint32_t n_blocks = 0;       // of kBlock positions
  uint32_t max_sequences = 1;  // running at once; sizes the open pool
};

/// Block table of one sequence. -1 = none. Owned by the sequence, changed only through KvCache.
struct SequenceBlocks {
  std::vector<int32_t> packed;  // the only form when open is packed
  std::vector<int32_t> open;
  uint32_t reserved = 0;   // blocks promised, allocated ones included
  uint32_t committed = 0;  // positions final and cached
};

class KvCache {
 public:
  static Result<std::unique_ptr<KvCache>> create(const turbo_arch_pack* api, void* pack, const CacheShape& shape);
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  /// Bytes of one block over all layers and both sides, in both forms.
  static Result<turbo_kv_bytes> bytes(const turbo_arch_pack* api, void* pack, const CacheShape& shape);

  /// Promise room for `positions` positions to a sequence that holds nothing. False when the pool can't.
  bool reserve(SequenceBlocks& sequence, uint64_t positions);
  /// Allocate blocks so that slots [0, slots) exist. Within the promise this cannot fail.
  Status grow(SequenceBlocks& sequence, uint64_t slots);
  /// Positions [0, committed) are final: packs every block that closed. On failure the sequence is unusable.
  Status commit(SequenceBlocks& sequence, uint32_t committed);
  /// Copy the row at src_slot to dst_slot (tree compaction, before commit).
  Status move_row(SequenceBlocks& sequence, uint32_t src_slot, uint32_t dst_slot);
  /// Give back every block and the promise.
  void release(SequenceBlocks& sequence);

  /// True when rows of one step must stay inside one block (a query reads older blocks packed).
  bool step_stays_in_block() const { return !open_is_packed_; }
  turbo_kv_pool* pool() const { return pool_; }
  uint32_t n_blocks() const { return packed_.capacity(); }
  uint32_t n_used() const { return packed_.n_used(); }
  uint32_t n_open_blocks() const { return open_.capacity(); }
  uint32_t n_reserved() const { return reserved_; }
  uint64_t pool_bytes() const;
  uint64_t bytes_per_token() const { return bytes_.block_bytes / kBlock; }
  const CacheShape& shape() const { return shape_; }

 private:
  KvCache(const turbo_arch_pack* api, void* pack, const CacheShape& shape, const turbo_kv_bytes& bytes, uint32_t n_open);
  bool keeps_open(uint32_t block_index) const { return uint64_t{block_index} * kBlock < bytes_.sinks; }

  const turbo_arch_pack* api_;
  void* pack_;
  CacheShape shape_;
  turbo_kv_bytes bytes_;
  bool open_is_packed_;
  turbo_kv_pool* pool_ = nullptr;
  BlockPool packed_;
  BlockPool open_;
  uint32_t reserved_ = 0;
};

}  // namespace turbo::kv
