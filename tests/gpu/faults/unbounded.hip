// No launch bound: the compiler reckons with 1024 threads and gives each few registers.
// expect: no launch bound
#include <turbo/kernel/gpu/device.hpp>
using namespace turbo::gpu;
struct Args {
  float* y;
};
extern "C" __global__ void unbounded(const Args args) { args.y[thread()] = 1.0f; }
