#include "runtime.h"

namespace turbo::hip {

std::unique_ptr<Runtime> make_runtime() {
#if defined(TURBO_HIP_PLATFORM_FIBER)
  return make_fiber_runtime();
#elif defined(TURBO_HIP_PLATFORM_NVIDIA)
  return make_cuda_runtime();
#else
  return make_amd_runtime();
#endif
}

}  // namespace turbo::hip
