// The codec q8.
#include <turbo/kernel/gpu/attend_kernels.hpp>

#include "blocks.hpp"

namespace {
using Keys = turbo::kv_float::BlockKeys<8>;
using Values = turbo::kv_float::BlockValues<8>;
}  // namespace
TB_ATTEND_KERNELS_FEW(q8, Keys, Values)
TB_KV_MIXED(q8, Keys, Values)
TB_KV_APPEND(q8_k, Keys)
TB_KV_APPEND(q8_v, Values)
