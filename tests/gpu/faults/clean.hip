// Nothing wrong: every other file here is one step away from this one.
// expect: ok
#include <turbo/kernel/gpu/device.hpp>
using namespace turbo::gpu;
struct Args {
  const float* x;
  float* y;
  uint32_t n;
};
TB_KERNEL(clean, Args, 256) {
  const uint32_t i = block_x() * 256 + thread();
  const float sum = wave_sum(i < args.n ? args.x[i] : 0.0f);
  if (i < args.n) args.y[i] = sum;
}
