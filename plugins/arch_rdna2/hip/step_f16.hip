// Step kernels over f16 caches: rows, lanes a head, queries of a tile. As kVariants of step_kernel.cpp has them.
#include <turbo/kernel/gpu/step.hpp>

#include <turbo/kernel/gpu/kv_rows.hpp>

namespace {
using F16 = turbo::gpu::RowCodec<turbo::gpu::HalfElement>;
}
TB_STEP_KERNEL(step_f16_1_16_1, 1, F16, F16, 16, 1)
TB_STEP_KERNEL(step_f16_1_16_2, 1, F16, F16, 16, 2)
