// Our own declarations of the HIP runtime against the vendor's header, where there is one.
#if __has_include(<hip/hip_runtime_api.h>)
#define __HIP_PLATFORM_AMD__ 1
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wall"
#pragma GCC diagnostic ignored "-Wextra"
#pragma GCC diagnostic ignored "-Wpedantic"
#include <hip/hip_runtime_api.h>
#pragma GCC diagnostic pop

#include "api_amd.h"

namespace turbo::hip::amd {

static_assert(kErrorNotReady == hipErrorNotReady);
static_assert(kCooperativeLaunch == hipDeviceAttributeCooperativeLaunch);
static_assert(kIntegrated == hipDeviceAttributeIntegrated);
static_assert(kMultiprocessorCount == hipDeviceAttributeMultiprocessorCount);
static_assert(kMaxSharedMemoryPerBlock == hipDeviceAttributeMaxSharedMemoryPerBlock);
static_assert(kWarpSize == hipDeviceAttributeWarpSize);
static_assert(kFunctionMaxThreads == HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
static_assert(kFunctionSharedBytes == HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
static_assert(kHostToDevice == hipMemcpyHostToDevice && kDeviceToHost == hipMemcpyDeviceToHost && kDeviceToDevice == hipMemcpyDeviceToDevice);
static_assert(kHostPortable == hipHostMallocPortable && kHostMapped == hipHostMallocMapped && kHostCoherent == hipHostMallocCoherent);
static_assert(kStreamNonBlocking == hipStreamNonBlocking && kEventDisableTiming == hipEventDisableTiming);
static_assert(kCaptureThreadLocal == hipStreamCaptureModeThreadLocal);
#if HIP_VERSION_MAJOR >= 6
static_assert(kArchNameOffsetR0600 == offsetof(hipDeviceProp_t, gcnArchName));
#else
static_assert(kArchNameOffset == offsetof(hipDeviceProp_t, gcnArchName));
#endif
static_assert(sizeof(hipDeviceProp_t) <= kPropertiesBytes);
static_assert(hipErrorOutOfMemory == 2 && hipErrorNoBinaryForGpu == 209 && hipErrorNotFound == 500 && hipErrorIllegalAddress == 700 &&
              hipErrorLaunchTimeOut == 702 && hipErrorLaunchFailure == 719 && hipErrorNotSupported == 801);

// One word for each pointer-sized argument, in the vendor's order.
static_assert(sizeof(hipStream_t) == sizeof(void*) && sizeof(hipModule_t) == sizeof(void*) && sizeof(hipFunction_t) == sizeof(void*) &&
              sizeof(hipGraphExec_t) == sizeof(void*) && sizeof(hipEvent_t) == sizeof(void*) && sizeof(hipDevice_t) == sizeof(int));

}  // namespace turbo::hip::amd
#endif
