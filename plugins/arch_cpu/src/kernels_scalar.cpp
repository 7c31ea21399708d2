// scalar kernels. The reference: plain loops over sixteen floats.
#include "kernels.inl"

namespace turbo::arch_cpu {
const Kernels& scalar_kernels() { return table; }
}  // namespace turbo::arch_cpu
