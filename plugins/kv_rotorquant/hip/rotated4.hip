// Codecs of 4 bits.
#include <turbo/kernel/gpu/attend_kernels.hpp>
#include <turbo/kernel/gpu/rotated_kv.hpp>

TB_ROTATED_KV_KERNELS(4)
