// Largest element of a row, the lowest index among equals, by any number of blocks: the skeleton that sampling, drafting
// and verification instantiate.
//
// An element becomes a 64-bit key: its value in unsigned order above, the complement of its index below. The largest key
// does not depend on splits, grid or order of arrival. Both zeros are equal; NaN reads as -1e30 and is told; infinities
// are the ends of the order. Everything is decided on integers, so no option of a compiler can drop it, and denormals
// count. Zero is below every key of an element: the reset value.
//
// The splits of a row meet in an ArgmaxRow, which must be zero before the first launch, after a failed one, and belongs
// to one stream at a time. The block that arrives last resets it; no block waits for another.
#pragma once

#include <stdint.h>

namespace turbo::gpu {

/// One row's meeting place, in device memory. Low half of arrivals: blocks that came; high half: those that met a NaN.
struct ArgmaxRow {
  uint64_t key;
  uint32_t arrivals;
  uint32_t reserved;
};

constexpr uint32_t kArgmaxThreads = 256;
constexpr uint32_t kNanReadsAs = 0xf149f2cau;  // -1e30

/// Elements a split takes, on the host: a multiple of four, so that the splits of an aligned row are aligned.
constexpr uint32_t argmax_split(uint32_t vocab, uint32_t splits) { return static_cast<uint32_t>(((uint64_t{vocab} + splits - 1) / splits + 3) / 4 * 4); }
/// Splits of a row: something like 4,096 elements a block when there are many rows; few rows take the whole device, with
/// one load of a thread.
constexpr uint32_t argmax_splits(uint32_t vocab, uint32_t rows) {
  constexpr uint64_t kFewBlocks = 1024, kMost = 256;
  const uint64_t fine = (uint64_t{vocab} + 1023) / 1024, coarse = (uint64_t{vocab} + 4095) / 4096;
  const uint64_t wanted = fine * rows <= kFewBlocks ? fine : coarse;
  return static_cast<uint32_t>(wanted < 1 ? 1 : wanted > kMost ? kMost : wanted);
}

/// Rows of logits: f32 on the device, `stride` floats from row to row; what lies beyond vocab is never read.
struct LogitRows {
  const float* data;
  uint64_t stride;
  uint32_t vocab;
  uint32_t rows;
  uint32_t splits;  // blocks of a row, at most 65,535; the grid is rows * splits
  uint32_t split;   // elements of a block
};
constexpr LogitRows logit_rows(const float* data, uint64_t stride, uint32_t vocab, uint32_t rows, uint32_t splits) {
  return {data, stride, vocab, rows, splits, argmax_split(vocab, splits)};
}

}  // namespace turbo::gpu

#if defined(TB_FIBER) || defined(__CUDACC__) || defined(__HIP__)
#include <turbo/kernel/gpu/device.hpp>

namespace turbo::gpu {

TB_DEVICE bool is_nan_bits(uint32_t b) { return (b & 0x7fffffffu) > 0x7f800000u; }
/// Unsigned order of values. Not for NaN.
TB_DEVICE uint32_t rising_bits(uint32_t b) {
  b = b == 0x80000000u ? 0 : b;
  return b & 0x80000000u ? ~b : b | 0x80000000u;
}
TB_DEVICE uint64_t argmax_key(float value, uint32_t index) {
  const uint32_t b = bits(value);
  return uint64_t{rising_bits(is_nan_bits(b) ? kNanReadsAs : b)} << 32 | static_cast<uint32_t>(~index);
}
TB_DEVICE uint32_t key_index(uint64_t key) { return ~static_cast<uint32_t>(key); }
TB_DEVICE float key_value(uint64_t key) {
  const uint32_t rising = static_cast<uint32_t>(key >> 32);
  return from_bits(rising & 0x80000000u ? rising & 0x7fffffffu : ~rising);
}

struct ArgmaxPart {
  uint64_t key = 0;
  bool nan = false;
};

/// What one thread has seen; indices must come in rising order.
struct ArgmaxThread {
  uint32_t rising = 0, index = 0;
  bool nan = false;
  TB_DEVICE void see(uint32_t value_bits, uint32_t at) {
    const bool is_nan = is_nan_bits(value_bits);
    nan |= is_nan;
    const uint32_t order = rising_bits(is_nan ? kNanReadsAs : value_bits);  // above 0 for every element
    const bool better = order > rising;
    index = better ? at : index;
    rising = better ? order : rising;
  }
  TB_DEVICE ArgmaxPart part() const { return {rising ? uint64_t{rising} << 32 | static_cast<uint32_t>(~index) : 0, nan}; }
};

/// This thread's share of elements [begin, end) of a row; begin is a multiple of four.
TB_DEVICE ArgmaxPart argmax_part(const float* row, uint64_t begin, uint64_t end) {
  ArgmaxThread best;
  if ((reinterpret_cast<uintptr_t>(row) & 15) == 0) {
    uint64_t i = begin + uint64_t{thread()} * 4;
    for (; i + 4 <= end; i += uint64_t{threads()} * 4) {
      const Words4 v = *reinterpret_cast<const Words4*>(row + i);
      const uint32_t at = static_cast<uint32_t>(i);
      best.see(v.x, at);
      best.see(v.y, at + 1);
      best.see(v.z, at + 2);
      best.see(v.w, at + 3);
    }
    for (; i < end; ++i) best.see(bits(row[i]), static_cast<uint32_t>(i));  // of one thread: the rest of the last four
  } else {
    for (uint64_t i = begin + thread(); i < end; i += threads()) best.see(bits(row[i]), static_cast<uint32_t>(i));
  }
  return best.part();
}

/// The block's best, in every thread; `slots` is shared memory of kArgmaxThreads / 32 words. A barrier must lie between
/// two uses of the slots.
TB_DEVICE ArgmaxPart block_argmax(ArgmaxPart part, uint64_t* slots) {
  TB_UNROLL
  for (uint32_t m = kWave / 2; m; m >>= 1) {
    const uint64_t other = shuffle_xor(part.key, m);
    part.key = other > part.key ? other : part.key;
  }
  part.nan = ballot(part.nan) != 0;
  // Keys of real elements are at least 2^32 and keep their lowest bits: the flag travels beside them.
  using Flags = uint32_t[kArgmaxThreads / kWave];
  TB_SHARED(Flags, argmax_nans);
  if (lane() == 0) {
    slots[wave()] = part.key;
    argmax_nans[wave()] = part.nan;
  }
  sync_block();
  const uint32_t n = threads() / kWave;
  part = {};
  for (uint32_t w = 0; w < n; ++w) {
    part.key = slots[w] > part.key ? slots[w] : part.key;
    part.nan |= argmax_nans[w] != 0;
  }
  return part;
}

/// One thread of the block tells the block's part. True for the block that came last, which then has the whole row's and
/// has reset the meeting place.
TB_DEVICE bool argmax_arrive(ArgmaxRow* row, ArgmaxPart part, uint32_t splits, ArgmaxPart& whole) {
  atomic_max(&row->key, part.key);
  fence_device();  // the key is seen by whoever sees the arrival
  const uint32_t own = part.nan ? 0x10001u : 1u, before = atomic_add(&row->arrivals, own);
  if ((before & 0xffffu) + 1 != splits) return false;
  fence_device();
  whole.key = load_shared_word(&row->key);
  whole.nan = (before + own) >> 16 != 0;
  store_shared_word(&row->key, uint64_t{0});
  store_shared_word(&row->arrivals, uint32_t{0});
  return true;
}

}  // namespace turbo::gpu
#endif
