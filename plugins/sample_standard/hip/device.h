// The arch pack's device with errors as Failure, and buffers that grow. Engine thread; nothing here waits but sync.
#pragma once

#include <turbo/abi/draft/device.h>
#include <turbo/plugin.hpp>

#include <cstdint>
#include <string>

namespace turbo::sample_standard {

class Device {
 public:
  explicit Device(const turbo_device* device) : device_(device) {}
  const turbo_device& raw() const { return *device_; }

  turbo_module* load(const turbo_code_object* objects, uint32_t n) const {
    turbo_module* module = nullptr;
    call([&](turbo_error* e) { return device_->module_load(device_->ctx, objects, n, &module, e); });
    return module;
  }
  turbo_kernel* kernel(turbo_module* module, const char* name) const {
    turbo_kernel* kernel = nullptr;
    call([&](turbo_error* e) { return device_->kernel(device_->ctx, module, name, &kernel, e); });
    return kernel;
  }
  /// A one-dimensional grid; none of no blocks.
  template <typename Args>
  void launch(turbo_stream* stream, turbo_kernel* kernel, uint64_t blocks, uint32_t threads, const Args& args) const {
    static_assert(sizeof(Args) <= 4000);
    if (blocks == 0) return;
    if (blocks > INT32_MAX) throw Failure(TURBO_INVALID_ARGUMENT, "device sampler: a launch of " + std::to_string(blocks) + " blocks");
    const turbo_launch launch{sizeof launch, static_cast<uint32_t>(blocks), 1, 1, threads, 0, &args, sizeof(Args), 0, 1, 0};
    call([&](turbo_error* e) { return device_->launch(device_->ctx, stream, kernel, &launch, e); });
  }
  void copy(turbo_stream* stream, void* to, const void* from, uint64_t bytes, uint32_t direction) const {
    if (bytes > 0) call([&](turbo_error* e) { return device_->copy(device_->ctx, stream, to, from, bytes, direction, e); });
  }
  void fill(turbo_stream* stream, void* to, uint32_t byte, uint64_t bytes) const {
    if (bytes > 0) call([&](turbo_error* e) { return device_->fill(device_->ctx, stream, to, byte, bytes, e); });
  }
  void sync(turbo_stream* stream) const {
    call([&](turbo_error* e) { return device_->sync(device_->ctx, stream, e); });
  }

 private:
  template <typename Call>
  void call(Call&& body) const {
    turbo_error error{};
    error.struct_size = sizeof error;
    if (const turbo_status status = body(&error); status != TURBO_OK) throw Failure(status, error.message, error.hint);
  }
  const turbo_device* device_;
};

/// Memory of the device's or pinned. Growing loses what was there; it must not be in use.
class Buffer {
 public:
  Buffer(const Device& device, uint32_t memory) : device_(device), memory_(memory) {}
  ~Buffer() { release(); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  uint64_t bytes() const { return bytes_; }
  /// False, with the old memory kept, when there is no more.
  bool grow(uint64_t bytes) {
    if (bytes <= bytes_) return true;
    turbo_error error{};
    error.struct_size = sizeof error;
    void* const memory = device_.raw().allocate(device_.raw().ctx, memory_, bytes, "sampler", &error);
    if (!memory) return false;
    release();
    data_ = memory;
    bytes_ = bytes;
    return true;
  }
  template <typename T>
  T* at(uint64_t offset = 0) const { return reinterpret_cast<T*>(static_cast<char*>(data_) + offset); }

 private:
  void release() {
    if (data_) device_.raw().release(device_.raw().ctx, data_);
    data_ = nullptr;
    bytes_ = 0;
  }
  const Device& device_;
  const uint32_t memory_;
  void* data_ = nullptr;
  uint64_t bytes_ = 0;
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
