// The codec q4.
#include <turbo/kernel/gpu/attend_kernels.hpp>

#include "blocks.hpp"

namespace {
using Keys = turbo::kv_float::BlockKeys<4>;
using Values = turbo::kv_float::BlockValues<4>;
}  // namespace
TB_ATTEND_KERNELS(q4, Keys, Values)
TB_KV_MIXED(q4, Keys, Values)
TB_KV_APPEND(q4_k, Keys)
TB_KV_APPEND(q4_v, Values)
