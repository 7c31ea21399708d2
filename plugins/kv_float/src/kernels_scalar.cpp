// Reference kernels: the same source as the vector ones on sixteen plain floats.
#include "kernels.inl"

namespace turbo::kv_float {
const Kernels& scalar_kernels(Element element) { return pick(element); }
}  // namespace turbo::kv_float
