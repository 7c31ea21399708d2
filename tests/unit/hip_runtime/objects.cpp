// The kernel files' lists, as turbo_hip_library makes them for the fiber platform.
#include <turbo/abi/draft/device.h>
#include <turbo/kernel/gpu/device.hpp>

extern "C" {
extern const turbo_code_object turbo_kernels_kernels[1], turbo_kernels_device_check[1];
extern const uint32_t turbo_n_kernels_kernels, turbo_n_kernels_device_check;
const turbo_code_object turbo_kernels_kernels[1] = {{sizeof(turbo_code_object), 0, "fiber", &turbo::gpu::fiber::Kernel::first(), sizeof(void*)}};
const turbo_code_object turbo_kernels_device_check[1] = {{sizeof(turbo_code_object), 0, "fiber", &turbo::gpu::fiber::Kernel::first(), sizeof(void*)}};
const uint32_t turbo_n_kernels_kernels = 1, turbo_n_kernels_device_check = 1;
}
