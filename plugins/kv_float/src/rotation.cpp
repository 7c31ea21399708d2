#include "rotation.h"

#include <cstring>

namespace turbo::kv_float {
namespace {

constexpr rotated_kv::RotationSpec kSignedHadamard = {rotated_kv::Turn::signs, true, false, false, Rotation::kSeed};

}  // namespace

bool Rotation::exists(uint32_t head_dim) {
  return head_dim >= 16 && head_dim <= rotated_kv::kMaxDim && head_dim % 16 == 0 && rotated_kv::hadamard_shape(head_dim).seed != 0;
}

Rotation::Rotation(CpuIsa isa, uint32_t side, uint32_t head_dim)
    : side_(side), tables_(kSignedHadamard, side, head_dim),
      kernels_(isa == CpuIsa::avx512 ? &avx512_rotation_kernels() : isa == CpuIsa::avx2 ? &avx2_rotation_kernels() : &scalar_rotation_kernels()) {}

void Rotation::forward(float* row) const noexcept {
  float turned[rotated_kv::kMaxDim];
  kernels_->rotate(tables_.rotation(), row, turned);
  std::memcpy(row, turned, tables_.rotation().d * sizeof(float));
}

void Rotation::inverse(float* row) const noexcept {
  float turned[rotated_kv::kMaxDim];
  kernels_->unrotate(tables_.rotation(), row, turned);
  std::memcpy(row, turned, tables_.rotation().d * sizeof(float));
}

}  // namespace turbo::kv_float
