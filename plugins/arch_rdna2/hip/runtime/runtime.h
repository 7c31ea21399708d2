// A GPU runtime behind one small class: HIP, the CUDA driver, or kernels run as fibers on the CPU. Each is opened by
// name at run time, so that the library loads where none is installed.
//
// Every call is checked; a failure is thrown as turbo::Failure "call: what it was for: the runtime's error name and text".
// Once a device is lost every further call answers TURBO_DEVICE_LOST, apart from those that give something back.
// One thread at a time uses a Runtime; which one may change from call to call.
//
// TURBO_HIP_SYNC=1 in the environment waits after each launch and each graph, so that a fault names its kernel.
#pragma once

#include <turbo/abi/draft/device.h>
#include <turbo/plugin.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// What backends derive theirs from; the opaque types of the ABI as one Runtime hands them out.
struct turbo_stream {
  bool busy = false;               // was given something since it was last waited for
  bool whole = false;              // the kernel it was given last shall end before another is started
};
struct turbo_module {};
struct turbo_kernel {
  std::string name;
  uint32_t max_threads = 1024;     // of a block
  uint32_t shared_bytes = 0;       // static
  uint32_t argument_bytes = 0;     // of the struct; 0: the runtime does not say
};

namespace turbo::hip {

struct DeviceFacts {
  uint32_t index = 0;
  std::string name;                // "AMD Radeon RX 6700 XT"
  std::string isa;                 // "gfx1031", "sm_90", "fiber"
  std::string pci;                 // "0000:03:00.0"; empty: none
  uint64_t memory_total = 0;       // bytes
  uint64_t memory_free = 0;        // bytes; 0 before open
  uint32_t compute_units = 0;
  uint32_t max_shared_bytes = 0;   // of a block, static and dynamic
  uint32_t wave = 32;
  bool integrated = false;         // shares the host's memory
  bool cooperative = false;        // the runtime can hold all blocks of a launch at once
};

/// A launch as it was given, and a copy of its arguments.
struct Enqueued {
  turbo_kernel* kernel;
  turbo_launch launch;  // its pointer to arguments means nothing
  std::vector<uint8_t> arguments;
};

class Runtime {
 public:
  struct Event {};
  struct Graph {};  // executable

  virtual ~Runtime() = default;

  virtual const char* platform() const = 0;       // "HIP", "CUDA", "fiber"
  virtual std::string versions() const = 0;       // "HIP runtime 5.2.21153 (libamdhip64.so.5), driver 5.2.21153"
  virtual uint32_t device_count() = 0;
  virtual DeviceFacts facts(uint32_t index) = 0;  // of any device, opened or not
  /// Once; everything below needs it.
  virtual void open(uint32_t index) = 0;
  virtual uint64_t memory_free() = 0;

  /// TURBO_MEMORY_DEVICE (256-byte aligned) or TURBO_MEMORY_PINNED (coherent, at one address for host and device).
  virtual void* allocate(uint32_t memory, uint64_t bytes) = 0;
  virtual void release(uint32_t memory, void* pointer) noexcept = 0;

  virtual turbo_stream* create_stream() = 0;
  virtual void destroy_stream(turbo_stream* stream) noexcept = 0;
  virtual void copy(turbo_stream* stream, void* dst, const void* src, uint64_t bytes, uint32_t direction) = 0;
  virtual void fill(turbo_stream* stream, void* dst, uint8_t byte, uint64_t bytes) = 0;
  virtual void sync(turbo_stream* stream) = 0;   // costs nothing when nothing was enqueued since the last one

  /// A code object of exactly one instruction set; fails when the device does not take it.
  virtual turbo_module* load(const turbo_code_object& object) = 0;
  virtual void unload(turbo_module* module) noexcept = 0;
  virtual turbo_kernel* kernel(turbo_module* module, const char* name) = 0;  // lives as long as the module
  virtual uint32_t resident_blocks(turbo_kernel* kernel, uint32_t threads, uint32_t shared_bytes) = 0;
  void launch(turbo_stream* stream, turbo_kernel* kernel, const turbo_launch& launch);

  virtual Event* create_event(bool timing) = 0;
  virtual void destroy_event(Event* event) noexcept = 0;
  virtual void record(Event* event, turbo_stream* stream) = 0;
  virtual void wait(turbo_stream* stream, Event* event) = 0;  // the stream waits, not the caller
  virtual bool done(Event* event) = 0;
  virtual void sync(Event* event) = 0;
  virtual float elapsed_ms(Event* begin, Event* end) = 0;

  /// Launches from here on are checked and put into the list instead. Whoever enqueues anything else meanwhile must refuse_to_list.
  void begin_list(std::vector<Enqueued>& list) {
    list_ = &list;
    unlisted_ = false;
  }
  /// False: something was asked for that is no launch, so the list is not all of it.
  bool end_list() noexcept {
    list_ = nullptr;
    return !unlisted_;
  }
  /// Throws while launches are being listed.
  void refuse_to_list(const char* what);

  /// What the stream is given from here on is recorded, not run. Then no allocation, no wait, no load. One at a time.
  void begin_capture(turbo_stream* stream);
  Graph* end_capture();
  /// End a capture whose recording failed; nothing is kept.
  void drop_capture() noexcept;
  bool capturing() const { return capturing_ != nullptr; }
  void launch_graph(turbo_stream* stream, Graph* graph);
  virtual uint32_t graph_nodes(Graph* graph) const = 0;
  virtual void destroy_graph(Graph* graph) noexcept = 0;

  bool lost() const { return !lost_.empty(); }

 protected:
  Runtime();
  /// Throws unless `code` (as HIP and CUDA number their errors) is 0.
  void check(int code, const char* call, const std::string& about = {});
  [[noreturn]] void fail(turbo_status status, const std::string& message, const std::string& hint = {});
  void alive() const;

  virtual std::string error_text(int code) const = 0;  // "hipErrorOutOfMemory (out of memory)"
  virtual void do_launch(turbo_stream* stream, turbo_kernel* kernel, const turbo_launch& launch) = 0;
  virtual void do_begin_capture(turbo_stream* stream) = 0;
  virtual Graph* do_end_capture(turbo_stream* stream) = 0;
  virtual void do_launch_graph(turbo_stream* stream, Graph* graph) = 0;

  DeviceFacts device_;  // once opened

 private:
  std::string lost_;  // what was seen first
  turbo_stream* capturing_ = nullptr;
  std::vector<Enqueued>* list_ = nullptr;
  bool unlisted_ = false;
  bool sync_each_;
};

/// Each throws TURBO_UNSUPPORTED, saying "library missing", "version" or "no device", when there is nothing to use.
std::unique_ptr<Runtime> make_amd_runtime();
std::unique_ptr<Runtime> make_cuda_runtime();
std::unique_ptr<Runtime> make_fiber_runtime();

/// The one of the platform that this library was built for.
std::unique_ptr<Runtime> make_runtime();

}  // namespace turbo::hip
