// The components tq2, tq3 and tq4 of the HIP tier.
#include <turbo/kernel/gpu/rotated_device.hpp>

extern "C" const turbo_code_object turbo_kernels_rotated2[], turbo_kernels_rotated3[], turbo_kernels_rotated4[];
extern "C" const uint32_t turbo_n_kernels_rotated2, turbo_n_kernels_rotated3, turbo_n_kernels_rotated4;

namespace turbo::rotated_kv {

gpu::KvKernels device_kernels(uint32_t bits) {
  if (bits == 2) return {turbo_kernels_rotated2, turbo_n_kernels_rotated2, "rotated2", "rotated2", "rotated2", "pack_rotated2", false};
  if (bits == 3) return {turbo_kernels_rotated3, turbo_n_kernels_rotated3, "rotated3", "rotated3", "rotated3", "pack_rotated3", false};
  return {turbo_kernels_rotated4, turbo_n_kernels_rotated4, "rotated4", "rotated4", "rotated4", "pack_rotated4", false};
}

struct DeviceTq2 : RotatedDeviceCodec<DeviceTq2> { explicit DeviceTq2(const Host& host) : RotatedDeviceCodec(host, {"tq2", 2, Turn::signs}) {} };
struct DeviceTq3 : RotatedDeviceCodec<DeviceTq3> { explicit DeviceTq3(const Host& host) : RotatedDeviceCodec(host, {"tq3", 3, Turn::signs}) {} };
struct DeviceTq4 : RotatedDeviceCodec<DeviceTq4> { explicit DeviceTq4(const Host& host) : RotatedDeviceCodec(host, {"tq4", 4, Turn::signs}) {} };

}  // namespace turbo::rotated_kv

TURBO_PLUGIN("dev.turbo.kv_turboquant", "KV cache of Hadamard-rotated codes", "0.1.0", "turbo", "Apache-2.0",
             turbo::component<turbo::rotated_kv::DeviceTq2>(TURBO_KIND_KV_CODEC, "tq2", TURBO_TIER_HIP, turbo::rotated_kv::kSignsSchema),
             turbo::component<turbo::rotated_kv::DeviceTq3>(TURBO_KIND_KV_CODEC, "tq3", TURBO_TIER_HIP, turbo::rotated_kv::kSignsSchema),
             turbo::component<turbo::rotated_kv::DeviceTq4>(TURBO_KIND_KV_CODEC, "tq4", TURBO_TIER_HIP, turbo::rotated_kv::kSignsSchema))
