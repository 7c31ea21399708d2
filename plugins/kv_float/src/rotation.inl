// The rotation's kernels, included once per ISA file (which names the table function).
#include <turbo/kernel/rotated_kv/kernels.hpp>
#include <turbo/kernel/vec16.hpp>

#include "rotation_kernels.h"

namespace turbo::rotated_kv {
namespace {

using namespace turbo::kernel;

#include <turbo/kernel/rotated_kv/codes.inl>
#include <turbo/kernel/rotated_kv/rotate.inl>

}  // namespace
}  // namespace turbo::rotated_kv

namespace turbo::kv_float {
namespace {

const RotationKernels kRotation = {&rotated_kv::rotate, &rotated_kv::unrotate};

}  // namespace
}  // namespace turbo::kv_float
