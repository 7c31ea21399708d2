// The components f32, f16, bf16, fp8_e4m3, fp8_e5m2, q8 and q4 of the HIP tier: the codecs of the CPU half, which lay out,
// decode and name what is stored, with kernels.
#include <turbo/kernel/gpu/kv_device.hpp>

#include "../src/block_codec.h"
#include "../src/float_codec.h"
#include "../src/schemas.h"

#define TURBO_KERNEL_FILE(stem)                  \
  extern "C" const turbo_code_object turbo_kernels_##stem[]; \
  extern "C" const uint32_t turbo_n_kernels_##stem;
TURBO_KERNEL_FILE(f32)
TURBO_KERNEL_FILE(f16)
TURBO_KERNEL_FILE(bf16)
TURBO_KERNEL_FILE(fp8_e4m3)
TURBO_KERNEL_FILE(fp8_e5m2)
TURBO_KERNEL_FILE(q8)
TURBO_KERNEL_FILE(q4)

namespace turbo::kv_float {
namespace {

template <class T>
class DeviceFloat : public gpu::DeviceKvCodec<T, FloatCodec> {
 public:
  static constexpr bool kPacks = false;
  using gpu::DeviceKvCodec<T, FloatCodec>::DeviceKvCodec;
  void describe(const turbo_kv_shape& shape, gpu::KvSide& side, gpu::KvTables& tables) const {
    side.head_bytes = this->head_bytes(shape);
    side.pitch = static_cast<uint32_t>(this->pitch(shape));
    side.scales_at = static_cast<uint32_t>(this->scales_at(shape));
    side.n_scales = this->scaled() ? 1 : 0;
    side.scale_bytes = 2;
    side.rotated = this->rotates(shape) ? 1 : 0;
    if (side.rotated) tables.add_rotation(this->rotation(shape).tables(), side);
  }
};

template <class T>
class DeviceBlocks : public gpu::DeviceKvCodec<T, BlockCodec> {
 public:
  static constexpr bool kPacks = false;
  using gpu::DeviceKvCodec<T, BlockCodec>::DeviceKvCodec;
  void describe(const turbo_kv_shape& shape, gpu::KvSide& side, gpu::KvTables& tables) const {
    side.head_bytes = this->head_bytes(shape);
    side.pitch = static_cast<uint32_t>(this->code_bytes(shape));
    side.scales_at = static_cast<uint32_t>(this->scales_at(shape));
    side.n_scales = static_cast<uint32_t>(row_blocks(shape.head_dim));
    side.scale_bytes = 2;
    side.rotated = this->rotates(shape) ? 1 : 0;
    if (side.rotated) tables.add_rotation(this->rotation(shape).tables(), side);
  }
};

#define TURBO_FLOAT_CODEC(Name, stem, element, few)                                                        \
  struct Name : DeviceFloat<Name> {                                                                        \
    explicit Name(const Host& host) : DeviceFloat(host, #stem, element) {}                                 \
    gpu::KvKernels kernels() const { return {turbo_kernels_##stem, turbo_n_kernels_##stem, #stem, #stem, #stem, nullptr, few}; } \
  };
TURBO_FLOAT_CODEC(DeviceF32, f32, Element::f32, true)
TURBO_FLOAT_CODEC(DeviceF16, f16, Element::f16, false)
TURBO_FLOAT_CODEC(DeviceBf16, bf16, Element::bf16, true)
TURBO_FLOAT_CODEC(DeviceE4m3, fp8_e4m3, Element::e4m3, true)
TURBO_FLOAT_CODEC(DeviceE5m2, fp8_e5m2, Element::e5m2, true)

struct DeviceQ8 : DeviceBlocks<DeviceQ8> {
  explicit DeviceQ8(const Host& host) : DeviceBlocks(host, "q8", 8u) {}
  gpu::KvKernels kernels() const { return {turbo_kernels_q8, turbo_n_kernels_q8, "q8", "q8_k", "q8_v", nullptr, true}; }
};
struct DeviceQ4 : DeviceBlocks<DeviceQ4> {
  explicit DeviceQ4(const Host& host) : DeviceBlocks(host, "q4", 4u) {}
  gpu::KvKernels kernels() const { return {turbo_kernels_q4, turbo_n_kernels_q4, "q4", "q4_k", "q4_v", nullptr, false}; }
};

}  // namespace
}  // namespace turbo::kv_float

TURBO_PLUGIN("dev.turbo.kv_float", "Plain float KV cache", "0.2.0", "turbo", "Apache-2.0",
             turbo::component<turbo::kv_float::DeviceF32>(TURBO_KIND_KV_CODEC, "f32", TURBO_TIER_HIP),
             turbo::component<turbo::kv_float::DeviceF16>(TURBO_KIND_KV_CODEC, "f16", TURBO_TIER_HIP),
             turbo::component<turbo::kv_float::DeviceBf16>(TURBO_KIND_KV_CODEC, "bf16", TURBO_TIER_HIP),
             turbo::component<turbo::kv_float::DeviceE4m3>(TURBO_KIND_KV_CODEC, "fp8_e4m3", TURBO_TIER_HIP, turbo::kv_float::kFp8Options),
             turbo::component<turbo::kv_float::DeviceE5m2>(TURBO_KIND_KV_CODEC, "fp8_e5m2", TURBO_TIER_HIP, turbo::kv_float::kFp8Options),
             turbo::component<turbo::kv_float::DeviceQ8>(TURBO_KIND_KV_CODEC, "q8", TURBO_TIER_HIP, turbo::kv_float::kQ8Options),
             turbo::component<turbo::kv_float::DeviceQ4>(TURBO_KIND_KV_CODEC, "q4", TURBO_TIER_HIP, turbo::kv_float::kQ4Options))
