// The kernel files' lists, as turbo_hip_library makes them for the fiber platform.
#include <turbo/abi/draft/device.h>
#include <turbo/kernel/gpu/device.hpp>

extern "C" {
#define OBJECTS(stem)                                                                                                               \
  extern const turbo_code_object turbo_kernels_##stem[1];                                                                           \
  extern const uint32_t turbo_n_kernels_##stem;                                                                                     \
  const turbo_code_object turbo_kernels_##stem[1] = {{sizeof(turbo_code_object), 0, "fiber", &turbo::gpu::fiber::Kernel::first(), sizeof(void*)}}; \
  const uint32_t turbo_n_kernels_##stem = 1;
OBJECTS(ops)
OBJECTS(reference)
OBJECTS(device_check)
OBJECTS(step_f16)
}
