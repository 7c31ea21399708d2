// The components tq2, tq3 and tq4 of the CPU tier.
#include <turbo/kernel/rotated_kv/codec.hpp>

namespace turbo::rotated_kv {

struct Tq2 : RotatedCodec { explicit Tq2(const Host& host) : RotatedCodec(host, {"tq2", 2, Turn::signs}) {} };
struct Tq3 : RotatedCodec { explicit Tq3(const Host& host) : RotatedCodec(host, {"tq3", 3, Turn::signs}) {} };
struct Tq4 : RotatedCodec { explicit Tq4(const Host& host) : RotatedCodec(host, {"tq4", 4, Turn::signs}) {} };

}  // namespace turbo::rotated_kv

TURBO_PLUGIN("dev.turbo.kv_turboquant", "KV cache of Hadamard-rotated codes", "0.1.0", "turbo", "Apache-2.0",
             turbo::component<turbo::rotated_kv::Tq2>(TURBO_KIND_KV_CODEC, "tq2", TURBO_TIER_CPU, turbo::rotated_kv::kSignsSchema),
             turbo::component<turbo::rotated_kv::Tq3>(TURBO_KIND_KV_CODEC, "tq3", TURBO_TIER_CPU, turbo::rotated_kv::kSignsSchema),
             turbo::component<turbo::rotated_kv::Tq4>(TURBO_KIND_KV_CODEC, "tq4", TURBO_TIER_CPU, turbo::rotated_kv::kSignsSchema))
