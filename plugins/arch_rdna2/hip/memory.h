// Host memory to the device and back in pieces, through pinned memory; and scratch that every plan shares.
// One thread at a time. Copies wait for the stream: they are for loading, saving and reading results.
#pragma once

#include "ops.h"

namespace turbo::arch_rdna2 {

/// a * b, a + b, or Failure(RESOURCE_EXHAUSTED) naming `what` when it does not fit.
uint64_t checked_mul(uint64_t a, uint64_t b, const char* what);
uint64_t checked_add(uint64_t a, uint64_t b, const char* what);

class Staging {
 public:
  static constexpr uint64_t kBytes = uint64_t{4} << 20;

  explicit Staging(hip::Device& device) : device_(device) {}
  void to_device(void* dst, const void* src, uint64_t bytes);
  void to_host(void* dst, const void* src, uint64_t bytes);
  /// `rows` rows of row_bytes, src_stride apart on the device and dense in dst.
  void rows_to_host(void* dst, const void* src, uint64_t rows, uint64_t row_bytes, uint64_t src_stride);

 private:
  uint8_t* pinned(uint64_t bytes);
  void copy(void* dst, const void* src, uint64_t bytes, uint32_t direction);
  void sync();

  hip::Device& device_;
  hip::DeviceMemory pinned_;
};

/// Workspace of steps, whose contents never outlive one: plans run one after another, so they share it. It grows when a
/// plan or a longer context needs more, which changes `generation`: recorded addresses are stale then.
class Scratch {
 public:
  explicit Scratch(hip::Device& device) : device_(device) {}
  void reserve(uint64_t bytes);
  uint8_t* data() const { return memory_.get<uint8_t>(); }
  uint64_t bytes() const { return memory_.bytes(); }
  uint64_t generation() const { return generation_; }

 private:
  hip::Device& device_;
  hip::DeviceMemory memory_;
  uint64_t generation_ = 0;
};

}  // namespace turbo::arch_rdna2
