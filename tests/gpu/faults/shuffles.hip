// Ten shuffles where four are declared.
// budget: {"bpermutes": 4}
// expect: 10 ds_bpermutes, budget 4
#include <turbo/kernel/gpu/device.hpp>
using namespace turbo::gpu;
struct Args {
  const float* x;
  float* y;
  uint32_t n;
};
TB_KERNEL(shuffles, Args, 256) { args.y[thread()] = wave_sum(wave_max(args.x[thread()])); }
