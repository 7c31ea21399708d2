// The signed Hadamard rotation of one side and head size: y = had(signs * x) / sqrt(d), the same as in the rotated
// codecs with their default seed. Built at load, read-only afterwards; forward and inverse may run on any thread.
#pragma once

#include <turbo/kernel/cpu_isa.hpp>
#include <turbo/kernel/rotated_kv/rotation.hpp>
#include <turbo/kv_codec.hpp>

#include <cstdint>

#include "rotation_kernels.h"

namespace turbo::kv_float {

class Rotation {
 public:
  static constexpr uint64_t kSeed = 42;
  /// Into the fingerprints of codecs that rotate; holds the seed.
  static constexpr uint64_t kFingerprint = 0x6861642d00000000ull ^ kSeed << 16;

  /// Head sizes 16 * 2^k, and 3 or 5 times a power of two from 48 and 80 on.
  static bool exists(uint32_t head_dim);
  Rotation(CpuIsa isa, uint32_t side, uint32_t head_dim);
  bool is_of(const turbo_kv_shape& shape) const { return side_ == shape.side && tables_.rotation().d == shape.head_dim; }

  const rotated_kv::Rotation& tables() const { return tables_.rotation(); }

  /// In place.
  void forward(float* row) const noexcept;
  void inverse(float* row) const noexcept;

 private:
  uint32_t side_;
  rotated_kv::RotationTables tables_;
  const RotationKernels* kernels_;
};

}  // namespace turbo::kv_float
