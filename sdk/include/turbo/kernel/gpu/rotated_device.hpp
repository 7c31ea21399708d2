// Host half of the rotated codecs on a device: turbo/kernel/rotated_kv/codec.hpp with kernels.
#pragma once

#include <turbo/kernel/gpu/kv_device.hpp>
#include <turbo/kernel/rotated_kv/codec.hpp>

namespace turbo::rotated_kv {

/// The kernels of `bits` bits of this library.
gpu::KvKernels device_kernels(uint32_t bits);

template <class T>
class RotatedDeviceCodec : public gpu::DeviceKvCodec<T, RotatedCodec> {
 public:
  static constexpr bool kPacks = true;
  RotatedDeviceCodec(const Host& host, const Mode& mode) : gpu::DeviceKvCodec<T, RotatedCodec>(host, mode), bits_(mode.bits) {}
  gpu::KvKernels kernels() const { return device_kernels(bits_); }
  void describe(const turbo_kv_shape& shape, gpu::KvSide& side, gpu::KvTables& tables) const {
    const Scheme& s = *this->scheme(shape);
    side.head_bytes = s.page.bytes;
    side.open_head_bytes = kPageRows * s.d * sizeof(uint16_t);
    side.pitch = s.page.code_pitch;
    side.open_pitch = s.d * static_cast<uint32_t>(sizeof(uint16_t));
    side.scales_at = static_cast<uint32_t>(kPageRows * s.page.code_pitch);
    side.n_scales = s.page.n_scales;
    side.scale_bytes = s.page.scale_bytes;
    side.scale_group = s.group;
    side.rotated = 1;
    tables.add_rotation(s.rotation, side);
    side.level = tables.add(s.level, 16);
    side.boundary = tables.add(s.boundary, 16);
    uint32_t level8[4];
    std::memcpy(level8, s.level8, sizeof level8);
    side.level8 = tables.add(level8, 4);
    side.level8_unit = s.level8_unit;
    side.rule = static_cast<uint32_t>(s.rule);
  }

 private:
  uint32_t bits_;
};

}  // namespace turbo::rotated_kv
