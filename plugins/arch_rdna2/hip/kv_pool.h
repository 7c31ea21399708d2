// KV pool: blocks of 64 positions in device memory, each holding every layer and both sides, in one or two forms.
//
// A block id owns one contiguous range: [layer][K, V]. Parts whose codec's open form is final ("one form") keep their rows
// under the packed (only) id; others append into open ids. The same geometry as the CPU pack's.
// [load] to create, [engine] for all else; calls enqueue on the pack's stream, read and write wait for it.
#pragma once

#include <turbo/abi/draft/arch_pack.h>
#include <turbo/pack/facts.hpp>

#include "components.h"
#include "memory.h"

#include <vector>

namespace turbo::arch_rdna2 {

/// One side (K or V) of one layer. Layers may have different codecs.
struct KvPart {
  Codec codec;
  turbo_kv_shape shape{};
  turbo_kv_layout layout{};
  uint64_t packed_offset = 0, open_offset = 0;  // inside a block of that form
  bool one_form = true;
};

}  // namespace turbo::arch_rdna2

struct turbo_kv_pool {
  turbo_kv_pool_desc desc{};
  std::vector<turbo::arch_rdna2::KvPart> parts[2];  // by TURBO_KV_SIDE_*, then by layer
  bool any_one_form = false, any_two_form = false;
  uint32_t sinks = 0;  // most of all layers of two forms
  uint64_t block_bytes = 0, open_block_bytes = 0;
  turbo::hip::DeviceMemory packed, open;

  const turbo::arch_rdna2::KvPart& part(uint32_t side, uint32_t layer) const { return parts[side][layer]; }
  bool one_form() const { return !any_two_form; }
  uint32_t n_blocks() const { return desc.n_blocks; }
  uint32_t n_open_blocks() const { return one_form() ? 0 : desc.n_open_blocks; }
  turbo_device_kv kv(uint32_t side, uint32_t layer) const;
  /// Where rows of a part are appended: the open block, or the only one.
  uint8_t* append_block(uint32_t side, uint32_t layer, const turbo_kv_place& place) const;
};

namespace turbo::arch_rdna2 {

inline pack::PoolFacts facts_of(const turbo_kv_pool& p) { return {p.desc, p.any_one_form, p.any_two_form, p.sinks}; }

/// The pool without its memory: layouts, offsets and sizes. Throws Failure on shapes that a codec refuses.
turbo_kv_pool describe_pool(const turbo_kv_pool_desc& desc, const Components& components);
void allocate_pool(turbo_kv_pool& pool, hip::Device& device);

void pool_pack(turbo_kv_pool& pool, int32_t open_id, int32_t block_id, turbo_stream* stream);
void pool_copy(turbo_kv_pool& pool, int32_t src, int32_t dst, uint32_t form, hip::Device& device);
void pool_move_row(turbo_kv_pool& pool, const turbo_kv_place& src, const turbo_kv_place& dst, turbo_stream* stream);
/// The bytes of one block in one form, on the device, checked against `bytes`.
uint8_t* pool_raw(turbo_kv_pool& pool, int32_t id, uint32_t form, uint64_t bytes);

}  // namespace turbo::arch_rdna2
