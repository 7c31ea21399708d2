// avx512 kernels. Compiled with the ISA's flags, called only after the ISA check.
#include "kernels.inl"

namespace turbo::arch_cpu {
const Kernels& avx512_kernels() { return table; }
}  // namespace turbo::arch_cpu
