// Reference kernels: the same source as the vector ones on sixteen plain floats.
#include "block_kernels.inl"
#include "kernels.inl"
#include "rotation.inl"

namespace turbo::kv_float {
const Kernels& scalar_kernels(Element element) { return pick(element); }
const BlockKernels& scalar_block_kernels(uint32_t bits) { return pick_block(bits); }
const RotationKernels& scalar_rotation_kernels() { return kRotation; }
}  // namespace turbo::kv_float
