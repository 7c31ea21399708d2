// The CUDA driver by name: the hip tier's kernels built for NVIDIA, so that the whole tier runs on hardware at hand.
#if defined(TURBO_HIP_PLATFORM_NVIDIA)
#include "runtime_cuda.h"

#include "api_cuda.h"
#include "by_name.h"

namespace turbo::hip {
namespace {

using namespace cuda;

constexpr const char* kLibraries[] = {"libcuda.so.1"};
constexpr const char* kInstall = "install NVIDIA's driver (11 or later) to use an NVIDIA GPU";

Api resolve(NamedLibrary& library) {
  Api api{};
  library.core(api.init, "cuInit");
  library.core(api.driver_version, "cuDriverGetVersion");
  library.core(api.device_count, "cuDeviceGetCount");
  library.core(api.device, "cuDeviceGet");
  library.core(api.device_name, "cuDeviceGetName");
  library.core(api.device_attribute, "cuDeviceGetAttribute");
  library.core(api.device_total, "cuDeviceTotalMem_v2");
  library.core(api.device_pci, "cuDeviceGetPCIBusId");
  library.core(api.context_retain, "cuDevicePrimaryCtxRetain");
  library.core(api.context_release, "cuDevicePrimaryCtxRelease_v2");
  library.core(api.context_set, "cuCtxSetCurrent");
  library.core(api.error_name, "cuGetErrorName");
  library.core(api.error_string, "cuGetErrorString");
  library.core(api.memory_info, "cuMemGetInfo_v2");
  library.core(api.malloc, "cuMemAlloc_v2");
  library.core(api.free, "cuMemFree_v2");
  library.core(api.host_malloc, "cuMemHostAlloc");
  library.core(api.host_free, "cuMemFreeHost");
  library.core(api.host_device_pointer, "cuMemHostGetDevicePointer_v2");
  library.core(api.to_device, "cuMemcpyHtoDAsync_v2");
  library.core(api.to_host, "cuMemcpyDtoHAsync_v2");
  library.core(api.on_device, "cuMemcpyDtoDAsync_v2");
  library.core(api.memset_async, "cuMemsetD8Async");
  library.core(api.stream_create, "cuStreamCreate");
  library.core(api.stream_destroy, "cuStreamDestroy_v2");
  library.core(api.stream_sync, "cuStreamSynchronize");
  library.core(api.stream_wait, "cuStreamWaitEvent");
  library.core(api.event_create, "cuEventCreate");
  library.core(api.event_destroy, "cuEventDestroy_v2");
  library.core(api.event_record, "cuEventRecord");
  library.core(api.event_query, "cuEventQuery");
  library.core(api.event_sync, "cuEventSynchronize");
  library.core(api.event_elapsed, "cuEventElapsedTime");
  library.core(api.module_load, "cuModuleLoadData");
  library.core(api.module_unload, "cuModuleUnload");
  library.core(api.module_function, "cuModuleGetFunction");
  library.core(api.function_attribute, "cuFuncGetAttribute");
  library.core(api.set_function_attribute, "cuFuncSetAttribute");
  library.optional(api.parameter_info, "cuFuncGetParamInfo");
  library.core(api.launch, "cuLaunchKernel");
  library.optional(api.launch_with, "cuLaunchKernelEx");
  library.core(api.launch_cooperative, "cuLaunchCooperativeKernel");
  library.core(api.occupancy, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  library.core(api.begin_capture, "cuStreamBeginCapture_v2");
  library.core(api.end_capture, "cuStreamEndCapture");
  library.optional(api.graph_instantiate, "cuGraphInstantiateWithFlags");
  if (!api.graph_instantiate) library.core(api.graph_instantiate_v2, "cuGraphInstantiate_v2");
  library.core(api.graph_launch, "cuGraphLaunch");
  library.core(api.graph_destroy, "cuGraphDestroy");
  library.core(api.graph_exec_destroy, "cuGraphExecDestroy");
  library.core(api.graph_nodes, "cuGraphGetNodes");
  library.check_core(kInstall);
  return api;
}

DevicePointer address(const void* pointer) { return reinterpret_cast<DevicePointer>(pointer); }

class CudaRuntime final : public Runtime {
 public:
  explicit CudaRuntime(std::span<const char* const> libraries) : library_("CUDA driver", libraries, kInstall), api_(resolve(library_)) {
    const int begun = api_.init(0);
    int version = 0;
    versions_ = "CUDA driver";
    if (api_.driver_version(&version) == 0) versions_ += " " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
    versions_ += " (" + library_.name() + ")";
    int count = 0;
    const int counted = begun == 0 ? api_.device_count(&count) : begun;
    if (counted != 0 || count <= 0)
      throw Failure(TURBO_UNSUPPORTED,
                    "CUDA driver: no device: " + versions_ + ": " + (counted != 0 ? error_text(counted) : std::string("it counts 0 devices")),
                    "check CUDA_VISIBLE_DEVICES and the kernel driver, or use another tier");
    count_ = static_cast<uint32_t>(count);
  }
  ~CudaRuntime() override {
    if (context_ && !lost()) (void)api_.context_release(handle_);
  }

  const char* platform() const override { return "CUDA"; }
  std::string versions() const override { return versions_; }
  uint32_t device_count() override { return count_; }

  DeviceFacts facts(uint32_t index) override {
    if (index >= count_) fail(TURBO_NOT_FOUND, "CUDA driver: device " + std::to_string(index) + ": there are " + std::to_string(count_));
    int device = 0;
    check(api_.device(&device, static_cast<int>(index)), "cuDeviceGet");
    DeviceFacts facts;
    facts.index = index;
    char text[256] = {};
    check(api_.device_name(text, sizeof text - 1, device), "cuDeviceGetName");
    facts.name = text;
    std::fill(std::begin(text), std::end(text), '\0');
    if (api_.device_pci(text, sizeof text - 1, device) == 0) facts.pci = text;
    facts.isa = "sm_" + std::to_string(attribute(kComputeMajor, device) * 10 + attribute(kComputeMinor, device));
    size_t total = 0;
    check(api_.device_total(&total, device), "cuDeviceTotalMem");
    facts.memory_total = total;
    facts.compute_units = attribute(kMultiprocessorCount, device);
    facts.max_shared_bytes = std::max(attribute(kMaxSharedMemoryPerBlock, device), attribute(kMaxSharedMemoryOptin, device));
    facts.wave = attribute(kWarpSize, device);
    facts.integrated = attribute(kIntegrated, device) != 0;
    facts.cooperative = attribute(kCooperativeLaunch, device) != 0;
    return facts;
  }

  void open(uint32_t index) override {
    DeviceFacts facts = this->facts(index);
    check(api_.device(&handle_, static_cast<int>(index)), "cuDeviceGet");
    check(api_.context_retain(&context_, handle_), "cuDevicePrimaryCtxRetain", facts.name);
    device_ = std::move(facts);
    device_.memory_free = memory_free();
    // Programmatic dependent launch, also in graphs: Hopper, driver 12.3.
    int version = 0;
    early_ = api_.launch_with && attribute(kComputeMajor, handle_) >= 9 && api_.driver_version(&version) == 0 && version >= 12030;
  }
  uint64_t memory_free() override {
    bind();
    size_t free = 0, total = 0;
    check(api_.memory_info(&free, &total), "cuMemGetInfo");
    return free;
  }

  void* allocate(uint32_t memory, uint64_t bytes) override {
    bind();
    const std::string about = std::to_string(bytes) + " bytes";
    DevicePointer device = 0;
    if (memory == TURBO_MEMORY_DEVICE) {
      check(api_.malloc(&device, bytes), "cuMemAlloc", about);
      return reinterpret_cast<void*>(device);
    }
    void* pointer = nullptr;
    check(api_.host_malloc(&pointer, bytes, kHostPortable | kHostMapped), "cuMemHostAlloc", about);
    const int code = api_.host_device_pointer(&device, pointer, 0);
    if (code == 0 && device == address(pointer)) return pointer;
    (void)api_.host_free(pointer);
    check(code, "cuMemHostGetDevicePointer", about);
    fail(TURBO_UNSUPPORTED, "cuMemHostAlloc: the device sees pinned memory at another address than the host");
  }
  void release(uint32_t memory, void* pointer) noexcept override {
    if (!bind_quietly()) return;
    (void)(memory == TURBO_MEMORY_DEVICE ? api_.free(address(pointer)) : api_.host_free(pointer));
  }

  turbo_stream* create_stream() override {
    bind();
    auto stream = std::make_unique<NamedStream>();
    check(api_.stream_create(&stream->handle, kStreamNonBlocking), "cuStreamCreate");
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
    const std::string about = std::to_string(bytes) + " bytes";
    void* const on = handle_of(stream);
    if (direction == TURBO_COPY_TO_DEVICE) check(api_.to_device(address(dst), src, bytes, on), "cuMemcpyHtoDAsync", about);
    else if (direction == TURBO_COPY_TO_HOST) check(api_.to_host(dst, address(src), bytes, on), "cuMemcpyDtoHAsync", about);
    else check(api_.on_device(address(dst), address(src), bytes, on), "cuMemcpyDtoDAsync", about);
  }
  void fill(turbo_stream* stream, void* dst, uint8_t byte, uint64_t bytes) override {
    bind();
    stream->busy = true;
    check(api_.memset_async(address(dst), byte, bytes, handle_of(stream)), "cuMemsetD8Async", std::to_string(bytes) + " bytes");
  }
  void sync(turbo_stream* stream) override {
    bind();
    if (!stream->busy) return;
    check(api_.stream_sync(handle_of(stream)), "cuStreamSynchronize");
    stream->busy = false;
  }

  turbo_module* load(const turbo_code_object& object) override {
    bind();
    if (!is_elf(object)) fail(TURBO_CORRUPT_INPUT, "cuModuleLoadData: not a cubin");
    auto module = std::make_unique<NamedModule>();
    check(api_.module_load(&module->handle, object.data), "cuModuleLoadData");
    return module.release();
  }
  void unload(turbo_module* module) noexcept override {
    if (bind_quietly()) (void)api_.module_unload(handle_of(module));
    delete static_cast<NamedModule*>(module);
  }
  turbo_kernel* kernel(turbo_module* module, const char* name) override {
    bind();
    void* function = nullptr;
    check(api_.module_function(&function, handle_of(module), name), "cuModuleGetFunction", name);
    NamedKernel& kernel = static_cast<NamedModule*>(module)->kernels[name];
    kernel.name = name;
    kernel.handle = function;
    int value = 0;
    if (api_.function_attribute(&value, kFunctionMaxThreads, function) == 0 && value > 0) kernel.max_threads = static_cast<uint32_t>(value);
    if (api_.function_attribute(&value, kFunctionSharedBytes, function) == 0 && value > 0) kernel.shared_bytes = static_cast<uint32_t>(value);
    size_t offset = 0, bytes = 0;
    if (api_.parameter_info && api_.parameter_info(function, 0, &offset, &bytes) == 0) kernel.argument_bytes = static_cast<uint32_t>(bytes);
    // More than 48 KiB a block must be asked for; less than the limit costs nothing.
    if (kernel.shared_bytes < device_.max_shared_bytes)
      check(api_.set_function_attribute(function, kFunctionMaxDynamicShared, static_cast<int>(device_.max_shared_bytes - kernel.shared_bytes)),
            "cuFuncSetAttribute", name);
    return &kernel;
  }
  uint32_t resident_blocks(turbo_kernel* kernel, uint32_t threads, uint32_t shared_bytes) override {
    bind();
    int blocks = 0;
    check(api_.occupancy(&blocks, handle_of(kernel), static_cast<int>(threads), shared_bytes),
          "cuOccupancyMaxActiveBlocksPerMultiprocessor", kernel->name);
    if (blocks <= 0) return 0;
    return device_.compute_units * (device_.cooperative ? static_cast<uint32_t>(blocks) : 1);
  }

  Event* create_event(bool timing) override {
    bind();
    auto event = std::make_unique<NamedEvent>();
    check(api_.event_create(&event->handle, timing ? 0 : kEventDisableTiming), "cuEventCreate");
    return event.release();
  }
  void destroy_event(Event* event) noexcept override {
    if (bind_quietly()) (void)api_.event_destroy(handle_of(event));
    delete static_cast<NamedEvent*>(event);
  }
  void record(Event* event, turbo_stream* stream) override {
    bind();
    check(api_.event_record(handle_of(event), handle_of(stream)), "cuEventRecord");
  }
  void wait(turbo_stream* stream, Event* event) override {
    bind();
    stream->busy = true;
    check(api_.stream_wait(handle_of(stream), handle_of(event), 0), "cuStreamWaitEvent");
  }
  bool done(Event* event) override {
    bind();
    const int code = api_.event_query(handle_of(event));
    if (code != kErrorNotReady) check(code, "cuEventQuery");
    return code == 0;
  }
  void sync(Event* event) override {
    bind();
    check(api_.event_sync(handle_of(event)), "cuEventSynchronize");
  }
  float elapsed_ms(Event* begin, Event* end) override {
    bind();
    float ms = 0;
    check(api_.event_elapsed(&ms, handle_of(begin), handle_of(end)), "cuEventElapsedTime");
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
    const char *name = nullptr, *text = nullptr;
    (void)api_.error_name(code, &name);
    (void)api_.error_string(code, &text);
    return error_line(code, name, text);
  }
  void do_launch(turbo_stream* stream, turbo_kernel* kernel, const turbo_launch& launch) override {
    bind();
    void* arguments[] = {const_cast<void*>(launch.arguments)};
    const bool early = launch.waits && early_ && !stream->whole;
    stream->whole = launch.whole != 0;
    if (early) {
      LaunchAttribute attribute{};
      attribute.id = kLaunchProgrammatic;
      attribute.value.allowed = 1;
      const LaunchConfig config{launch.grid_x, launch.grid_y, launch.grid_z, launch.threads, 1, 1, launch.shared_bytes, handle_of(stream), &attribute, 1};
      return check(api_.launch_with(&config, handle_of(kernel), arguments, nullptr), "cuLaunchKernelEx", "kernel " + kernel->name);
    }
    const bool together = launch.resident && device_.cooperative;
    const int code = together ? api_.launch_cooperative(handle_of(kernel), launch.grid_x, launch.grid_y, launch.grid_z, launch.threads, 1, 1,
                                                        launch.shared_bytes, handle_of(stream), arguments)
                              : api_.launch(handle_of(kernel), launch.grid_x, launch.grid_y, launch.grid_z, launch.threads, 1, 1,
                                            launch.shared_bytes, handle_of(stream), arguments, nullptr);
    check(code, together ? "cuLaunchCooperativeKernel" : "cuLaunchKernel", "kernel " + kernel->name);
  }
  void do_begin_capture(turbo_stream* stream) override {
    bind();
    check(api_.begin_capture(handle_of(stream), kCaptureThreadLocal), "cuStreamBeginCapture");
  }
  Graph* do_end_capture(turbo_stream* stream) override {
    bind();
    void* graph = nullptr;
    check(api_.end_capture(handle_of(stream), &graph), "cuStreamEndCapture");
    auto named = std::make_unique<NamedGraph>();
    size_t nodes = 0;
    if (api_.graph_nodes(graph, nullptr, &nodes) == 0) named->nodes = static_cast<uint32_t>(nodes);
    const int code = api_.graph_instantiate ? api_.graph_instantiate(&named->handle, graph, 0)
                                            : api_.graph_instantiate_v2(&named->handle, graph, nullptr, nullptr, 0);
    (void)api_.graph_destroy(graph);
    check(code, "cuGraphInstantiate", std::to_string(nodes) + " nodes");
    return named.release();
  }
  void do_launch_graph(turbo_stream* stream, Graph* graph) override {
    bind();
    check(api_.graph_launch(static_cast<NamedGraph*>(graph)->handle, handle_of(stream)), "cuGraphLaunch");
  }

 private:
  // The current context is a thread's own, and calls come from any thread.
  void bind() {
    alive();
    check(api_.context_set(context_), "cuCtxSetCurrent");
  }
  // What a lost device held went with its context.
  bool bind_quietly() noexcept { return !lost() && api_.context_set(context_) == 0; }

  uint32_t attribute(int attribute, int device) {
    int value = 0;
    check(api_.device_attribute(&value, attribute, device), "cuDeviceGetAttribute", std::to_string(attribute));
    return value < 0 ? 0 : static_cast<uint32_t>(value);
  }

  NamedLibrary library_;
  Api api_;
  std::string versions_;
  uint32_t count_ = 0;
  int handle_ = 0;
  void* context_ = nullptr;
  bool early_ = false;  // kernels may be started before those ahead of them have ended
};

}  // namespace

std::unique_ptr<Runtime> make_cuda_runtime(std::span<const char* const> libraries) { return std::make_unique<CudaRuntime>(libraries); }
std::unique_ptr<Runtime> make_cuda_runtime() { return make_cuda_runtime(kLibraries); }

}  // namespace turbo::hip
#endif  // TURBO_HIP_PLATFORM_NVIDIA
