// AVX512 kernels; compiled with the ISA's flags, called only after the ISA check.
#include "block_kernels.inl"
#include "kernels.inl"
#include "rotation.inl"

namespace turbo::kv_float {
const Kernels& avx512_kernels(Element element) { return pick(element); }
const BlockKernels& avx512_block_kernels(uint32_t bits) { return pick_block(bits); }
const RotationKernels& avx512_rotation_kernels() { return kRotation; }
}  // namespace turbo::kv_float
