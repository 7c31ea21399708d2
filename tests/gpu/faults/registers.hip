// More registers than declared.
// budget: {"vgprs": 12}
// expect: vgprs, budget 12
#include <turbo/kernel/gpu/device.hpp>
using namespace turbo::gpu;
struct Args {
  const float* x;
  float* y;
  uint32_t n;
};
TB_KERNEL(registers, Args, 256) {
  float v[32];
  TB_UNROLL
  for (int i = 0; i < 32; ++i) v[i] = args.x[thread() + 256 * i];
  sync_block();
  TB_UNROLL
  for (int i = 0; i < 32; ++i) args.y[thread() + 256 * i] = v[(i * 7) % 32];
}
