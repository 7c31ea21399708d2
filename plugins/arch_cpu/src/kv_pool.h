// KV pool: blocks of 64 positions, each holding every layer and both sides, in one or two forms (turbo/pack/kv_blocks.hpp).
// Memory is reserved whole and paid for when touched.
// [load] to create, [engine] to copy and pack, [team] to read and append at disjoint places.
#pragma once

#include <turbo/abi/draft/arch_pack.h>
#include <turbo/pack/kv_blocks.hpp>

#include "memory.h"
#include "team.h"

#include <algorithm>
#include <vector>

namespace turbo::arch_cpu {

struct CodecSource {
  void* ctx = nullptr;
  turbo_status (*find)(void* ctx, uint32_t side, uint32_t layer, const turbo_kv_codec** codec, void** self, turbo_error* error) = nullptr;
};

struct KvPart : pack::KvPart {
  const turbo_kv_codec* codec = nullptr;
  void* self = nullptr;
  uint32_t query_stride = 0;  // query_floats rounded up to 16

  uint32_t n_forms() const { return one_form ? 1 : 2; }
};

}  // namespace turbo::arch_cpu

struct turbo_kv_pool : turbo::pack::KvBlocks<turbo::arch_cpu::KvPart> {
  turbo::arch_cpu::Memory packed, open;

  /// Floats of one output row of V in all its forms, in the layer that has most.
  uint64_t value_floats() const {
    uint64_t most = 0;
    for (const auto& part : parts[TURBO_KV_SIDE_V]) most = std::max(most, uint64_t{part.query_stride} * part.n_forms());
    return most;
  }
  uint8_t* packed_block(uint32_t which, uint32_t layer, int32_t id) const {
    return packed.data() + static_cast<uint64_t>(id) * block_bytes + part(which, layer).packed_offset;
  }
  uint8_t* open_block(uint32_t which, uint32_t layer, int32_t id) const {
    return open.data() + static_cast<uint64_t>(id) * open_block_bytes + part(which, layer).open_offset;
  }
  /// Where rows of a part are appended: the open block, or the only one.
  uint8_t* append_block(uint32_t which, uint32_t layer, int32_t packed_id, int32_t open_id) const {
    return part(which, layer).one_form ? packed_block(which, layer, packed_id) : open_block(which, layer, open_id);
  }
};

namespace turbo::arch_cpu {

/// The pool without its memory: layouts, offsets and sizes. Throws Failure on shapes that a codec refuses.
turbo_kv_pool describe_pool(const turbo_kv_pool_desc& desc, const CodecSource& codecs);
/// Reserve the memory.
void allocate_pool(turbo_kv_pool& pool, const turbo_host_alloc* alloc);

/// With the whole team, which must not be in a run.
void pool_pack(turbo_kv_pool& pool, int32_t open_id, int32_t block_id, ThreadTeam& team);
void pool_copy(turbo_kv_pool& pool, int32_t src, int32_t dst, uint32_t form);
void pool_move_row(turbo_kv_pool& pool, const turbo_kv_place& src, const turbo_kv_place& dst);
/// The bytes of one block in one form, checked against `bytes`.
uint8_t* pool_raw(turbo_kv_pool& pool, int32_t id, uint32_t form, uint64_t bytes);

}  // namespace turbo::arch_cpu
