// Kernels of a plugin's own on the arch pack's device, over abi/draft/device.h (draft).
//
//   class Mine : public turbo::WeightFormat<Mine>, public turbo::DeviceClient<Mine> {
//     enum : uint32_t { scale, sum };  // in the order of the names below
//     void attach(const turbo_device& device) override {
//       kernels_.attach(&device, {{turbo_kernels_mine, turbo_n_kernels_mine, {"mine_scale", "mine_sum"}}});
//       table_ = kernels_.upload(table, n, "mine table");
//     }
//     void detach() noexcept override {
//       table_ = {};
//       kernels_.detach();
//     }
//     static const void* interface(std::string_view id) {
//       if (const void* table = turbo::DeviceClient<Mine>::interface(id)) return table;
//       return turbo::WeightFormat<Mine>::interface(id);
//     }
//     turbo::DeviceKernels kernels_;
//     turbo::DeviceArray<float> table_;
//   };
//   kernels_.launch(stream, scale, {blocks}, 256, ScaleArgs{...});
//
// turbo_kernels_<stem> are what turbo_hip_library generates for each kernel file. Weight formats take their tables from
// turbo/device_client.hpp, KV codecs from turbo/kernel/gpu/kv_device.hpp; both stand on what is here.
// Everything throws Failure with the device's own message. What a call needs of the device ends with detach.
#pragma once

#include <turbo/abi/draft/device.h>
#include <turbo/plugin.hpp>

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace turbo {

namespace detail {

/// Run a call of the device's table; a failure is thrown on, `what` (if any) before its message.
template <typename Call>
void on_device(const std::string& what, Call&& call) {
  turbo_error error{};
  error.struct_size = sizeof error;
  const turbo_status status = call(&error);
  if (status != TURBO_OK) throw Failure(status, (what.empty() ? "" : what + ": ") + (error.message[0] ? error.message : "failed"), error.hint);
}

}  // namespace detail

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

struct DeviceGrid {
  uint32_t x = 1, y = 1, z = 1;  // blocks
};

/// Code objects of one kernel file, as turbo_hip_library generates them, and the kernels that are wanted of it.
struct KernelFile {
  const turbo_code_object* objects;
  uint32_t n;
  std::vector<std::string> kernels;
};

/// The kernels of a library on a device: attached, or empty. Kernels have numbers, through all files in the order of their
/// names. Calls are [load]; launch, copy and fill enqueue and are [engine].
class DeviceKernels {
 public:
  DeviceKernels() = default;
  DeviceKernels(const DeviceKernels&) = delete;
  DeviceKernels& operator=(const DeviceKernels&) = delete;
  ~DeviceKernels() { detach(); }

  /// Throws Failure with the device's reason; nothing stays loaded then.
  void attach(const turbo_device* device, const std::vector<KernelFile>& files) {
    detach();
    detail::check(device && TURBO_HAS(device, sync), "attach");
    device_ = device;
    try {
      for (const KernelFile& file : files) {
        turbo_module* module = nullptr;
        detail::on_device("", [&](turbo_error* error) { return device->module_load(device->ctx, file.objects, file.n, &module, error); });
        modules_.push_back(module);
        for (const std::string& name : file.kernels) {
          turbo_kernel* kernel = nullptr;
          detail::on_device("", [&](turbo_error* error) { return device->kernel(device->ctx, module, name.c_str(), &kernel, error); });
          kernels_.push_back(kernel);
        }
      }
    } catch (...) {
      detach();
      throw;
    }
  }
  void detach() noexcept {
    for (turbo_module* module : modules_) device_->module_unload(device_->ctx, module);
    modules_.clear();
    kernels_.clear();
    device_ = nullptr;
  }

  /// Null when not attached.
  const turbo_device* device() const { return device_; }

  /// Enqueue. `threads` of a block, a multiple of 32; `args` is read during the call; a grid of none enqueues nothing.
  /// `resident`: all blocks must run at once. The kernel is one of TB_KERNEL or TB_KERNEL_EARLY: it waits by itself.
  template <typename Args>
  void launch(turbo_stream* stream, uint32_t kernel, const DeviceGrid& grid, uint32_t threads, const Args& args, uint32_t shared_bytes = 0,
              bool resident = false) const {
    static_assert(std::is_trivially_copyable_v<Args> && std::is_standard_layout_v<Args>, "arguments are a plain struct");
    static_assert(sizeof(Args) <= 4000, "arguments have at most 4,000 bytes");
    turbo_launch launch{};
    launch.struct_size = sizeof launch;
    launch.grid_x = grid.x;
    launch.grid_y = grid.y;
    launch.grid_z = grid.z;
    launch.threads = threads;
    launch.shared_bytes = shared_bytes;
    launch.arguments = &args;
    launch.argument_bytes = sizeof args;
    launch.resident = resident ? 1 : 0;
    launch.waits = resident ? 0 : 1;
    detail::on_device("", [&](turbo_error* error) { return attached(kernel).launch(device_->ctx, stream, kernels_[kernel], &launch, error); });
  }
  template <typename Args>
  void launch(turbo_stream* stream, uint32_t kernel, uint32_t grid_x, uint32_t grid_y, uint32_t threads, uint32_t shared_bytes, const Args& args) const {
    launch(stream, kernel, {grid_x, grid_y, 1}, threads, args, shared_bytes);
  }
  /// Blocks that the whole device holds at once.
  uint32_t resident_blocks(uint32_t kernel, uint32_t threads, uint32_t shared_bytes = 0) const {
    uint32_t blocks = 0;
    detail::on_device("", [&](turbo_error* error) { return attached(kernel).resident_blocks(device_->ctx, kernels_[kernel], threads, shared_bytes, &blocks, error); });
    return blocks;
  }

  /// Enqueue; host memory is pinned and stays until the stream has passed the copy. Nothing of no bytes.
  void copy(turbo_stream* stream, void* to, const void* from, uint64_t bytes, uint32_t direction) const {
    if (bytes > 0) detail::on_device("", [&](turbo_error* error) { return attached().copy(device_->ctx, stream, to, from, bytes, direction, error); });
  }
  void fill(turbo_stream* stream, void* to, uint32_t byte, uint64_t bytes) const {
    if (bytes > 0) detail::on_device("", [&](turbo_error* error) { return attached().fill(device_->ctx, stream, to, byte, bytes, error); });
  }
  /// Wait for all of the stream.
  void sync(turbo_stream* stream) const {
    detail::on_device("", [&](turbo_error* error) { return attached().sync(device_->ctx, stream, error); });
  }

  /// Memory of the device with these values; waits.
  template <typename T>
  DeviceArray<T> upload(const T* values, uint64_t n, const char* tag) const {
    DeviceArray<T> there(attached(), TURBO_MEMORY_DEVICE, n, tag), staged(attached(), TURBO_MEMORY_PINNED, n, tag);
    std::memcpy(staged.get(), values, staged.bytes());
    copy(device_->stream, there.get(), staged.get(), staged.bytes(), TURBO_COPY_TO_DEVICE);
    sync(device_->stream);
    return there;
  }

 private:
  const turbo_device& attached() const {
    if (!device_) throw Failure(TURBO_INTERNAL, "a library is used before it is attached to a device");
    return *device_;
  }
  const turbo_device& attached(uint32_t kernel) const {
    if (kernel >= kernels_.size()) throw Failure(TURBO_INTERNAL, "a kernel is launched before its library is attached to a device");
    return *device_;
  }

  const turbo_device* device_ = nullptr;
  std::vector<turbo_module*> modules_;
  std::vector<turbo_kernel*> kernels_;
};

/// Mixin of formats, codecs and samplers of a device tier. T derives from it, publicly.
template <typename T>
class DeviceClient {
 public:
  virtual ~DeviceClient() = default;
  /// [load] Throwing Failure takes the component, and with it the tier, out of the choice; the message says why.
  virtual void attach(const turbo_device& device) = 0;
  /// [load] Give everything back that came from the device. May come when nothing is attached.
  virtual void detach() noexcept = 0;

  static const void* interface(std::string_view id) {
    static constexpr turbo_device_client table = {sizeof(turbo_device_client), 0, &c_attach, &c_detach};
    return id == TURBO_DEVICE_CLIENT_DRAFT ? &table : nullptr;
  }

 private:
  static turbo_status c_attach(void* self, const turbo_device* device, turbo_error* error) noexcept {
    return guarded(error, [&] {
      detail::check(self && device && TURBO_HAS(device, sync), "attach");
      DeviceClient& client = *static_cast<T*>(self);
      try {
        client.attach(*device);
      } catch (...) {
        client.detach();  // what was loaded before the failure
        throw;
      }
    });
  }
  static void c_detach(void* self) noexcept {
    if (self) static_cast<DeviceClient&>(*static_cast<T*>(self)).detach();
  }
};

}  // namespace turbo
