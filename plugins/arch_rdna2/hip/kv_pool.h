// KV pool: blocks of 64 positions in device memory, each holding every layer and both sides, in one or two forms
// (turbo/pack/kv_blocks.hpp).
// [load] to create, [engine] for all else; calls enqueue on the pack's stream, read and write wait for it.
#pragma once

#include <turbo/abi/draft/arch_pack.h>
#include <turbo/pack/kv_blocks.hpp>

#include "components.h"
#include "memory.h"

#include <vector>

namespace turbo::arch_rdna2 {

struct KvPart : pack::KvPart {
  Codec codec;
};

}  // namespace turbo::arch_rdna2

struct turbo_kv_pool : turbo::pack::KvBlocks<turbo::arch_rdna2::KvPart> {
  turbo::hip::DeviceMemory packed, open;

  turbo_device_kv kv(uint32_t side, uint32_t layer) const;
};

namespace turbo::arch_rdna2 {

inline pack::PoolFacts facts_of(const turbo_kv_pool& p) { return p.facts(); }

/// The pool without its memory: layouts, offsets and sizes. Throws Failure on shapes that a codec refuses.
turbo_kv_pool describe_pool(const turbo_kv_pool_desc& desc, const Components& components);
void allocate_pool(turbo_kv_pool& pool, hip::Device& device);

void pool_pack(turbo_kv_pool& pool, int32_t open_id, int32_t block_id, turbo_stream* stream);
void pool_copy(turbo_kv_pool& pool, int32_t src, int32_t dst, uint32_t form, hip::Device& device);
void pool_move_row(turbo_kv_pool& pool, const turbo_kv_place& src, const turbo_kv_place& dst, turbo_stream* stream);
/// The bytes of one block in one form, on the device, checked against `bytes`.
uint8_t* pool_raw(turbo_kv_pool& pool, int32_t id, uint32_t form, uint64_t bytes);

}  // namespace turbo::arch_rdna2
