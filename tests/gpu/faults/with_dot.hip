// The same products by dot4.
// budget: {"dot": true}
// archs: gfx1031 gfx1100
// expect: ok
#include <turbo/kernel/gpu/device.hpp>
using namespace turbo::gpu;
struct Args {
  const float* x;
  float* y;
  uint32_t n;
};
TB_KERNEL(with_dot, Args, 256) {
  args.y[thread()] = static_cast<float>(dot4(bits(args.x[thread()]), bits(args.x[thread() + 256]), 0));
}
