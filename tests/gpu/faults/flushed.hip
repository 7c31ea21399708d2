// Denormals flushed.
// flags: -fgpu-flush-denormals-to-zero
// expect: float mode
#include <turbo/kernel/gpu/device.hpp>
using namespace turbo::gpu;
struct Args {
  const float* x;
  float* y;
  uint32_t n;
};
TB_KERNEL(flushed, Args, 256) { args.y[thread()] = args.x[thread()] * 0.5f; }
