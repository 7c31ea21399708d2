// The codec f16: halves.
#include <turbo/kernel/gpu/attend_kernels.hpp>
#include <turbo/kernel/gpu/kv_kernels.hpp>
#include <turbo/kernel/gpu/kv_rows.hpp>

namespace {
using F16 = turbo::gpu::RowCodec<turbo::gpu::HalfElement>;
}
TB_ATTEND_KERNELS(f16, F16, F16)
TB_KV_MIXED(f16, F16, F16)
TB_KV_APPEND(f16, F16)
