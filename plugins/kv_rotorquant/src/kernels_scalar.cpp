// Reference kernels: the same source as the vector ones on sixteen plain floats.
#include <turbo/kernel/rotated_kv/kernels.inl>

namespace turbo::rotated_kv {
const Kernels& scalar_kernels() { return kKernels; }
}  // namespace turbo::rotated_kv
