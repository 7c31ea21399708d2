// Products of halves of a word where those of bytes were declared.
// budget: {"dot": true}
// archs: gfx1031 gfx1100
// expect: no four-way integer dot product
#include <turbo/kernel/gpu/device.hpp>
using namespace turbo::gpu;
struct Args {
  const float* x;
  float* y;
  uint32_t n;
};
TB_KERNEL(no_dot, Args, 256) {
  const uint32_t a = bits(args.x[thread()]), b = bits(args.x[thread() + 256]);
  int32_t c = 0;
  for (int i = 0; i < 2; ++i) c += static_cast<int16_t>(a >> (16 * i)) * static_cast<int16_t>(b >> (16 * i));
  args.y[thread()] = static_cast<float>(c);
}
