// The runtime of the fiber platform: kernels run in this process when they are launched. For tests, so it is stricter than
// a GPU: memory starts as 0xff bytes (floats are NaN) and ends in canaries that are looked at on release and by
// check_fiber_memory(), copies must lie inside one allocation and host memory of a copy must be pinned, and while a graph
// is recorded nothing else is allowed.
//
// TURBO_FIBER_DEVICES=n        devices of the machine (1), of falling memory size
// TURBO_FIBER_WAVE=n           lanes of a wave that devices tell of (32); kernels run with 32 whatever it says
// TURBO_FIBER_DEFER=1          work runs when its stream is waited for, as late as a GPU may
// TURBO_FIBER_FAIL=what:n,...  fault injection: the n-th launch (from 1; each kernel of a graph counts) fails ("launch:n")
//                              or loses the device ("lost:n"); the n-th allocation fails ("alloc:n"); "init:1": no runtime
#if defined(TURBO_HIP_PLATFORM_FIBER)
#include "runtime_fiber.h"

#include <turbo/kernel/gpu/fiber.hpp>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#endif

namespace turbo::hip {
namespace {

using Clock = std::chrono::steady_clock;
namespace fiber = gpu::fiber;

constexpr uint64_t kCanaryBytes = 256, kAlignment = 256;
constexpr uint8_t kCanary = 0xc7;
constexpr uint32_t kComputeUnits = 4, kMaxSharedBytes = 64 * 1024;

struct Block {
  uint8_t* base;
  uint64_t bytes;
  uint32_t memory;
};

// Blocks of all runtimes of the process, for check_fiber_memory().
struct Blocks {
  std::mutex mutex;
  std::map<uint8_t*, Block> by_address;
};
Blocks& blocks() {
  static Blocks all;
  return all;
}

uint64_t rounded(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

__attribute__((no_sanitize("address"))) bool intact(const uint8_t* begin, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; ++i)
    if (begin[i] != kCanary) return false;
  return true;
}

// The canary behind a block begins right after its last byte, not at the next multiple of the alignment.
std::string damage(uint8_t* pointer, const Block& block) {
  const bool before = intact(block.base, kCanaryBytes);
  const bool behind = intact(pointer + block.bytes, block.base + kCanaryBytes + rounded(block.bytes) + kCanaryBytes - (pointer + block.bytes));
  if (before && behind) return {};
  return std::string("memory was written ") + (before ? "behind" : "before") + " a block of " + std::to_string(block.bytes) + " bytes of " +
         (block.memory == TURBO_MEMORY_DEVICE ? "device" : "pinned") + " memory";
}

struct Counters {
  uint64_t launch = 0, lost = 0, alloc = 0, init = 0;  // which one fails; 0: none
  Counters() {
    const char* text = std::getenv("TURBO_FIBER_FAIL");
    for (std::string_view rest = text ? text : ""; !rest.empty();) {
      const std::string part(rest.substr(0, rest.find(',')));
      rest.remove_prefix(std::min(rest.size(), part.size() + 1));
      const size_t colon = part.find(':');
      if (colon == std::string::npos) continue;
      const std::string what = part.substr(0, colon);
      uint64_t* const counter = what == "launch" ? &launch : what == "lost" ? &lost : what == "alloc" ? &alloc : what == "init" ? &init : nullptr;
      if (counter) *counter = std::strtoull(part.c_str() + colon + 1, nullptr, 10);
    }
  }
};

using Work = std::function<void()>;

struct Stream : turbo_stream {
  std::vector<Work> queue;  // deferred
};
struct FiberKernel : turbo_kernel {
  const fiber::Kernel* kernel = nullptr;
};
struct Module : turbo_module {
  const fiber::Kernel* first = nullptr;
  std::map<std::string, FiberKernel> kernels;
};
struct FiberEvent : Runtime::Event {
  Stream* stream = nullptr;  // where its record waits to be run
  Clock::time_point time{};
};
struct FiberGraph : Runtime::Graph {
  std::vector<Work> work;
};

class FiberRuntime final : public Runtime {
 public:
  FiberRuntime() {
    if (fail_.init != 0) throw Failure(TURBO_UNSUPPORTED, "fiber runtime: no device");
    const char* devices = std::getenv("TURBO_FIBER_DEVICES");
    n_devices_ = devices ? static_cast<uint32_t>(std::strtoul(devices, nullptr, 10)) : 1;
    const char* defer = std::getenv("TURBO_FIBER_DEFER");
    defer_ = defer && std::string_view(defer) == "1";
    if (n_devices_ == 0) throw Failure(TURBO_UNSUPPORTED, "fiber runtime: no device");
  }

  const char* platform() const override { return "fiber"; }
  std::string versions() const override { return "fiber runtime 1"; }
  uint32_t device_count() override { return n_devices_; }

  DeviceFacts facts(uint32_t index) override {
    if (index >= n_devices_) fail(TURBO_NOT_FOUND, "fiber runtime: device " + std::to_string(index) + ": there are " + std::to_string(n_devices_));
    DeviceFacts facts;
    facts.index = index;
    facts.name = "fiber device " + std::to_string(index);
    facts.isa = "fiber";
    facts.memory_total = (uint64_t{4} << 30) - (uint64_t{index} << 28);
    facts.memory_free = facts.memory_total;
    facts.compute_units = kComputeUnits;
    facts.max_shared_bytes = kMaxSharedBytes;
    if (const char* wave = std::getenv("TURBO_FIBER_WAVE")) facts.wave = static_cast<uint32_t>(std::strtoul(wave, nullptr, 10));
    facts.integrated = true;
    facts.cooperative = true;
    return facts;
  }
  void open(uint32_t index) override { device_ = facts(index); }
  uint64_t memory_free() override { return device_.memory_total - std::min(device_.memory_total, used_); }

  void* allocate(uint32_t memory, uint64_t bytes) override {
    alive();
    refuse_in_capture("allocate");
    if (bytes == 0 || bytes > memory_free() || ++n_allocations_ == fail_.alloc)
      check(2, "allocate", std::to_string(bytes) + " bytes");
    const uint64_t whole = 2 * kCanaryBytes + rounded(bytes);
    auto* const base = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, whole));
    if (!base) check(2, "allocate", std::to_string(bytes) + " bytes");
    uint8_t* const pointer = base + kCanaryBytes;
    std::memset(base, kCanary, whole);
    std::memset(pointer, 0xff, bytes);
    ASAN_POISON_MEMORY_REGION(base, kCanaryBytes);
    ASAN_POISON_MEMORY_REGION(pointer + bytes, whole - kCanaryBytes - bytes);
    const std::lock_guard lock(blocks().mutex);
    blocks().by_address[pointer] = {base, bytes, memory};
    used_ += bytes;
    return pointer;
  }

  void release(uint32_t memory, void* pointer) noexcept override {
    // A GPU's runtime waits for the device before it takes memory back.
    for (Stream* stream : streams_) run_quietly(*stream);
    const std::lock_guard lock(blocks().mutex);
    const auto found = blocks().by_address.find(static_cast<uint8_t*>(pointer));
    if (found == blocks().by_address.end() || found->second.memory != memory) return fiber_memory_damaged("release of memory that is not allocated");
    const std::string damaged = damage(found->first, found->second);
    const Block block = found->second;
    blocks().by_address.erase(found);
    used_ -= block.bytes;
    ASAN_UNPOISON_MEMORY_REGION(block.base, 2 * kCanaryBytes + rounded(block.bytes));
    std::free(block.base);
    if (!damaged.empty()) fiber_memory_damaged(damaged);
  }

  turbo_stream* create_stream() override {
    alive();
    streams_.push_back(new Stream);
    return streams_.back();
  }
  void destroy_stream(turbo_stream* stream) noexcept override {
    run_quietly(*static_cast<Stream*>(stream));
    std::erase(streams_, static_cast<Stream*>(stream));
    delete static_cast<Stream*>(stream);
  }

  void copy(turbo_stream* stream, void* dst, const void* src, uint64_t bytes, uint32_t direction) override {
    alive();
    if (bytes == 0) return;
    inside(dst, bytes, direction == TURBO_COPY_TO_HOST ? TURBO_MEMORY_PINNED : TURBO_MEMORY_DEVICE, "copy: destination");
    inside(src, bytes, direction == TURBO_COPY_TO_DEVICE ? TURBO_MEMORY_PINNED : TURBO_MEMORY_DEVICE, "copy: source");
    enqueue(stream, [=] { std::memmove(dst, src, bytes); });
  }
  void fill(turbo_stream* stream, void* dst, uint8_t byte, uint64_t bytes) override {
    alive();
    if (bytes == 0) return;
    inside(dst, bytes, TURBO_MEMORY_DEVICE, "fill");
    enqueue(stream, [=] { std::memset(dst, byte, bytes); });
  }
  void sync(turbo_stream* stream) override {
    alive();
    refuse_in_capture("sync");
    if (!stream->busy) return;
    run(*static_cast<Stream*>(stream));
    stream->busy = false;
  }

  turbo_module* load(const turbo_code_object& object) override {
    alive();
    refuse_in_capture("load");
    if (!object.isa || std::string_view(object.isa) != "fiber" || !object.data) check(209, "load", object.isa ? object.isa : "");
    auto module = std::make_unique<Module>();
    module->first = *static_cast<const fiber::Kernel* const*>(object.data);
    return module.release();
  }
  void unload(turbo_module* module) noexcept override {
    for (Stream* stream : streams_) run_quietly(*stream);
    delete static_cast<Module*>(module);
  }
  turbo_kernel* kernel(turbo_module* module, const char* name) override {
    Module& of = *static_cast<Module*>(module);
    const fiber::Kernel* found = fiber::Kernel::find(of.first, name);
    if (!found) check(500, "kernel", name);
    FiberKernel& kernel = of.kernels[name];
    kernel.name = name;
    kernel.max_threads = found->max_threads;
    kernel.argument_bytes = found->argument_bytes;
    kernel.kernel = found;
    return &kernel;
  }
  uint32_t resident_blocks(turbo_kernel* /*kernel*/, uint32_t /*threads*/, uint32_t shared_bytes) override {
    return kComputeUnits * (shared_bytes > kMaxSharedBytes ? 0 : shared_bytes > kMaxSharedBytes / 2 ? 1 : 2);
  }

  Event* create_event(bool /*timing*/) override { return new FiberEvent; }
  void destroy_event(Event* event) noexcept override {
    auto* const e = static_cast<FiberEvent*>(event);
    if (e->stream) run_quietly(*e->stream);
    delete e;
  }
  void record(Event* event, turbo_stream* stream) override {
    alive();
    refuse_in_capture("event");
    auto* const e = static_cast<FiberEvent*>(event);
    e->stream = static_cast<Stream*>(stream);
    enqueue(stream, [e] {
      e->time = Clock::now();
      e->stream = nullptr;
    });
  }
  void wait(turbo_stream* stream, Event* event) override {
    alive();
    refuse_in_capture("event");
    auto* const e = static_cast<FiberEvent*>(event);
    enqueue(stream, [this, e, stream] {
      if (e->stream && e->stream != stream) run(*e->stream);
    });
  }
  bool done(Event* event) override { return !static_cast<FiberEvent*>(event)->stream; }
  void sync(Event* event) override {
    alive();
    if (auto* const e = static_cast<FiberEvent*>(event); e->stream) run(*e->stream);
  }
  float elapsed_ms(Event* begin, Event* end) override {
    return std::chrono::duration<float, std::milli>(static_cast<FiberEvent*>(end)->time - static_cast<FiberEvent*>(begin)->time).count();
  }

  uint32_t graph_nodes(Graph* graph) const override { return static_cast<uint32_t>(static_cast<FiberGraph*>(graph)->work.size()); }
  void destroy_graph(Graph* graph) noexcept override { delete static_cast<FiberGraph*>(graph); }

 protected:
  std::string error_text(int code) const override {
    switch (code) {
      case 2: return "out of memory";
      case 209: return "no code object for this device";
      case 500: return "not found";
      case 719: return "launch failure";
      default: return "error " + std::to_string(code);
    }
  }

  void do_launch(turbo_stream* stream, turbo_kernel* kernel, const turbo_launch& launch) override {
    const fiber::Kernel* const found = static_cast<FiberKernel*>(kernel)->kernel;
    // Arguments are read during the call; a struct may be aligned to 16 bytes.
    std::shared_ptr<void> arguments(std::aligned_alloc(64, (launch.argument_bytes + 63u) / 64 * 64), std::free);
    if (!arguments) throw std::bad_alloc();
    std::memcpy(arguments.get(), launch.arguments, launch.argument_bytes);
    enqueue(stream, [this, found, arguments, launch] { run_kernel(*found, launch, arguments.get()); });
  }
  void do_begin_capture(turbo_stream* stream) override {
    recording_ = std::make_unique<FiberGraph>();
    recorded_ = stream;
  }
  Graph* do_end_capture(turbo_stream* /*stream*/) override {
    recorded_ = nullptr;
    return recording_.release();
  }
  void do_launch_graph(turbo_stream* stream, Graph* graph) override {
    for (const Work& work : static_cast<FiberGraph*>(graph)->work) enqueue(stream, work);
  }

 private:
  void refuse_in_capture(const char* call) {
    if (capturing()) fail(TURBO_INVALID_ARGUMENT, std::string(call) + ": not while a graph is recorded");
  }

  // The whole range lies in one block; memory of the device may be pinned too, which it reads and writes as well.
  void inside(const void* begin, uint64_t bytes, uint32_t memory, const char* what) {
    const std::lock_guard lock(blocks().mutex);
    auto* const at = static_cast<uint8_t*>(const_cast<void*>(begin));
    auto found = blocks().by_address.upper_bound(at);
    const bool known = found != blocks().by_address.begin() && (--found, bytes <= found->second.bytes) &&
                       static_cast<uint64_t>(at - found->first) <= found->second.bytes - bytes;
    if (!known || (memory == TURBO_MEMORY_PINNED && found->second.memory != TURBO_MEMORY_PINNED))
      fail(TURBO_INVALID_ARGUMENT, std::string(what) + ": " + std::to_string(bytes) + " bytes that are not inside one block of " +
                                       (memory == TURBO_MEMORY_PINNED ? "pinned" : "device") + " memory");
  }

  void enqueue(turbo_stream* stream, Work work) {
    stream->busy = true;
    if (recording_) {
      if (stream != recorded_) fail(TURBO_INVALID_ARGUMENT, "capture: work for another stream");
      recording_->work.push_back(std::move(work));
    } else if (defer_) {
      static_cast<Stream*>(stream)->queue.push_back(std::move(work));
    } else {
      work();
    }
  }
  void run(Stream& stream) {
    std::vector<Work> queue = std::move(stream.queue);
    stream.queue.clear();
    for (const Work& work : queue) {
      alive();
      work();
    }
  }
  void run_quietly(Stream& stream) noexcept {
    try {
      run(stream);
    } catch (const std::exception&) {
      // Whoever waits for this work next is told; there is none left.
    }
  }

  void run_kernel(const fiber::Kernel& kernel, const turbo_launch& launch, const void* arguments) {
    ++n_launches_;
    const std::string what = std::string("kernel ") + kernel.name;
    if (n_launches_ == fail_.launch) fail(TURBO_INTERNAL, "launch: " + what + ": injected failure");
    if (n_launches_ == fail_.lost) check(719, "launch", what);
    const uint32_t grid[3] = {launch.grid_x, launch.grid_y, launch.grid_z};
    try {
      kernel.launch(kernel, grid, launch.threads, launch.shared_bytes, arguments, launch.resident != 0);
    } catch (const std::exception& exception) {
      fail(TURBO_INTERNAL, "launch: " + what + ": " + exception.what());
    }
  }

  Counters fail_;
  uint32_t n_devices_ = 1;
  bool defer_ = false;
  uint64_t used_ = 0, n_launches_ = 0, n_allocations_ = 0;
  std::vector<Stream*> streams_;
  std::unique_ptr<FiberGraph> recording_;
  turbo_stream* recorded_ = nullptr;
};

std::string& last_damage() {
  static std::string text;
  return text;
}

}  // namespace

void fiber_memory_damaged(const std::string& what) {
  if (last_damage().empty()) last_damage() = what;
  std::fprintf(stderr, "fiber runtime: %s\n", what.c_str());
}

std::string check_fiber_memory() {
  const std::lock_guard lock(blocks().mutex);
  std::string found = std::exchange(last_damage(), "");
  for (auto& [pointer, block] : blocks().by_address)
    if (found.empty()) found = damage(pointer, block);
  return found;
}

uint64_t fiber_memory_in_use() {
  const std::lock_guard lock(blocks().mutex);
  uint64_t bytes = 0;
  for (auto& [pointer, block] : blocks().by_address) bytes += block.bytes;
  return bytes;
}

std::unique_ptr<Runtime> make_fiber_runtime() { return std::make_unique<FiberRuntime>(); }

}  // namespace turbo::hip
#endif  // TURBO_HIP_PLATFORM_FIBER
