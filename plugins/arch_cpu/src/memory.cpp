#include "memory.h"

#include "numa.h"

#include <algorithm>
#include <string>

#include <sys/mman.h>

namespace turbo::arch_cpu {

uint64_t checked_mul(uint64_t a, uint64_t b, const char* what) {
  uint64_t product;
  if (__builtin_mul_overflow(a, b, &product))
    throw Failure(TURBO_RESOURCE_EXHAUSTED, std::string(what) + ": " + std::to_string(a) + " x " + std::to_string(b) + " bytes do not fit in 64 bits");
  return product;
}

uint64_t checked_add(uint64_t a, uint64_t b, const char* what) {
  uint64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) throw Failure(TURBO_RESOURCE_EXHAUSTED, std::string(what) + ": size does not fit in 64 bits");
  return sum;
}

Memory::Memory(const turbo_host_alloc* service, uint64_t bytes, uint64_t alignment, const char* tag, bool huge) {
  if (bytes == 0) return;
  huge = huge && bytes >= kHugePage;
  alignment = std::max<uint64_t>(huge ? kHugePage : 64, alignment);
  const std::string refused = std::string("memory for ") + tag + ": the system refused " + std::to_string(bytes) + " bytes";
  if (bytes > (uint64_t{1} << 56)) throw Failure(TURBO_RESOURCE_EXHAUSTED, refused);
  if (service) {
    turbo_error error{};
    error.struct_size = sizeof error;
    data_ = service->allocate(service->ctx, TURBO_MEMORY_HOST, bytes, alignment, tag, &error);
    if (!data_) throw Failure(error.code != TURBO_OK ? error.code : TURBO_RESOURCE_EXHAUSTED, error.message[0] ? error.message : refused, error.hint);
    service_ = service;
  } else {
    // Mapped pages cost nothing until they are touched.
    mapping_bytes_ = bytes + alignment;
    mapping_ = mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping_ == MAP_FAILED) {
      mapping_ = nullptr;
      throw Failure(TURBO_RESOURCE_EXHAUSTED, refused, "use a smaller model or context");
    }
    data_ = reinterpret_cast<void*>(align_up(reinterpret_cast<uintptr_t>(mapping_), alignment));
  }
  bytes_ = bytes;
  if (!huge) return;
  spread_over_nodes(data_, bytes);
  madvise(data_, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);  // advice: failure changes speed only
}

void Memory::release() noexcept {
  if (service_ && data_) service_->release(service_->ctx, data_);
  if (mapping_) munmap(mapping_, mapping_bytes_);
}

}  // namespace turbo::arch_cpu
