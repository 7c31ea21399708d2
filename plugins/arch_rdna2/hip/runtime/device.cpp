#include "device.h"

#include "isa.h"

namespace turbo::hip {
namespace {

constexpr uint32_t kMaxObjects = 256;

Device& of(void* ctx) {
  detail::check(ctx != nullptr, "device");
  return *static_cast<Device*>(ctx);
}

turbo_status module_load(void* ctx, const turbo_code_object* objects, uint32_t n, turbo_module** module, turbo_error* error) noexcept {
  return guarded(error, [&] {
    detail::check(module && (objects || n == 0), "module_load");
    *module = of(ctx).load(objects, n);
  });
}
void module_unload(void* ctx, turbo_module* module) noexcept {
  if (ctx && module) of(ctx).unload(module);
}
turbo_status kernel(void* ctx, turbo_module* module, const char* name, turbo_kernel** kernel, turbo_error* error) noexcept {
  return guarded(error, [&] {
    detail::check(module && name && kernel, "kernel");
    *kernel = of(ctx).runtime().kernel(module, name);
  });
}
turbo_status resident_blocks(void* ctx, turbo_kernel* kernel, uint32_t threads, uint32_t shared_bytes, uint32_t* blocks,
                             turbo_error* error) noexcept {
  return guarded(error, [&] {
    detail::check(kernel && blocks, "resident_blocks");
    detail::check(threads > 0 && threads % 32 == 0 && threads <= kernel->max_threads, "resident_blocks: threads of a block");
    *blocks = of(ctx).runtime().resident_blocks(kernel, threads, shared_bytes);
  });
}
turbo_status launch(void* ctx, turbo_stream* stream, turbo_kernel* kernel, const turbo_launch* launch, turbo_error* error) noexcept {
  return guarded(error, [&] {
    detail::check(stream && kernel && launch && TURBO_HAS(launch, resident), "launch");
    of(ctx).runtime().launch(stream, kernel, *launch);
  });
}
void* allocate(void* ctx, uint32_t memory, uint64_t bytes, const char* tag, turbo_error* error) noexcept {
  void* pointer = nullptr;
  guarded(error, [&] { pointer = of(ctx).allocate(memory, bytes, tag); });
  return pointer;
}
void release(void* ctx, void* pointer) noexcept {
  if (ctx && pointer) of(ctx).release(pointer);
}
turbo_status copy(void* ctx, turbo_stream* stream, void* dst, const void* src, uint64_t bytes, uint32_t direction, turbo_error* error) noexcept {
  return guarded(error, [&] {
    detail::check(stream && (bytes == 0 || (dst && src)) && direction <= TURBO_COPY_ON_DEVICE, "copy");
    of(ctx).runtime().refuse_to_list("copy");
    if (bytes > 0) of(ctx).runtime().copy(stream, dst, src, bytes, direction);
  });
}
turbo_status fill(void* ctx, turbo_stream* stream, void* dst, uint32_t byte, uint64_t bytes, turbo_error* error) noexcept {
  return guarded(error, [&] {
    detail::check(stream && (bytes == 0 || dst) && byte <= 255, "fill");
    of(ctx).runtime().refuse_to_list("fill");
    if (bytes > 0) of(ctx).runtime().fill(stream, dst, static_cast<uint8_t>(byte), bytes);
  });
}
turbo_status sync(void* ctx, turbo_stream* stream, turbo_error* error) noexcept {
  return guarded(error, [&] {
    detail::check(stream != nullptr, "sync");
    of(ctx).runtime().sync(stream);
  });
}

}  // namespace

Device::Device(const Host& host, std::unique_ptr<Runtime> runtime, const DeviceFacts& facts)
    : host_(host), runtime_(std::move(runtime)), facts_(facts) {
  if (const auto* alloc = host.service<turbo_host_alloc>(TURBO_HOST_ALLOC); alloc && TURBO_HAS(alloc, account) && alloc->account)
    account_ = alloc;
  table_ = {sizeof table_,   static_cast<int32_t>(facts.index), this,           facts_.isa.c_str(), facts.compute_units,
            facts.max_shared_bytes, runtime_->create_stream(),  &module_load,   &module_unload,     &kernel,
            &resident_blocks, &hip::launch,                     &hip::allocate, &hip::release,      &copy,
            &fill,            &sync};
}

Device::~Device() {
  // The runtime waits for its own work when it takes a stream down; modules and memory may be in use until then.
  runtime_->drop_capture();
  runtime_->destroy_stream(table_.stream);
  for (turbo_module* module : modules_) runtime_->unload(module);
  for (const auto& [pointer, allocation] : allocations_) {
    host_.log(TURBO_LOG_WARN, "device memory: " + std::to_string(allocation.bytes) + " bytes of '" + allocation.tag + "' were not released");
    account(allocation, false);
    runtime_->release(allocation.memory, pointer);
  }
}

// The first that the runtime takes: an object of the family runs on its other members only where the runtime allows it.
turbo_module* Device::load(const turbo_code_object* objects, uint32_t n) {
  detail::check(n <= kMaxObjects && (n == 0 || TURBO_HAS(objects, bytes)), "module_load: code objects");
  std::string refusals;
  for (const uint32_t place : candidate_objects(facts_.isa, objects, n)) {
    const turbo_code_object& object = detail::element(objects, place);
    detail::check(object.data && object.bytes > 0, "module_load: empty code object");
    try {
      turbo_module* const module = runtime_->load(object);
      try {
        modules_.insert(module);
      } catch (...) {
        runtime_->unload(module);
        throw;
      }
      return module;
    } catch (const Failure& failure) {
      const bool refused = failure.code == TURBO_UNSUPPORTED || failure.code == TURBO_INTERNAL || failure.code == TURBO_CORRUPT_INPUT;
      if (!refused) throw;
      refusals += "; " + std::string(object.isa) + ": " + failure.message;
    }
  }
  throw Failure(TURBO_UNSUPPORTED, "no code object for " + facts_.isa + ": there are " + isa_list(objects, n) + refusals,
                "build turbo for " + facts_.isa + " as well");
}

void Device::unload(turbo_module* module) noexcept {
  if (modules_.erase(module) > 0) runtime_->unload(module);
}

void* Device::allocate(uint32_t memory, uint64_t bytes, const char* tag) {
  detail::check(memory == TURBO_MEMORY_DEVICE || memory == TURBO_MEMORY_PINNED, "allocate: device or pinned memory is expected");
  detail::check(bytes > 0, "allocate: no bytes");
  Allocation allocation{memory, bytes, std::string(tag && *tag ? tag : "other", tag && *tag ? strnlen(tag, 64) : 5)};
  void* pointer = nullptr;
  try {
    pointer = runtime_->allocate(memory, bytes);
  } catch (const Failure& failure) {
    if (failure.code != TURBO_RESOURCE_EXHAUSTED) throw;
    uint64_t free = 0;
    guarded(nullptr, [&] { free = runtime_->memory_free(); });
    throw Failure(failure.code, "'" + allocation.tag + "': " + failure.message + "; " + std::to_string(free >> 20) + " of " +
                                    std::to_string(facts_.memory_total >> 20) + " MiB of the device are free", failure.hint);
  }
  try {
    allocations_.emplace(pointer, allocation);
  } catch (...) {
    runtime_->release(memory, pointer);
    throw;
  }
  account(allocation, true);
  return pointer;
}

void Device::release(void* pointer) noexcept {
  const auto found = allocations_.find(pointer);
  if (found == allocations_.end()) {
    guarded(nullptr, [&] { host_.log(TURBO_LOG_ERROR, "device memory: release of an address that is not allocated"); });
    return;
  }
  const uint32_t memory = found->second.memory;
  account(found->second, false);
  allocations_.erase(found);
  runtime_->release(memory, pointer);
}

void Device::account(const Allocation& allocation, bool added) const noexcept {
  const auto bytes = static_cast<int64_t>(allocation.bytes);
  if (account_) account_->account(account_->ctx, allocation.memory, allocation.tag.c_str(), added ? bytes : -bytes);
}

std::map<std::string, uint64_t> Device::bytes_by_tag() const {
  std::map<std::string, uint64_t> bytes;
  for (const auto& [pointer, allocation] : allocations_) bytes[allocation.tag] += allocation.bytes;
  return bytes;
}

uint64_t Device::bytes(uint32_t memory) const {
  uint64_t bytes = 0;
  for (const auto& [pointer, allocation] : allocations_)
    if (allocation.memory == memory) bytes += allocation.bytes;
  return bytes;
}

}  // namespace turbo::hip
