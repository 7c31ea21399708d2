// The codec fp8_e4m3.
#include <turbo/kernel/gpu/attend_kernels.hpp>

#include "elements.hpp"

namespace {
using Rows = turbo::gpu::RowCodec<turbo::kv_float::Fp8Element<true>>;
}
TB_ATTEND_KERNELS_FEW(fp8_e4m3, Rows, Rows)
TB_KV_MIXED(fp8_e4m3, Rows, Rows)
TB_KV_APPEND(fp8_e4m3, Rows)
