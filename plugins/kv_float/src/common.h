// What the codecs of this library share: the choice of kernels by ISA, centers of keys, the rotation, option texts.
// Centers and rotations are made at load ([load] calls) and only read afterwards ([team] calls).
#pragma once

#include <turbo/kernel/cpu_isa.hpp>
#include <turbo/kv_codec.hpp>

#include <initializer_list>
#include <memory>
#include <vector>

#include "rotation.h"

namespace turbo::kv_float {

constexpr uint32_t kMaxHeadDim = 512, kMaxHeads = 4096, kMaxLayers = 65536;

inline uint32_t padded_dim(const turbo_kv_shape& shape) { return (shape.head_dim + 15) / 16 * 16; }

/// The chosen one of `choices`, by number; the first is the default. Throws Failure for any other text.
uint32_t choose_option(const Host& host, const char* codec, const char* key, std::initializer_list<const char*> choices);

class Common {
 public:
  /// Throws Failure when TURBO_CPU_ISA cannot be met.
  Common();
  static void probe(const Host&, const turbo_probe_facts&, Probe& answer);

 protected:
  CpuIsa isa() const { return isa_; }
  /// Throws Failure for shapes that no codec here holds.
  static void check_shape(const char* codec, const turbo_kv_shape& shape);

  void keep_center(const turbo_kv_shape& shape, const float* center);
  /// Center of one head, or null.
  const float* center(const turbo_kv_shape& shape, uint32_t head) const;

  /// [load] Makes the rotation of this shape and side ready; throws Failure where there is none of that size.
  void make_rotation(const char* codec, const turbo_kv_shape& shape) const;
  /// Of a shape whose layout was asked for.
  const Rotation& rotation(const turbo_kv_shape& shape) const;

  /// The row of one head as it is to be rounded: less its center, then rotated if asked for. False when the row is not
  /// finite. Magnitudes beyond 2^60 count as 2^60.
  bool incoming(const turbo_kv_shape& shape, uint32_t head, const float* src, bool rotate, float* row) const noexcept;
  /// The way back, in place.
  void outgoing(const turbo_kv_shape& shape, uint32_t head, bool rotate, float* row) const noexcept;

 private:
  CpuIsa isa_;
  std::vector<std::vector<float>> centers_;                   // [layer][head][head_dim]
  mutable std::vector<std::unique_ptr<Rotation>> rotations_;  // one per side and head size met
};

}  // namespace turbo::kv_float
