// The turbo_device of a pack: the ABI's table over an opened Runtime. It chooses code objects, refuses broken calls, keeps
// account of memory and tells the host. Threads as in turbo/abi/draft/device.h, one at a time.
#pragma once

#include <turbo/abi/draft/device.h>
#include <turbo/plugin.hpp>

#include <map>
#include <memory>
#include <set>
#include <string>

#include "runtime.h"

namespace turbo::hip {

class Device {
 public:
  /// The runtime's device is open. `host` must outlive this; its alloc/1 service is told of memory by tag.
  Device(const Host& host, std::unique_ptr<Runtime> runtime, const DeviceFacts& facts);
  /// Gives back what is left, and says in the log what that was.
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const turbo_device* table() const { return &table_; }
  Runtime& runtime() { return *runtime_; }
  const DeviceFacts& facts() const { return facts_; }
  turbo_stream* stream() const { return table_.stream; }

  // For the pack itself; these throw Failure. What the table's calls answer is the same.
  turbo_module* load(const turbo_code_object* objects, uint32_t n);
  void unload(turbo_module* module) noexcept;
  void* allocate(uint32_t memory, uint64_t bytes, const char* tag);
  void release(void* pointer) noexcept;

  /// Bytes of device and pinned memory that are allocated, by tag.
  std::map<std::string, uint64_t> bytes_by_tag() const;
  uint64_t bytes(uint32_t memory) const;

 private:
  struct Allocation {
    uint32_t memory;
    uint64_t bytes;
    std::string tag;
  };

  void account(const Allocation& allocation, bool added) const noexcept;

  Host host_;
  const turbo_host_alloc* account_ = nullptr;  // null: the host keeps none
  std::unique_ptr<Runtime> runtime_;
  DeviceFacts facts_;
  turbo_device table_{};
  std::map<void*, Allocation> allocations_;
  std::set<turbo_module*> modules_;
};

/// Memory of a device that is given back when this goes. Movable.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(Device& device, uint32_t memory, uint64_t bytes, const char* tag)
      : device_(&device), pointer_(device.allocate(memory, bytes, tag)), bytes_(bytes) {}
  DeviceMemory(DeviceMemory&& other) noexcept { swap(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceMemory() {
    if (pointer_) device_->release(pointer_);
  }
  template <typename T = void>
  T* get() const { return static_cast<T*>(pointer_); }
  uint64_t bytes() const { return bytes_; }

 private:
  void swap(DeviceMemory& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(pointer_, other.pointer_);
    std::swap(bytes_, other.bytes_);
  }
  Device* device_ = nullptr;
  void* pointer_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace turbo::hip
