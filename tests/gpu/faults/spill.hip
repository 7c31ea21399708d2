// More values alive than registers allowed.
// expect: vgpr spills|scratch
#include <turbo/kernel/gpu/device.hpp>
using namespace turbo::gpu;
struct Args {
  const float* x;
  float* y;
  uint32_t n;
};
extern "C" __global__ void __attribute__((amdgpu_flat_work_group_size(1, 256), amdgpu_num_vgpr(24))) spill(const Args args) {
  float v[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) v[i] = args.x[threadIdx.x + 256 * i];
  for (uint32_t k = 0; k < args.n; ++k) {
#pragma unroll
    for (int i = 0; i < 64; ++i) v[i] = v[i] * v[(i * 7 + 3) % 64] + 1.0f;
  }
#pragma unroll
  for (int i = 0; i < 64; ++i) args.y[threadIdx.x + 256 * i] = v[i];
}
