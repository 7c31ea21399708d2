// The step table as kernels see it, and where the key of a position lies. Shared by host code (the struct) and kernels.
#pragma once

#include <turbo/abi/draft/device.h>

#if defined(TB_FIBER) || defined(__CUDACC__) || defined(__HIP__)
#include <turbo/kernel/gpu/device.hpp>

namespace turbo::gpu {

TB_DEVICE uint32_t live_rows(const turbo_device_table& t) { return t.counts[0]; }
TB_DEVICE uint32_t live_sequences(const turbo_device_table& t) { return t.counts[1]; }
TB_DEVICE uint32_t live_logit_rows(const turbo_device_table& t) { return t.counts[2]; }
TB_DEVICE bool open_uncommitted(const turbo_device_table& t) { return t.counts[3] != 0; }

/// Slot of the key at `position` as row `row` of sequence `seq` sees it; position must not be beyond the row's own.
TB_DEVICE uint32_t slot_of(const turbo_device_table& t, uint32_t row, uint32_t seq, uint32_t position) {
  const int32_t length = t.path_length[row], committed = t.committed[seq];
  const bool on_path = length > 0 && static_cast<int32_t>(position) >= committed;
  const uint64_t at = uint64_t{row} * t.path_capacity + (on_path ? position - static_cast<uint32_t>(committed) : 0);
  return on_path ? static_cast<uint32_t>(t.path[at]) : position;
}

/// Whether the row reads the key at `position` in open form; for codecs of two forms.
TB_DEVICE bool reads_open(const turbo_device_table& t, uint32_t row_position, uint32_t seq, uint32_t position, uint32_t sinks) {
  const uint32_t block = position / TURBO_KV_BLOCK;
  return position < sinks || block == row_position / TURBO_KV_BLOCK ||
         (open_uncommitted(t) && block >= static_cast<uint32_t>(t.committed[seq]) / TURBO_KV_BLOCK);
}

/// Block of a slot in one form: the pool's base of this side and layer, moved to the block. Never an address outside the
/// pool: a missing id (-1) reads block 0.
TB_DEVICE const uint8_t* block_of(const turbo_device_table& t, const turbo_device_kv& kv, uint32_t seq, uint32_t slot, bool open) {
  const uint64_t at = uint64_t{seq} * t.block_capacity + slot / TURBO_KV_BLOCK;
  const int32_t id = open ? t.open_table[at] : t.block_table[at];
  return (open ? kv.open_base : kv.base) + static_cast<uint64_t>(id < 0 ? 0 : id) * (open ? kv.open_stride : kv.stride);
}

}  // namespace turbo::gpu
#endif
