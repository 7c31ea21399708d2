// A lane permute where lanes are switched off.
// archs: gfx1031 gfx1100
// expect: v_permlane under a narrowed exec mask
#include <turbo/kernel/gpu/device.hpp>
using namespace turbo::gpu;
struct Args {
  const float* x;
  float* y;
  uint32_t n;
};
TB_KERNEL(permlane, Args, 256) {
  float v = args.x[thread()];
  if (v > 1.0f) {
    const int other = __builtin_amdgcn_permlanex16(static_cast<int>(bits(v)), static_cast<int>(bits(v)), 0x76543210, static_cast<int>(0xfedcba98), false, false);
    v += from_bits(static_cast<uint32_t>(other));
    args.y[thread()] = v;
  }
}
