// AVX2 kernels; compiled with the ISA's flags, called only after the ISA check.
#include <turbo/kernel/rotated_kv/kernels.inl>

namespace turbo::rotated_kv {
const Kernels& avx2_kernels() { return kKernels; }
}  // namespace turbo::rotated_kv
