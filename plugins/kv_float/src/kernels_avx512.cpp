// AVX512 kernels; compiled with the ISA's flags, called only after the ISA check.
#include "kernels.inl"

namespace turbo::kv_float {
const Kernels& avx512_kernels(Element element) { return pick(element); }
}  // namespace turbo::kv_float
