// Launches of the sampler's kernels, and buffers that grow. Engine thread.
#pragma once

#include <turbo/device.hpp>

#include <cstdint>
#include <string>

namespace turbo::sample_standard {

/// Kernels of one file, in one-dimensional grids.
class Kernels : public DeviceKernels {
 public:
  template <typename Args>
  void launch(turbo_stream* stream, uint32_t kernel, uint64_t blocks, uint32_t threads, const Args& args) const {
    if (blocks == 0) return;
    if (blocks > INT32_MAX) throw Failure(TURBO_INVALID_ARGUMENT, "device sampler: a launch of " + std::to_string(blocks) + " blocks");
    DeviceKernels::launch(stream, kernel, {static_cast<uint32_t>(blocks), 1, 1}, threads, args);
  }
};

/// Memory of the device's or pinned. Growing loses what was there; it must not be in use.
class Buffer {
 public:
  Buffer(const turbo_device* device, uint32_t memory) : device_(*device), memory_(memory) {}

  uint64_t bytes() const { return data_.bytes(); }
  /// False, with the old memory kept, when there is no more.
  bool grow(uint64_t bytes) {
    if (bytes <= this->bytes()) return true;
    try {
      data_ = DeviceArray<char>(device_, memory_, bytes, "sampler");
      return true;
    } catch (const Failure&) {
      return false;
    }
  }
  template <typename T>
  T* at(uint64_t offset = 0) const { return reinterpret_cast<T*>(data_.get() + offset); }

 private:
  const turbo_device& device_;
  const uint32_t memory_;
  DeviceArray<char> data_;
};

/// Parts of a block one behind the other, each aligned for any type.
class Layout {
 public:
  template <typename T>
  uint64_t add(uint64_t n) {
    const uint64_t at = bytes_;
    bytes_ = (bytes_ + n * sizeof(T) + 63) / 64 * 64;
    return at;
  }
  uint64_t bytes() const { return bytes_; }

 private:
  uint64_t bytes_ = 0;
};

}  // namespace turbo::sample_standard
