// KV pool: blocks of 64 positions, each holding every layer and both sides, in one or two forms.
//
// A block id owns one contiguous range: [layer][K, V]. Parts whose codec's open form is final ("one form") keep their rows
// under the packed (only) id; others append into open ids. Memory is reserved whole and paid for when touched.
// [load] to create, [engine] to copy and pack, [team] to read and append at disjoint places.
#pragma once

#include <turbo/abi/draft/arch_pack.h>

#include "memory.h"
#include "team.h"

#include <algorithm>
#include <vector>

namespace turbo::arch_cpu {

struct CodecSource {
  void* ctx = nullptr;
  turbo_status (*find)(void* ctx, uint32_t side, uint32_t layer, const turbo_kv_codec** codec, void** self, turbo_error* error) = nullptr;
};

/// One side (K or V) of one layer. Layers may have different codecs.
struct KvPart {
  const turbo_kv_codec* codec = nullptr;
  void* self = nullptr;
  turbo_kv_shape shape{};
  turbo_kv_layout layout{};
  uint64_t packed_offset = 0, open_offset = 0;  // inside a block of that form
  uint32_t query_stride = 0;                    // query_floats rounded up to 16
  bool one_form = true;

  uint32_t n_forms() const { return one_form ? 1 : 2; }
};

}  // namespace turbo::arch_cpu

struct turbo_kv_pool {
  turbo_kv_pool_desc desc{};
  std::vector<turbo::arch_cpu::KvPart> parts[2];  // by TURBO_KV_SIDE_*, then by layer
  bool any_one_form = false, any_two_form = false;
  uint32_t sinks = 0;  // most of all layers
  uint64_t block_bytes = 0, open_block_bytes = 0;
  turbo::arch_cpu::Memory packed, open;

  const turbo::arch_cpu::KvPart& part(uint32_t which, uint32_t layer) const { return parts[which][layer]; }
  bool one_form() const { return !any_two_form; }
  /// Floats of one output row of V in all its forms, in the layer that has most.
  uint64_t value_floats() const {
    uint64_t most = 0;
    for (const auto& part : parts[TURBO_KV_SIDE_V]) most = std::max(most, uint64_t{part.query_stride} * part.n_forms());
    return most;
  }
  uint32_t n_blocks() const { return desc.n_blocks; }
  uint32_t n_open_blocks() const { return one_form() ? 0 : desc.n_open_blocks; }
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
