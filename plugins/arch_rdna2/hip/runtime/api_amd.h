// What is used of the HIP runtime, declared here so that no vendor header is needed. Values and offsets are the same from
// ROCm 5 on; a test compares them with the vendor's header where there is one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace turbo::hip::amd {

constexpr int kErrorNotReady = 600;

// hipDeviceAttribute_t
constexpr int kCooperativeLaunch = 10, kIntegrated = 16, kMultiprocessorCount = 63, kMaxSharedMemoryPerBlock = 74, kWarpSize = 87;
// hipFunction_attribute
constexpr int kFunctionMaxThreads = 0, kFunctionSharedBytes = 1;
// hipMemcpyKind
constexpr int kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 3;

constexpr unsigned kHostPortable = 0x1, kHostMapped = 0x2, kHostCoherent = 0x40000000;
constexpr unsigned kStreamNonBlocking = 0x1, kEventDisableTiming = 0x2;
constexpr int kCaptureThreadLocal = 1;

// hipDeviceProp_t grew in ROCm 6, where hipGetDeviceProperties still fills the old one.
constexpr size_t kArchNameOffset = 396, kArchNameOffsetR0600 = 1160, kPropertiesBytes = 8192;

struct Api {
  int (*init)(unsigned flags);
  int (*device_count)(int* count);
  int (*set_device)(int device);
  int (*device_name)(char* name, int bytes, int device);
  int (*device_attribute)(int* value, int attribute, int device);
  int (*device_total)(size_t* bytes, int device);
  int (*device_pci)(char* id, int bytes, int device);
  int (*properties)(void* properties, int device);
  int (*properties_r0600)(void* properties, int device);  // optional
  int (*runtime_version)(int* version);
  int (*driver_version)(int* version);
  const char* (*error_name)(int code);
  const char* (*error_string)(int code);
  int (*memory_info)(size_t* free, size_t* total);
  int (*malloc)(void** pointer, size_t bytes);
  int (*free)(void* pointer);
  int (*host_malloc)(void** pointer, size_t bytes, unsigned flags);
  int (*host_free)(void* pointer);
  int (*host_device_pointer)(void** device, void* host, unsigned flags);
  int (*memcpy_async)(void* dst, const void* src, size_t bytes, int kind, void* stream);
  int (*memset_async)(void* dst, int byte, size_t bytes, void* stream);
  int (*stream_create)(void** stream, unsigned flags);
  int (*stream_destroy)(void* stream);
  int (*stream_sync)(void* stream);
  int (*stream_wait)(void* stream, void* event, unsigned flags);
  int (*event_create)(void** event, unsigned flags);
  int (*event_destroy)(void* event);
  int (*event_record)(void* event, void* stream);
  int (*event_query)(void* event);
  int (*event_sync)(void* event);
  int (*event_elapsed)(float* ms, void* begin, void* end);
  int (*module_load)(void** module, const void* image);
  int (*module_unload)(void* module);
  int (*module_function)(void** function, void* module, const char* name);
  int (*function_attribute)(int* value, int attribute, void* function);
  int (*launch)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                unsigned shared_bytes, void* stream, void** arguments, void** extra);
  int (*launch_cooperative)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                            unsigned block_z, unsigned shared_bytes, void* stream, void** arguments);  // optional
  int (*occupancy)(int* blocks, void* function, int threads, size_t shared_bytes);
  int (*begin_capture)(void* stream, int mode);
  int (*end_capture)(void* stream, void** graph);
  int (*graph_instantiate)(void** executable, void* graph, void** error_node, char* log, size_t log_bytes);
  int (*graph_launch)(void* executable, void* stream);
  int (*graph_destroy)(void* graph);
  int (*graph_exec_destroy)(void* executable);
  int (*graph_nodes)(void* graph, void** nodes, size_t* n);
};

}  // namespace turbo::hip::amd
