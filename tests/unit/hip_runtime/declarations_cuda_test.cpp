// Our own declarations of the CUDA driver against the vendor's header, where there is one.
#if __has_include(<cuda.h>)
#include <cuda.h>

#include "api_cuda.h"

namespace turbo::hip::cuda {

static_assert(kErrorNotReady == CUDA_ERROR_NOT_READY);
static_assert(kMaxSharedMemoryPerBlock == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
static_assert(kWarpSize == CU_DEVICE_ATTRIBUTE_WARP_SIZE && kIntegrated == CU_DEVICE_ATTRIBUTE_INTEGRATED);
static_assert(kMultiprocessorCount == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(kComputeMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR && kComputeMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(kCooperativeLaunch == CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH);
static_assert(kMaxSharedMemoryOptin == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
static_assert(kFunctionMaxThreads == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK && kFunctionSharedBytes == CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
static_assert(kFunctionMaxDynamicShared == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(kHostPortable == CU_MEMHOSTALLOC_PORTABLE && kHostMapped == CU_MEMHOSTALLOC_DEVICEMAP);
static_assert(kStreamNonBlocking == CU_STREAM_NON_BLOCKING && kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(kCaptureThreadLocal == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
static_assert(CUDA_ERROR_OUT_OF_MEMORY == 2 && CUDA_ERROR_NO_BINARY_FOR_GPU == 209 && CUDA_ERROR_NOT_FOUND == 500 && CUDA_ERROR_ILLEGAL_ADDRESS == 700 &&
              CUDA_ERROR_LAUNCH_TIMEOUT == 702 && CUDA_ERROR_LAUNCH_FAILED == 719 && CUDA_ERROR_NOT_SUPPORTED == 801);
static_assert(kLaunchProgrammatic == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
static_assert(sizeof(LaunchAttribute) == sizeof(CUlaunchAttribute) && offsetof(LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
static_assert(sizeof(LaunchConfig) == sizeof(CUlaunchConfig) && offsetof(LaunchConfig, attributes) == offsetof(CUlaunchConfig, attrs) &&
              offsetof(LaunchConfig, n_attributes) == offsetof(CUlaunchConfig, numAttrs));
static_assert(sizeof(CUdeviceptr) == sizeof(DevicePointer) && sizeof(CUdevice) == sizeof(int) && sizeof(CUstream) == sizeof(void*));

}  // namespace turbo::hip::cuda
#endif
