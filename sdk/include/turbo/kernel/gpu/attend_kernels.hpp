// Names of a codec's attention kernels, and the macro that makes them: attend_<codec>_<lanes>_<queries>. Kernels take
// heads of up to 8 * lanes elements and tiles of up to `queries` queries.
#pragma once

#include <turbo/kernel/gpu/attend.hpp>

#define TB_ATTEND_ONE(codec, K, V, L, NQ) \
  TB_ATTEND_KERNEL_EARLY(attend_##codec##_##L##_##NQ, turbo::gpu::AttendArgs, NQ) { turbo::gpu::attend_body<K, V, L, NQ>(args); }

#define TB_ATTEND_KERNELS(codec, K, V)  \
  TB_ATTEND_ONE(codec, K, V, 8, 2)      \
  TB_ATTEND_ONE(codec, K, V, 8, 8)      \
  TB_ATTEND_ONE(codec, K, V, 16, 1)     \
  TB_ATTEND_ONE(codec, K, V, 16, 2)     \
  TB_ATTEND_ONE(codec, K, V, 16, 4)     \
  TB_ATTEND_ONE(codec, K, V, 16, 8)     \
  TB_ATTEND_ONE(codec, K, V, 32, 2)     \
  TB_ATTEND_ONE(codec, K, V, 32, 4)

/// For codecs that few use.
#define TB_ATTEND_KERNELS_FEW(codec, K, V) \
  TB_ATTEND_ONE(codec, K, V, 8, 8)         \
  TB_ATTEND_ONE(codec, K, V, 16, 2)        \
  TB_ATTEND_ONE(codec, K, V, 16, 8)        \
  TB_ATTEND_ONE(codec, K, V, 32, 4)
