// The launch bound that the host code counts on is another one.
// budget: {"threads": 512}
// expect: max workgroup 256, launch bound 512
#include <turbo/kernel/gpu/device.hpp>
using namespace turbo::gpu;
struct Args {
  const float* x;
  float* y;
  uint32_t n;
};
TB_KERNEL(bound, Args, 256) { args.y[thread()] = args.x[thread()]; }
