// Table of the rotation's kernels: one per ISA, all with the same bits. [team] Pure functions; x and y do not overlap.
#pragma once

#include <turbo/kernel/rotated_kv/kernels.hpp>

namespace turbo::kv_float {

struct RotationKernels {
  /// y = R x and x = R^T y.
  void (*rotate)(const rotated_kv::Rotation& r, const float* x, float* y);
  void (*unrotate)(const rotated_kv::Rotation& r, const float* y, float* x);
};
const RotationKernels& scalar_rotation_kernels();
const RotationKernels& avx2_rotation_kernels();    // the scalar table where not compiled in
const RotationKernels& avx512_rotation_kernels();  // same

}  // namespace turbo::kv_float
