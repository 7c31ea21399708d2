// KV pool: blocks of 64 positions, each holding every layer and both sides, in one or two forms.
//
// A block id owns one contiguous range: [layer][K, V]. Codecs whose open form is final ("one form") keep their rows
// under the packed (only) id; others append into open ids. Memory is reserved whole and paid for when touched.
// [load] to create, [engine] to copy and pack, [team] to read and append at disjoint places.
#pragma once

#include <turbo/abi/draft/arch_pack.h>

#include "memory.h"

#include <vector>

namespace turbo::arch_cpu {

struct CodecSource {
  void* ctx = nullptr;
  turbo_status (*find)(void* ctx, uint32_t side, const turbo_kv_codec** codec, void** self, turbo_error* error) = nullptr;
};

/// One side (K or V) of the pool, the same for all layers except the offsets.
struct KvSide {
  const turbo_kv_codec* codec = nullptr;
  void* self = nullptr;
  turbo_kv_layout layout{};               // of layer 0; all layers must agree
  std::vector<turbo_kv_shape> shapes;     // per layer
  std::vector<uint64_t> packed_offset;    // per layer, inside a block
  std::vector<uint64_t> open_offset;      // per layer, inside an open block
  uint32_t head_dim = 0;
  bool one_form = true;
  uint32_t query_stride = 0;              // query_floats rounded up to 16
};

}  // namespace turbo::arch_cpu

struct turbo_kv_pool {
  turbo_kv_pool_desc desc{};
  turbo::arch_cpu::KvSide side[2];  // TURBO_KV_SIDE_*
  uint64_t block_bytes = 0, open_block_bytes = 0;
  turbo::arch_cpu::Memory packed, open;

  bool one_form() const { return side[0].one_form && side[1].one_form; }
  uint32_t n_blocks() const { return desc.n_blocks; }
  uint32_t n_open_blocks() const { return one_form() ? 0 : desc.n_open_blocks; }
  uint8_t* packed_block(uint32_t which, uint32_t layer, int32_t id) const {
    return packed.data() + static_cast<uint64_t>(id) * block_bytes + side[which].packed_offset[layer];
  }
  uint8_t* open_block(uint32_t which, uint32_t layer, int32_t id) const {
    return open.data() + static_cast<uint64_t>(id) * open_block_bytes + side[which].open_offset[layer];
  }
  /// Where rows of a side are appended: the open block, or the only one.
  uint8_t* append_block(uint32_t which, uint32_t layer, int32_t packed_id, int32_t open_id) const {
    return side[which].one_form ? packed_block(which, layer, packed_id) : open_block(which, layer, open_id);
  }
};

namespace turbo::arch_cpu {

/// The pool without its memory: layouts, offsets and sizes. Throws Failure on shapes that a codec refuses.
turbo_kv_pool describe_pool(const turbo_kv_pool_desc& desc, const CodecSource& codecs);
/// Reserve the memory.
void allocate_pool(turbo_kv_pool& pool, const turbo_host_alloc* alloc);

void pool_pack(turbo_kv_pool& pool, int32_t open_id, int32_t block_id);
void pool_copy(turbo_kv_pool& pool, int32_t src, int32_t dst, uint32_t form);
void pool_move_row(turbo_kv_pool& pool, int32_t src_id, uint32_t src_row, int32_t dst_id, uint32_t dst_row);
/// The bytes of one block in one form, checked against `bytes`.
uint8_t* pool_raw(turbo_kv_pool& pool, int32_t id, uint32_t form, uint64_t bytes);

}  // namespace turbo::arch_cpu
