// The kernels that are measured: heads of 128.
#pragma once

#include <turbo/kernel/gpu/attend_kernels.hpp>
#include <turbo/kernel/gpu/rotated_kv.hpp>

#include "kv_float/hip/blocks.hpp"

namespace {
using F16 = turbo::gpu::RowCodec<turbo::gpu::HalfElement>;
using Q4Keys = turbo::kv_float::BlockKeys<4>;
using Q4Values = turbo::kv_float::BlockValues<4>;
using Rotated4Keys = turbo::gpu::RotatedKeys<4>;
using Rotated4Values = turbo::gpu::RotatedValues<4>;
}  // namespace
#define BENCH_KERNELS(codec, K, V) \
  TB_ATTEND_ONE(codec, K, V, 16, 1) \
  TB_ATTEND_ONE(codec, K, V, 16, 2) \
  TB_ATTEND_ONE(codec, K, V, 16, 4) \
  TB_ATTEND_ONE(codec, K, V, 16, 8)
BENCH_KERNELS(f16, F16, F16)
BENCH_KERNELS(q4, Q4Keys, Q4Values)
BENCH_KERNELS(rotated4, Rotated4Keys, Rotated4Values)
