// 40 KiB of shared memory.
// budget: {"lds": 32768}
// expect: 40960 bytes of shared memory
#include <turbo/kernel/gpu/device.hpp>
using namespace turbo::gpu;
struct Args {
  const float* x;
  float* y;
  uint32_t n;
};
TB_KERNEL(shared, Args, 256) {
  using Floats = float[10240];
  TB_SHARED(Floats, values);
  for (uint32_t i = thread(); i < 10240; i += 256) values[i] = args.x[i];
  sync_block();
  args.y[thread()] = values[(args.n * thread()) % 10240];
}
