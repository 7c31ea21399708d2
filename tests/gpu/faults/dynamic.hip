// Launches add dynamic shared memory to the fixed part.
// budget: {"dynamic_lds": 70000}
// expect: 70000 bytes of shared memory
#include <turbo/kernel/gpu/device.hpp>
using namespace turbo::gpu;
struct Args {
  const float* x;
  float* y;
  uint32_t n;
};
TB_KERNEL(dynamic, Args, 256) {
  TB_DYNAMIC_SHARED(float, values);
  values[thread()] = args.x[thread()];
  sync_block();
  args.y[thread()] = values[255 - thread()];
}
