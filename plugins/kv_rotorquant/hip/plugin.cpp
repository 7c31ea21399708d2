// The components rq3_planar, rq4_planar, rq3_iso and rq4_iso of the HIP tier.
#include <turbo/kernel/gpu/rotated_device.hpp>

extern "C" const turbo_code_object turbo_kernels_rotated3[], turbo_kernels_rotated4[];
extern "C" const uint32_t turbo_n_kernels_rotated3, turbo_n_kernels_rotated4;

namespace turbo::rotated_kv {

gpu::KvKernels device_kernels(uint32_t bits) {
  if (bits == 3) return {turbo_kernels_rotated3, turbo_n_kernels_rotated3, "rotated3", "rotated3", "rotated3", "pack_rotated3", false};
  return {turbo_kernels_rotated4, turbo_n_kernels_rotated4, "rotated4", "rotated4", "rotated4", "pack_rotated4", false};
}

#define TURBO_DEVICE_CODEC(Name, name, bits, turn) \
  struct Name : RotatedDeviceCodec<Name> { explicit Name(const Host& host) : RotatedDeviceCodec(host, {name, bits, turn}) {} };
TURBO_DEVICE_CODEC(DeviceRq3Planar, "rq3_planar", 3, Turn::givens)
TURBO_DEVICE_CODEC(DeviceRq4Planar, "rq4_planar", 4, Turn::givens)
TURBO_DEVICE_CODEC(DeviceRq3Iso, "rq3_iso", 3, Turn::quaternion)
TURBO_DEVICE_CODEC(DeviceRq4Iso, "rq4_iso", 4, Turn::quaternion)

}  // namespace turbo::rotated_kv

TURBO_PLUGIN("dev.turbo.kv_rotorquant", "KV cache of block-rotated codes", "0.1.0", "turbo", "Apache-2.0",
             turbo::component<turbo::rotated_kv::DeviceRq3Planar>(TURBO_KIND_KV_CODEC, "rq3_planar", TURBO_TIER_HIP, turbo::rotated_kv::kPairsSchema),
             turbo::component<turbo::rotated_kv::DeviceRq4Planar>(TURBO_KIND_KV_CODEC, "rq4_planar", TURBO_TIER_HIP, turbo::rotated_kv::kPairsSchema),
             turbo::component<turbo::rotated_kv::DeviceRq3Iso>(TURBO_KIND_KV_CODEC, "rq3_iso", TURBO_TIER_HIP, turbo::rotated_kv::kQuadsSchema),
             turbo::component<turbo::rotated_kv::DeviceRq4Iso>(TURBO_KIND_KV_CODEC, "rq4_iso", TURBO_TIER_HIP, turbo::rotated_kv::kQuadsSchema))
