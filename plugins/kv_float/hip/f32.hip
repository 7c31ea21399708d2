// The codec f32.
#include <turbo/kernel/gpu/attend_kernels.hpp>

#include "elements.hpp"

namespace {
using Rows = turbo::gpu::RowCodec<turbo::kv_float::F32Element>;
}
TB_ATTEND_KERNELS_FEW(f32, Rows, Rows)
TB_KV_MIXED(f32, Rows, Rows)
TB_KV_APPEND(f32, Rows)
