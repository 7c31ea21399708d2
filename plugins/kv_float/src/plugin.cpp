// The components f32, f16 and bf16 of the CPU tier.
#include "codec.h"

TURBO_PLUGIN("dev.turbo.kv_float", "Plain float KV cache", "0.1.0", "turbo", "Apache-2.0",
             turbo::component<turbo::kv_float::CodecF32>(TURBO_KIND_KV_CODEC, "f32", TURBO_TIER_CPU),
             turbo::component<turbo::kv_float::CodecF16>(TURBO_KIND_KV_CODEC, "f16", TURBO_TIER_CPU),
             turbo::component<turbo::kv_float::CodecBf16>(TURBO_KIND_KV_CODEC, "bf16", TURBO_TIER_CPU))
