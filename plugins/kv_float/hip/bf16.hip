// The codec bf16.
#include <turbo/kernel/gpu/attend_kernels.hpp>

#include "elements.hpp"

namespace {
using Rows = turbo::gpu::RowCodec<turbo::kv_float::Bf16Element>;
}
TB_ATTEND_KERNELS_FEW(bf16, Rows, Rows)
TB_KV_MIXED(bf16, Rows, Rows)
TB_KV_APPEND(bf16, Rows)
