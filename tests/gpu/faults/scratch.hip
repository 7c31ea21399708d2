// An array that is indexed at run time lies in memory.
// expect: scratch
#include <turbo/kernel/gpu/device.hpp>
using namespace turbo::gpu;
struct Args {
  const float* x;
  float* y;
  uint32_t n;
};
TB_KERNEL(scratch, Args, 256) {
  float v[96];
  for (int i = 0; i < 96; ++i) v[i] = args.x[thread() * 96 + i];
  for (uint32_t k = 0; k < args.n; ++k) v[(k * 5 + thread()) % 96] += v[k % 96];
  args.y[thread()] = v[args.n % 96];
}
