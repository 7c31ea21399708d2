// A function that was not inlined.
// expect: call
#include <turbo/kernel/gpu/device.hpp>
using namespace turbo::gpu;
struct Args {
  const float* x;
  float* y;
  uint32_t n;
};
__device__ __attribute__((noinline)) float outside(float v) { return v * v + 1.0f; }
TB_KERNEL(call, Args, 256) { args.y[thread()] = outside(args.x[thread()]); }
