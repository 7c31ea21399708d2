// The lists of kernels that turbo_hip_library would generate: one list for the whole program.
#include <turbo/abi/draft/device.h>
#include <turbo/kernel/gpu/device.hpp>

extern "C" {
#define TURBO_TEST_KERNELS(stem)                                       \
  extern const turbo_code_object turbo_kernels_##stem[1];              \
  extern const uint32_t turbo_n_kernels_##stem;                        \
  const turbo_code_object turbo_kernels_##stem[1] = {                  \
      {sizeof(turbo_code_object), 0, "fiber", &turbo::gpu::fiber::Kernel::first(), sizeof(void*)}}; \
  const uint32_t turbo_n_kernels_##stem = 1
TURBO_TEST_KERNELS(sample);
TURBO_TEST_KERNELS(chain);
TURBO_TEST_KERNELS(tree);
TURBO_TEST_KERNELS(simulate);
}
