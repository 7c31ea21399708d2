// AVX2 kernels; compiled with the ISA's flags, called only after the ISA check.
#include "block_kernels.inl"
#include "kernels.inl"
#include "rotation.inl"

namespace turbo::kv_float {
const Kernels& avx2_kernels(Element element) { return pick(element); }
const BlockKernels& avx2_block_kernels(uint32_t bits) { return pick_block(bits); }
const RotationKernels& avx2_rotation_kernels() { return kRotation; }
}  // namespace turbo::kv_float
