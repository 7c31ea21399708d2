// The components f32, f16, bf16, fp8_e4m3, fp8_e5m2, q8 and q4 of the CPU tier.
#include "block_codec.h"
#include "float_codec.h"
#include "schemas.h"

TURBO_PLUGIN("dev.turbo.kv_float", "Plain float KV cache", "0.2.0", "turbo", "Apache-2.0",
             turbo::component<turbo::kv_float::CodecF32>(TURBO_KIND_KV_CODEC, "f32", TURBO_TIER_CPU),
             turbo::component<turbo::kv_float::CodecF16>(TURBO_KIND_KV_CODEC, "f16", TURBO_TIER_CPU),
             turbo::component<turbo::kv_float::CodecBf16>(TURBO_KIND_KV_CODEC, "bf16", TURBO_TIER_CPU),
             turbo::component<turbo::kv_float::CodecE4m3>(TURBO_KIND_KV_CODEC, "fp8_e4m3", TURBO_TIER_CPU, turbo::kv_float::kFp8Options),
             turbo::component<turbo::kv_float::CodecE5m2>(TURBO_KIND_KV_CODEC, "fp8_e5m2", TURBO_TIER_CPU, turbo::kv_float::kFp8Options),
             turbo::component<turbo::kv_float::CodecQ8>(TURBO_KIND_KV_CODEC, "q8", TURBO_TIER_CPU, turbo::kv_float::kQ8Options),
             turbo::component<turbo::kv_float::CodecQ4>(TURBO_KIND_KV_CODEC, "q4", TURBO_TIER_CPU, turbo::kv_float::kQ4Options))
