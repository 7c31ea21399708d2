// The components rq3_planar, rq4_planar, rq3_iso and rq4_iso of the CPU tier.
#include <turbo/kernel/rotated_kv/codec.hpp>

namespace turbo::rotated_kv {

struct Rq3Planar : RotatedCodec { explicit Rq3Planar(const Host& host) : RotatedCodec(host, {"rq3_planar", 3, Turn::givens}) {} };
struct Rq4Planar : RotatedCodec { explicit Rq4Planar(const Host& host) : RotatedCodec(host, {"rq4_planar", 4, Turn::givens}) {} };
struct Rq3Iso : RotatedCodec { explicit Rq3Iso(const Host& host) : RotatedCodec(host, {"rq3_iso", 3, Turn::quaternion}) {} };
struct Rq4Iso : RotatedCodec { explicit Rq4Iso(const Host& host) : RotatedCodec(host, {"rq4_iso", 4, Turn::quaternion}) {} };

}  // namespace turbo::rotated_kv

TURBO_PLUGIN("dev.turbo.kv_rotorquant", "KV cache of block-rotated codes", "0.1.0", "turbo", "Apache-2.0",
             turbo::component<turbo::rotated_kv::Rq3Planar>(TURBO_KIND_KV_CODEC, "rq3_planar", TURBO_TIER_CPU, turbo::rotated_kv::kPairsSchema),
             turbo::component<turbo::rotated_kv::Rq4Planar>(TURBO_KIND_KV_CODEC, "rq4_planar", TURBO_TIER_CPU, turbo::rotated_kv::kPairsSchema),
             turbo::component<turbo::rotated_kv::Rq3Iso>(TURBO_KIND_KV_CODEC, "rq3_iso", TURBO_TIER_CPU, turbo::rotated_kv::kQuadsSchema),
             turbo::component<turbo::rotated_kv::Rq4Iso>(TURBO_KIND_KV_CODEC, "rq4_iso", TURBO_TIER_CPU, turbo::rotated_kv::kQuadsSchema))
