// The HIP runtime of AMD's driver stack, versions 5 to 7, by name.
#if defined(TURBO_HIP_PLATFORM_AMD)
#include "runtime_amd.h"

#include <unistd.h>

#include "api_amd.h"
#include "by_name.h"
#include "isa.h"

namespace turbo::hip {
namespace {

using namespace amd;

constexpr const char* kLibraries[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"};
constexpr const char* kInstall = "install ROCm's HIP runtime (5.2 to 7) to use an AMD GPU";

Api resolve(NamedLibrary& library) {
  Api api{};
  library.core(api.init, "hipInit");
  library.core(api.device_count, "hipGetDeviceCount");
  library.core(api.set_device, "hipSetDevice");
  library.core(api.device_name, "hipDeviceGetName");
  library.core(api.device_attribute, "hipDeviceGetAttribute");
  library.core(api.device_total, "hipDeviceTotalMem");
  library.core(api.device_pci, "hipDeviceGetPCIBusId");
  library.core(api.properties, "hipGetDeviceProperties");
  library.optional(api.properties_r0600, "hipGetDevicePropertiesR0600");
  library.core(api.runtime_version, "hipRuntimeGetVersion");
  library.core(api.driver_version, "hipDriverGetVersion");
  library.core(api.error_name, "hipGetErrorName");
  library.core(api.error_string, "hipGetErrorString");
  library.core(api.memory_info, "hipMemGetInfo");
  library.core(api.malloc, "hipMalloc");
  library.core(api.free, "hipFree");
  library.core(api.host_malloc, "hipHostMalloc");
  library.core(api.host_free, "hipHostFree");
  library.core(api.host_device_pointer, "hipHostGetDevicePointer");
  library.core(api.memcpy_async, "hipMemcpyAsync");
  library.core(api.memset_async, "hipMemsetAsync");
  library.core(api.stream_create, "hipStreamCreateWithFlags");
  library.core(api.stream_destroy, "hipStreamDestroy");
  library.core(api.stream_sync, "hipStreamSynchronize");
  library.core(api.stream_wait, "hipStreamWaitEvent");
  library.core(api.event_create, "hipEventCreateWithFlags");
  library.core(api.event_destroy, "hipEventDestroy");
  library.core(api.event_record, "hipEventRecord");
  library.core(api.event_query, "hipEventQuery");
  library.core(api.event_sync, "hipEventSynchronize");
  library.core(api.event_elapsed, "hipEventElapsedTime");
  library.core(api.module_load, "hipModuleLoadData");
  library.core(api.module_unload, "hipModuleUnload");
  library.core(api.module_function, "hipModuleGetFunction");
  library.core(api.function_attribute, "hipFuncGetAttribute");
  library.core(api.launch, "hipModuleLaunchKernel");
  library.optional(api.launch_cooperative, "hipModuleLaunchCooperativeKernel");
  library.core(api.occupancy, "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor");
  library.core(api.begin_capture, "hipStreamBeginCapture");
  library.core(api.end_capture, "hipStreamEndCapture");
  library.core(api.graph_instantiate, "hipGraphInstantiate");
  library.core(api.graph_launch, "hipGraphLaunch");
  library.core(api.graph_destroy, "hipGraphDestroy");
  library.core(api.graph_exec_destroy, "hipGraphExecDestroy");
  library.core(api.graph_nodes, "hipGraphGetNodes");
  library.check_core(kInstall);
  return api;
}

// 50221153 -> "5.2.21153"
std::string version_text(int version) {
  return std::to_string(version / 10000000) + "." + std::to_string(version / 100000 % 100) + "." + std::to_string(version % 100000);
}

// Why a runtime that is there finds nothing: its kernel driver, most of the time.
std::string driver_state() {
  if (access("/dev/kfd", F_OK) != 0) return "; /dev/kfd is not there: the amdgpu kernel driver is not loaded, or not given to this container";
  if (access("/dev/kfd", R_OK | W_OK) != 0) return "; this user may not open /dev/kfd: add the user to the groups render and video";
  return "";
}

class AmdRuntime final : public Runtime {
 public:
  explicit AmdRuntime(std::span<const char* const> libraries) : library_("HIP runtime", libraries, kInstall), api_(resolve(library_)) {
    const int begun = api_.init(0);
    int runtime = 0, driver = 0;
    if (api_.runtime_version(&runtime) == 0) versions_ = "HIP runtime " + version_text(runtime) + " (" + library_.name() + ")";
    else versions_ = library_.name();
    if (api_.driver_version(&driver) == 0 && driver != runtime) versions_ += ", driver " + version_text(driver);
    int count = 0;
    const int counted = begun == 0 ? api_.device_count(&count) : begun;
    if (counted != 0 || count <= 0)
      throw Failure(TURBO_UNSUPPORTED, "HIP runtime: no device: " + versions_ + ": " +
                                           (counted != 0 ? error_text(counted) : std::string("it counts 0 devices")) + driver_state(),
                    "check HIP_VISIBLE_DEVICES and the amdgpu driver, or use another tier");
    count_ = static_cast<uint32_t>(count);
  }

  const char* platform() const override { return "HIP"; }
  std::string versions() const override { return versions_; }
  uint32_t device_count() override { return count_; }

  DeviceFacts facts(uint32_t index) override {
    if (index >= count_) fail(TURBO_NOT_FOUND, "HIP runtime: device " + std::to_string(index) + ": there are " + std::to_string(count_));
    const int device = static_cast<int>(index);
    DeviceFacts facts;
    facts.index = index;
    char text[256] = {};
    check(api_.device_name(text, sizeof text - 1, device), "hipDeviceGetName");
    facts.name = text;
    std::fill(std::begin(text), std::end(text), '\0');
    if (api_.device_pci(text, sizeof text - 1, device) == 0) facts.pci = text;
    facts.isa = arch_name(device);
    size_t total = 0;
    check(api_.device_total(&total, device), "hipDeviceTotalMem");
    facts.memory_total = total;
    facts.compute_units = attribute(kMultiprocessorCount, device);
    facts.max_shared_bytes = attribute(kMaxSharedMemoryPerBlock, device);
    facts.wave = attribute(kWarpSize, device);
    facts.integrated = attribute(kIntegrated, device) != 0;
    facts.cooperative = api_.launch_cooperative && attribute(kCooperativeLaunch, device) != 0;
    return facts;
  }

  void open(uint32_t index) override {
    DeviceFacts facts = this->facts(index);
    check(api_.set_device(static_cast<int>(index)), "hipSetDevice");
    device_ = std::move(facts);
    device_.memory_free = memory_free();
  }
  uint64_t memory_free() override {
    bind();
    size_t free = 0, total = 0;
    check(api_.memory_info(&free, &total), "hipMemGetInfo");
    return free;
  }

  void* allocate(uint32_t memory, uint64_t bytes) override {
    bind();
    void* pointer = nullptr;
    const std::string about = std::to_string(bytes) + " bytes";
    if (memory == TURBO_MEMORY_DEVICE) {
      check(api_.malloc(&pointer, bytes), "hipMalloc", about);
      return pointer;
    }
    check(api_.host_malloc(&pointer, bytes, kHostPortable | kHostMapped | kHostCoherent), "hipHostMalloc", about);
    void* device = nullptr;
    const int code = api_.host_device_pointer(&device, pointer, 0);
    if (code == 0 && device == pointer) return pointer;
    (void)api_.host_free(pointer);
    check(code, "hipHostGetDevicePointer", about);
    fail(TURBO_UNSUPPORTED, "hipHostMalloc: the device sees pinned memory at another address than the host");
  }
  void release(uint32_t memory, void* pointer) noexcept override {
    if (!bind_quietly()) return;
    (void)(memory == TURBO_MEMORY_DEVICE ? api_.free(pointer) : api_.host_free(pointer));
  }

  turbo_stream* create_stream() override {
    bind();
    auto stream = std::make_unique<NamedStream>();
    check(api_.stream_create(&stream->handle, kStreamNonBlocking), "hipStreamCreateWithFlags");
    return stream.release();
  }
  void destroy_stream(turbo_stream* stream) noexcept override {
    if (bind_quietly()) {
      (void)api_.stream_sync(handle_of(stream));
      (void)api_.stream_destroy(handle_of(stream));
    }
    delete static_cast<NamedStream*>(stream);
  }
  void copy(turbo_stream* stream, void* dst, const void* src, uint64_t bytes, uint32_t direction) override {
    bind();
    stream->busy = true;
    constexpr int kinds[] = {kHostToDevice, kDeviceToHost, kDeviceToDevice};
    check(api_.memcpy_async(dst, src, bytes, kinds[direction], handle_of(stream)), "hipMemcpyAsync", std::to_string(bytes) + " bytes");
  }
  void fill(turbo_stream* stream, void* dst, uint8_t byte, uint64_t bytes) override {
    bind();
    stream->busy = true;
    check(api_.memset_async(dst, byte, bytes, handle_of(stream)), "hipMemsetAsync", std::to_string(bytes) + " bytes");
  }
  void sync(turbo_stream* stream) override {
    bind();
    if (!stream->busy) return;
    check(api_.stream_sync(handle_of(stream)), "hipStreamSynchronize");
    stream->busy = false;
  }

  turbo_module* load(const turbo_code_object& object) override {
    bind();
    if (!is_elf(object)) fail(TURBO_CORRUPT_INPUT, "hipModuleLoadData: not a code object");
    auto module = std::make_unique<NamedModule>();
    check(api_.module_load(&module->handle, object.data), "hipModuleLoadData");
    return module.release();
  }
  void unload(turbo_module* module) noexcept override {
    if (bind_quietly()) (void)api_.module_unload(handle_of(module));
    delete static_cast<NamedModule*>(module);
  }
  turbo_kernel* kernel(turbo_module* module, const char* name) override {
    bind();
    void* function = nullptr;
    check(api_.module_function(&function, handle_of(module), name), "hipModuleGetFunction", name);
    NamedKernel& kernel = static_cast<NamedModule*>(module)->kernels[name];
    kernel.name = name;
    kernel.handle = function;
    int value = 0;
    if (api_.function_attribute(&value, kFunctionMaxThreads, function) == 0 && value > 0) kernel.max_threads = static_cast<uint32_t>(value);
    if (api_.function_attribute(&value, kFunctionSharedBytes, function) == 0 && value > 0) kernel.shared_bytes = static_cast<uint32_t>(value);
    return &kernel;
  }
  uint32_t resident_blocks(turbo_kernel* kernel, uint32_t threads, uint32_t shared_bytes) override {
    bind();
    int blocks = 0;
    check(api_.occupancy(&blocks, handle_of(kernel), static_cast<int>(threads), shared_bytes),
          "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor", kernel->name);
    if (blocks <= 0) return 0;
    // Without a cooperative launch the runtime promises nothing: one block for each compute unit is what always fits.
    return device_.compute_units * (device_.cooperative ? static_cast<uint32_t>(blocks) : 1);
  }

  Event* create_event(bool timing) override {
    bind();
    auto event = std::make_unique<NamedEvent>();
    check(api_.event_create(&event->handle, timing ? 0 : kEventDisableTiming), "hipEventCreateWithFlags");
    return event.release();
  }
  void destroy_event(Event* event) noexcept override {
    if (bind_quietly()) (void)api_.event_destroy(handle_of(event));
    delete static_cast<NamedEvent*>(event);
  }
  void record(Event* event, turbo_stream* stream) override {
    bind();
    check(api_.event_record(handle_of(event), handle_of(stream)), "hipEventRecord");
  }
  void wait(turbo_stream* stream, Event* event) override {
    bind();
    stream->busy = true;
    check(api_.stream_wait(handle_of(stream), handle_of(event), 0), "hipStreamWaitEvent");
  }
  bool done(Event* event) override {
    bind();
    const int code = api_.event_query(handle_of(event));
    if (code != kErrorNotReady) check(code, "hipEventQuery");
    return code == 0;
  }
  void sync(Event* event) override {
    bind();
    check(api_.event_sync(handle_of(event)), "hipEventSynchronize");
  }
  float elapsed_ms(Event* begin, Event* end) override {
    bind();
    float ms = 0;
    check(api_.event_elapsed(&ms, handle_of(begin), handle_of(end)), "hipEventElapsedTime");
    return ms;
  }

  uint32_t graph_nodes(Graph* graph) const override { return static_cast<NamedGraph*>(graph)->nodes; }
  void destroy_graph(Graph* graph) noexcept override {
    auto* const named = static_cast<NamedGraph*>(graph);
    if (named->handle && bind_quietly()) (void)api_.graph_exec_destroy(named->handle);
    delete named;
  }

 protected:
  std::string error_text(int code) const override {
    return error_line(code, api_.error_name(code), api_.error_string(code));
  }
  void do_launch(turbo_stream* stream, turbo_kernel* kernel, const turbo_launch& launch) override {
    bind();
    void* arguments[] = {const_cast<void*>(launch.arguments)};
    const bool together = launch.resident && device_.cooperative;
    const int code = together ? api_.launch_cooperative(handle_of(kernel), launch.grid_x, launch.grid_y, launch.grid_z, launch.threads, 1, 1,
                                                        launch.shared_bytes, handle_of(stream), arguments)
                              : api_.launch(handle_of(kernel), launch.grid_x, launch.grid_y, launch.grid_z, launch.threads, 1, 1,
                                            launch.shared_bytes, handle_of(stream), arguments, nullptr);
    check(code, together ? "hipModuleLaunchCooperativeKernel" : "hipModuleLaunchKernel", "kernel " + kernel->name);
  }
  void do_begin_capture(turbo_stream* stream) override {
    bind();
    check(api_.begin_capture(handle_of(stream), kCaptureThreadLocal), "hipStreamBeginCapture");
  }
  Graph* do_end_capture(turbo_stream* stream) override {
    bind();
    void* graph = nullptr;
    check(api_.end_capture(handle_of(stream), &graph), "hipStreamEndCapture");
    auto named = std::make_unique<NamedGraph>();
    size_t nodes = 0;
    if (api_.graph_nodes(graph, nullptr, &nodes) == 0) named->nodes = static_cast<uint32_t>(nodes);
    const int code = api_.graph_instantiate(&named->handle, graph, nullptr, nullptr, 0);
    (void)api_.graph_destroy(graph);
    check(code, "hipGraphInstantiate", std::to_string(nodes) + " nodes");
    return named.release();
  }
  void do_launch_graph(turbo_stream* stream, Graph* graph) override {
    bind();
    check(api_.graph_launch(static_cast<NamedGraph*>(graph)->handle, handle_of(stream)), "hipGraphLaunch");
  }

 private:
  // The runtime's current device is a thread's own, and calls come from any thread.
  void bind() {
    alive();
    check(api_.set_device(static_cast<int>(device_.index)), "hipSetDevice");
  }
  // What a lost device held went with it.
  bool bind_quietly() noexcept { return !lost() && api_.set_device(static_cast<int>(device_.index)) == 0; }

  uint32_t attribute(int attribute, int device) {
    int value = 0;
    check(api_.device_attribute(&value, attribute, device), "hipDeviceGetAttribute", std::to_string(attribute));
    return value < 0 ? 0 : static_cast<uint32_t>(value);
  }
  std::string arch_name(int device) {
    alignas(64) char properties[kPropertiesBytes] = {};
    if (api_.properties_r0600) check(api_.properties_r0600(properties, device), "hipGetDevicePropertiesR0600");
    else check(api_.properties(properties, device), "hipGetDeviceProperties");
    const char* const name = properties + (api_.properties_r0600 ? kArchNameOffsetR0600 : kArchNameOffset);
    const std::string isa = plain_isa(std::string_view(name, strnlen(name, 256)));
    if (!isa.starts_with("gfx"))
      fail(TURBO_UNSUPPORTED, "HIP runtime: version: " + versions_ + " does not tell the device's architecture where it is expected");
    return isa;
  }

  NamedLibrary library_;
  Api api_;
  std::string versions_;
  uint32_t count_ = 0;
};

}  // namespace

std::unique_ptr<Runtime> make_amd_runtime(std::span<const char* const> libraries) { return std::make_unique<AmdRuntime>(libraries); }
std::unique_ptr<Runtime> make_amd_runtime() { return make_amd_runtime(kLibraries); }

}  // namespace turbo::hip
#endif  // TURBO_HIP_PLATFORM_AMD
