// A sum of products of bytes that the compiler does not turn into dot4.
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
  for (int i = 0; i < 4; ++i) c += static_cast<int8_t>(a >> (8 * i)) * static_cast<int8_t>(b >> (8 * i)) + (c >> 1);
  args.y[thread()] = static_cast<float>(c);
}
