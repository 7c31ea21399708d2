// A turbo_device over fibers that is as unforgiving as it can be: work is done at sync alone, device memory cannot be
// touched by the host and ends at a page that nobody may touch, contents start as a pattern. Counts what was asked for,
// and fails on demand. One thread.
#pragma once

#include <turbo/abi/draft/device.h>
#include <turbo/kernel/gpu/device.hpp>

#include <sys/mman.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <vector>

namespace turbo {

class FiberDevice {
 public:
  struct Counts {
    uint32_t launches = 0, copies = 0, fills = 0, syncs = 0, allocations = 0;
    uint64_t copied_bytes = 0;
  };
  Counts counts;
  int fail_in = -1;            // this many launches go well, then one does not
  uint64_t memory_limit = ~uint64_t{0};  // bytes at most, all together

  FiberDevice() {
    api_ = {};
    api_.struct_size = sizeof api_;
    api_.ctx = this;
    api_.isa = "fiber";
    api_.compute_units = 4;
    api_.max_shared_bytes = 65536;
    api_.stream = reinterpret_cast<turbo_stream*>(this);
    api_.module_load = [](void*, const turbo_code_object* objects, uint32_t n, turbo_module** module, turbo_error* error) -> turbo_status {
      for (uint32_t i = 0; i < n; ++i)
        if (std::strcmp(objects[i].isa, "fiber") == 0) {
          *module = reinterpret_cast<turbo_module*>(const_cast<void*>(objects[i].data));
          return TURBO_OK;
        }
      return told(error, TURBO_UNSUPPORTED, "no object for fibers");
    };
    api_.module_unload = [](void*, turbo_module*) {};
    api_.kernel = [](void*, turbo_module* module, const char* name, turbo_kernel** kernel, turbo_error* error) -> turbo_status {
      const auto* found = gpu::fiber::Kernel::find(*reinterpret_cast<const gpu::fiber::Kernel* const*>(module), name);
      *kernel = reinterpret_cast<turbo_kernel*>(const_cast<gpu::fiber::Kernel*>(found));
      return found ? TURBO_OK : told(error, TURBO_NOT_FOUND, name);
    };
    api_.launch = [](void* ctx, turbo_stream*, turbo_kernel* kernel, const turbo_launch* launch, turbo_error* error) -> turbo_status {
      FiberDevice& d = of(ctx);
      if (d.fail_in == 0) {
        d.fail_in = -1;
        return told(error, TURBO_DEVICE_LOST, "the launch failed");
      }
      if (d.fail_in > 0) --d.fail_in;
      const auto& k = *reinterpret_cast<const gpu::fiber::Kernel*>(kernel);
      if (launch->argument_bytes != k.argument_bytes) return told(error, TURBO_INVALID_ARGUMENT, k.name);
      if (launch->grid_x == 0 || launch->grid_y == 0 || launch->grid_z == 0) return told(error, TURBO_INVALID_ARGUMENT, "no blocks");
      ++d.counts.launches;
      const auto* bytes = static_cast<const char*>(launch->arguments);
      d.queue_.push_back([copy = *launch, arguments = std::vector<char>(bytes, bytes + launch->argument_bytes), &k] {
        gpu::fiber::run(k, {copy.grid_x, copy.grid_y, copy.grid_z}, copy.threads, copy.shared_bytes, arguments.data(), copy.resident != 0);
      });
      return TURBO_OK;
    };
    api_.allocate = [](void* ctx, uint32_t memory, uint64_t bytes, const char*, turbo_error* error) -> void* {
      return of(ctx).allocate(memory, bytes, error);
    };
    api_.release = [](void* ctx, void* pointer) { of(ctx).release(pointer); };
    api_.copy = [](void* ctx, turbo_stream*, void* dst, const void* src, uint64_t bytes, uint32_t direction, turbo_error* error) -> turbo_status {
      FiberDevice& d = of(ctx);
      const uint32_t to = direction == TURBO_COPY_TO_HOST ? TURBO_MEMORY_PINNED : TURBO_MEMORY_DEVICE;
      const uint32_t from = direction == TURBO_COPY_TO_DEVICE ? TURBO_MEMORY_PINNED : TURBO_MEMORY_DEVICE;
      if (!d.holds(dst, bytes, to) || !d.holds(src, bytes, from)) return told(error, TURBO_INVALID_ARGUMENT, "a copy outside its memory");
      ++d.counts.copies;
      d.counts.copied_bytes += bytes;
      d.queue_.push_back([=] { std::memcpy(dst, src, bytes); });
      return TURBO_OK;
    };
    api_.fill = [](void* ctx, turbo_stream*, void* dst, uint32_t byte, uint64_t bytes, turbo_error* error) -> turbo_status {
      FiberDevice& d = of(ctx);
      if (!d.holds(dst, bytes, TURBO_MEMORY_DEVICE)) return told(error, TURBO_INVALID_ARGUMENT, "a fill outside its memory");
      ++d.counts.fills;
      d.queue_.push_back([=] { std::memset(dst, static_cast<int>(byte), bytes); });
      return TURBO_OK;
    };
    api_.sync = [](void* ctx, turbo_stream*, turbo_error* error) -> turbo_status {
      FiberDevice& d = of(ctx);
      ++d.counts.syncs;
      try {
        d.drain();
      } catch (const std::exception& e) {
        return told(error, TURBO_DEVICE_LOST, e.what());
      }
      return TURBO_OK;
    };
  }
  ~FiberDevice() {
    while (!blocks_.empty()) release(blocks_.begin()->first);
  }
  FiberDevice(const FiberDevice&) = delete;
  FiberDevice& operator=(const FiberDevice&) = delete;

  const turbo_device* api() const { return &api_; }
  size_t n_blocks() const { return blocks_.size(); }
  uint64_t bytes() const { return bytes_; }

  /// Device memory that a test fills and reads.
  template <typename T>
  T* upload(const std::vector<T>& values) {
    T* const to = static_cast<T*>(allocate(TURBO_MEMORY_DEVICE, std::max<size_t>(1, values.size()) * sizeof(T), nullptr));
    opened([&] { std::copy(values.begin(), values.end(), to); });
    return to;
  }
  template <typename T>
  std::vector<T> download(const T* from, size_t n) {
    drain();
    std::vector<T> values(n);
    opened([&] { std::copy(from, from + n, values.begin()); });
    return values;
  }
  void release(void* pointer) {
    const auto block = blocks_.find(static_cast<char*>(pointer));
    if (block == blocks_.end()) std::abort();
    drain();  // as freeing waits on a device
    munmap(block->second.pages, block->second.page_bytes + kPage);
    bytes_ -= block->second.bytes;
    blocks_.erase(block);
  }

 private:
  static constexpr uint64_t kPage = 4096;
  struct Block {
    uint64_t bytes;
    uint32_t memory;
    char* pages;
    uint64_t page_bytes;
  };
  static FiberDevice& of(void* ctx) { return *static_cast<FiberDevice*>(ctx); }
  static turbo_status told(turbo_error* error, turbo_status code, const char* what) {
    if (error) {
      error->code = code;
      std::snprintf(error->message, sizeof error->message, "fibers: %s", what);
    }
    return code;
  }
  void* allocate(uint32_t memory, uint64_t bytes, turbo_error* error) {
    bytes = (bytes + 255) / 256 * 256;
    if (bytes_ + bytes > memory_limit) {
      told(error, TURBO_RESOURCE_EXHAUSTED, "no memory");
      return nullptr;
    }
    const uint64_t page_bytes = (bytes + kPage - 1) / kPage * kPage;
    auto* const pages = static_cast<char*>(mmap(nullptr, page_bytes + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (pages == MAP_FAILED) return nullptr;
    std::memset(pages, 0xa5, page_bytes);
    mprotect(pages + page_bytes, kPage, PROT_NONE);
    if (memory == TURBO_MEMORY_DEVICE) mprotect(pages, page_bytes, PROT_NONE);
    char* const data = pages + page_bytes - bytes;
    blocks_[data] = {bytes, memory, pages, page_bytes};
    bytes_ += bytes;
    ++counts.allocations;
    return data;
  }
  bool holds(const void* pointer, uint64_t bytes, uint32_t memory) const {
    const char* const at = static_cast<const char*>(pointer);
    auto block = blocks_.upper_bound(const_cast<char*>(at));
    if (block == blocks_.begin()) return false;
    --block;
    return block->second.memory == memory && at + bytes <= block->first + block->second.bytes;
  }
  template <typename Body>
  void opened(Body&& body) {
    const auto protect = [&](int how) {
      for (const auto& [data, block] : blocks_)
        if (block.memory == TURBO_MEMORY_DEVICE) mprotect(block.pages, block.page_bytes, how);
    };
    protect(PROT_READ | PROT_WRITE);
    try {
      body();
    } catch (...) {
      protect(PROT_NONE);
      throw;
    }
    protect(PROT_NONE);
  }
  void drain() {
    std::vector<std::function<void()>> work;
    work.swap(queue_);
    if (work.empty()) return;
    opened([&] {
      for (const auto& step : work) step();
    });
  }

  turbo_device api_;
  std::map<char*, Block> blocks_;
  uint64_t bytes_ = 0;
  std::vector<std::function<void()>> queue_;
};

}  // namespace turbo
