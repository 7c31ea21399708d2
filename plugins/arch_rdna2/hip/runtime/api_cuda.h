// What is used of the CUDA driver API, declared here so that no vendor header is needed; a test compares the values with
// the vendor's header where there is one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace turbo::hip::cuda {

using DevicePointer = unsigned long long;

constexpr int kErrorNotReady = 600;

// CUdevice_attribute
constexpr int kMaxSharedMemoryPerBlock = 8, kWarpSize = 10, kMultiprocessorCount = 16, kIntegrated = 18, kComputeMajor = 75, kComputeMinor = 76,
              kCooperativeLaunch = 95, kMaxSharedMemoryOptin = 97;
// CUfunction_attribute
constexpr int kFunctionMaxThreads = 0, kFunctionSharedBytes = 1, kFunctionMaxDynamicShared = 8;

constexpr unsigned kHostPortable = 0x1, kHostMapped = 0x2;
constexpr unsigned kStreamNonBlocking = 0x1, kEventDisableTiming = 0x2;
constexpr int kCaptureThreadLocal = 1;

// CUlaunchAttribute, CUlaunchConfig
constexpr int kLaunchProgrammatic = 6;  // programmatic stream serialization
struct LaunchAttribute {
  int id;
  int pad;
  union {
    char bytes[64];
    int allowed;
  } value;
};
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  void* stream;
  LaunchAttribute* attributes;
  unsigned n_attributes;
};
static_assert(sizeof(LaunchAttribute) == 72 && sizeof(LaunchConfig) == 56);

struct Api {
  int (*init)(unsigned flags);
  int (*driver_version)(int* version);
  int (*device_count)(int* count);
  int (*device)(int* device, int ordinal);
  int (*device_name)(char* name, int bytes, int device);
  int (*device_attribute)(int* value, int attribute, int device);
  int (*device_total)(size_t* bytes, int device);
  int (*device_pci)(char* id, int bytes, int device);
  int (*context_retain)(void** context, int device);
  int (*context_release)(int device);
  int (*context_set)(void* context);
  int (*error_name)(int code, const char** text);
  int (*error_string)(int code, const char** text);
  int (*memory_info)(size_t* free, size_t* total);
  int (*malloc)(DevicePointer* pointer, size_t bytes);
  int (*free)(DevicePointer pointer);
  int (*host_malloc)(void** pointer, size_t bytes, unsigned flags);
  int (*host_free)(void* pointer);
  int (*host_device_pointer)(DevicePointer* device, void* host, unsigned flags);
  int (*to_device)(DevicePointer dst, const void* src, size_t bytes, void* stream);
  int (*to_host)(void* dst, DevicePointer src, size_t bytes, void* stream);
  int (*on_device)(DevicePointer dst, DevicePointer src, size_t bytes, void* stream);
  int (*memset_async)(DevicePointer dst, unsigned char byte, size_t bytes, void* stream);
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
  int (*set_function_attribute)(void* function, int attribute, int value);
  int (*parameter_info)(void* function, size_t index, size_t* offset, size_t* bytes);  // optional: 12.4
  int (*launch)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                unsigned shared_bytes, void* stream, void** arguments, void** extra);
  int (*launch_with)(const LaunchConfig* config, void* function, void** arguments, void** extra);  // optional: 11.8
  int (*launch_cooperative)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                            unsigned block_z, unsigned shared_bytes, void* stream, void** arguments);
  int (*occupancy)(int* blocks, void* function, int threads, size_t shared_bytes);
  int (*begin_capture)(void* stream, int mode);
  int (*end_capture)(void* stream, void** graph);
  int (*graph_instantiate)(void** executable, void* graph, unsigned long long flags);                                // from 11.4
  int (*graph_instantiate_v2)(void** executable, void* graph, void** error_node, char* log, size_t log_bytes);       // before
  int (*graph_launch)(void* executable, void* stream);
  int (*graph_destroy)(void* graph);
  int (*graph_exec_destroy)(void* executable);
  int (*graph_nodes)(void* graph, void** nodes, size_t* n);
};

}  // namespace turbo::hip::cuda
