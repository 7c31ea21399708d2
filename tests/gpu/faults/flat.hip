// An address of which the compiler no longer knows that it is not in shared memory.
// budget: {"flat": 0}
// expect: flat accesses
#include <turbo/kernel/gpu/device.hpp>
using namespace turbo::gpu;
struct Args {
  const float* x;
  float* y;
  uint32_t n;
};
TB_KERNEL(flat, Args, 256) {
  const float* from = args.x + thread();
  asm volatile("" : "+v"(from));
  args.y[thread()] = *from;
}
