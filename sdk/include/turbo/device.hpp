// Kernels of a plugin's own on the arch pack's device, over abi/draft/device.h (draft).
//
//   class Mine : public turbo::WeightFormat<Mine>, public turbo::DeviceClient<Mine> {
//     void attach(const turbo_device& device) override {
//       module_ = turbo::DeviceModule(device, turbo_kernels_mine, turbo_n_kernels_mine);
//       scale_ = module_.kernel<ScaleArgs>("scale");
//     }
//     void detach() noexcept override { module_ = {}; }
//     static const void* interface(std::string_view id) {
//       if (const void* table = turbo::DeviceClient<Mine>::interface(id)) return table;
//       return turbo::WeightFormat<Mine>::interface(id);
//     }
//   };
//   scale_.launch(stream, {blocks}, 256, ScaleArgs{...});
//
// Everything here throws Failure with the device's own message. What a call needs of the device ends with detach.
#pragma once

#include <turbo/abi/draft/device.h>
#include <turbo/plugin.hpp>

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace turbo {

namespace detail {

/// Run a call of the device's table; a failure is thrown on, `what` before its message.
template <typename Call>
void on_device(const std::string& what, Call&& call) {
  turbo_error error{};
  error.struct_size = sizeof error;
  const turbo_status status = call(&error);
  if (status != TURBO_OK) throw Failure(status, what + ": " + (error.message[0] ? error.message : "failed"), error.hint);
}

}  // namespace detail

struct DeviceGrid {
  uint32_t x = 1, y = 1, z = 1;  // blocks
};

/// A kernel and the type of its argument struct. A copy is as good as the original, as long as the module lives.
template <typename Args>
class DeviceKernel {
  static_assert(std::is_trivially_copyable_v<Args> && std::is_standard_layout_v<Args>, "arguments are a plain struct");
  static_assert(sizeof(Args) <= 4000, "arguments have at most 4,000 bytes");

 public:
  DeviceKernel() = default;
  DeviceKernel(const turbo_device& device, turbo_kernel* kernel, const char* name) : device_(&device), kernel_(kernel), name_(name) {}
  explicit operator bool() const { return kernel_ != nullptr; }

  /// [engine] Enqueue. `threads` of a block, a multiple of 32; `resident`: all blocks must run at once.
  void launch(turbo_stream* stream, const DeviceGrid& grid, uint32_t threads, const Args& args, uint32_t shared_bytes = 0, bool resident = false) const {
    detail::check(kernel_ != nullptr, "launch of a kernel that is not loaded");
    const turbo_launch launch = {sizeof launch, grid.x, grid.y, grid.z, threads, shared_bytes, &args, sizeof args, resident ? 1u : 0u, resident ? 0u : 1u, 0};
    turbo_error error{};
    error.struct_size = sizeof error;
    const turbo_status status = device_->launch(device_->ctx, stream, kernel_, &launch, &error);
    if (status != TURBO_OK) throw Failure(status, error.message[0] ? std::string(error.message) : std::string(name_) + ": launch failed", error.hint);
  }
  /// [load] Blocks that the whole device holds at once.
  uint32_t resident_blocks(uint32_t threads, uint32_t shared_bytes = 0) const {
    detail::check(kernel_ != nullptr, "resident_blocks of a kernel that is not loaded");
    uint32_t blocks = 0;
    detail::on_device(name_, [&](turbo_error* error) {
      return device_->resident_blocks(device_->ctx, kernel_, threads, shared_bytes, &blocks, error);
    });
    return blocks;
  }

 private:
  const turbo_device* device_ = nullptr;
  turbo_kernel* kernel_ = nullptr;
  const char* name_ = "";  // static text
};

/// A loaded code object; movable. [load]
class DeviceModule {
 public:
  DeviceModule() = default;
  DeviceModule(const turbo_device& device, const turbo_code_object* objects, uint32_t n_objects) : device_(&device) {
    detail::on_device("kernels", [&](turbo_error* error) { return device.module_load(device.ctx, objects, n_objects, &module_, error); });
  }
  DeviceModule(DeviceModule&& other) noexcept : device_(other.device_), module_(std::exchange(other.module_, nullptr)) {}
  DeviceModule& operator=(DeviceModule&& other) noexcept {
    if (this != &other) {
      unload();
      device_ = other.device_;
      module_ = std::exchange(other.module_, nullptr);
    }
    return *this;
  }
  ~DeviceModule() { unload(); }
  explicit operator bool() const { return module_ != nullptr; }

  /// `name` is static text.
  template <typename Args>
  DeviceKernel<Args> kernel(const char* name) const {
    detail::check(module_ != nullptr, "kernel of a module that is not loaded");
    turbo_kernel* kernel = nullptr;
    detail::on_device(name, [&](turbo_error* error) { return device_->kernel(device_->ctx, module_, name, &kernel, error); });
    return {*device_, kernel, name};
  }

 private:
  void unload() noexcept {
    if (module_) device_->module_unload(device_->ctx, std::exchange(module_, nullptr));
  }
  const turbo_device* device_ = nullptr;
  turbo_module* module_ = nullptr;
};

/// Memory of the device that is given back when this goes; movable. [load]
template <typename T>
class DeviceArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  DeviceArray() = default;
  /// `memory`: TURBO_MEMORY_DEVICE or TURBO_MEMORY_PINNED. Contents are undefined.
  DeviceArray(const turbo_device& device, uint32_t memory, uint64_t n, const char* tag) : device_(&device), n_(n) {
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(n, sizeof(T), &bytes)) throw Failure(TURBO_RESOURCE_EXHAUSTED, "device memory: the size does not fit");
    turbo_error error{};
    error.struct_size = sizeof error;
    pointer_ = static_cast<T*>(device.allocate(device.ctx, memory, bytes, tag, &error));
    if (!pointer_) throw Failure(error.code != TURBO_OK ? error.code : TURBO_RESOURCE_EXHAUSTED, error.message, error.hint);
  }
  DeviceArray(DeviceArray&& other) noexcept { swap(other); }
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    DeviceArray old(std::move(*this));
    swap(other);
    return *this;
  }
  ~DeviceArray() {
    if (pointer_) device_->release(device_->ctx, pointer_);
  }
  T* get() const { return pointer_; }
  uint64_t size() const { return n_; }
  uint64_t bytes() const { return n_ * sizeof(T); }

 private:
  void swap(DeviceArray& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(pointer_, other.pointer_);
    std::swap(n_, other.n_);
  }
  const turbo_device* device_ = nullptr;
  T* pointer_ = nullptr;
  uint64_t n_ = 0;
};

/// Mixin of formats, codecs and samplers of a device tier. T derives from it, publicly.
template <typename T>
class DeviceClient {
 public:
  virtual ~DeviceClient() = default;
  /// [load] Throwing Failure takes the component, and with it the tier, out of the choice; the message says why.
  virtual void attach(const turbo_device& device) = 0;
  /// [load] Give everything back that came from the device.
  virtual void detach() noexcept = 0;

  static const void* interface(std::string_view id) {
    static constexpr turbo_device_client table = {sizeof(turbo_device_client), 0, &c_attach, &c_detach};
    return id == TURBO_DEVICE_CLIENT_DRAFT ? &table : nullptr;
  }

 private:
  static turbo_status c_attach(void* self, const turbo_device* device, turbo_error* error) noexcept {
    return guarded(error, [&] {
      detail::check(self && device && TURBO_HAS(device, sync), "attach");
      T& client = *static_cast<T*>(self);
      try {
        client.attach(*device);
      } catch (...) {
        client.detach();  // what was loaded before the failure
        throw;
      }
    });
  }
  static void c_detach(void* self) noexcept {
    if (self) static_cast<T*>(self)->detach();
  }
};

}  // namespace turbo
