// Memory: tagged blocks from the host's alloc service, or from the system when the host has none.
// [load] Move-only owner of one block.
#pragma once

#include <turbo/abi/host.h>
#include <turbo/plugin.hpp>

#include <utility>

namespace turbo::arch_cpu {

constexpr uint64_t kHugePage = uint64_t{2} << 20;

/// a * b, a + b, or Failure(RESOURCE_EXHAUSTED) naming `what` when it does not fit.
uint64_t checked_mul(uint64_t a, uint64_t b, const char* what);
uint64_t checked_add(uint64_t a, uint64_t b, const char* what);
inline uint64_t align_up(uint64_t value, uint64_t alignment) { return (value + alignment - 1) / alignment * alignment; }

class Memory {
 public:
  Memory() = default;
  /// `huge`: when the block is large, ask for 2 MiB pages and spread them over the memory nodes. Throws Failure when refused. bytes 0 gives no block.
  Memory(const turbo_host_alloc* service, uint64_t bytes, uint64_t alignment, const char* tag, bool huge);
  ~Memory() { release(); }
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    swap(other);
    return *this;
  }
  uint8_t* data() const { return static_cast<uint8_t*>(data_); }
  uint64_t bytes() const { return bytes_; }

 private:
  void release() noexcept;
  void swap(Memory& other) noexcept {
    std::swap(service_, other.service_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(mapping_, other.mapping_);
    std::swap(mapping_bytes_, other.mapping_bytes_);
  }
  const turbo_host_alloc* service_ = nullptr;
  void* data_ = nullptr;
  uint64_t bytes_ = 0;
  void* mapping_ = nullptr;  // without a service: the pages as mapped
  uint64_t mapping_bytes_ = 0;
};

}  // namespace turbo::arch_cpu
