// Kernels of the rotated codecs on Vec16, included once per ISA file, which names the table function. Everything has
// internal linkage, so files of different ISAs may be linked together.
#include <turbo/kernel/fetch.hpp>
#include <turbo/kernel/rotated_kv/kernels.hpp>
#include <turbo/kernel/row_run.hpp>
#include <turbo/kernel/vec16.hpp>

#include <math.h>
#include <string.h>

namespace turbo::rotated_kv {
namespace {

using namespace turbo::kernel;

#include <turbo/kernel/row_tiles.inl>
#include <turbo/kernel/rotated_kv/codes.inl>
#include <turbo/kernel/rotated_kv/rotate.inl>
#include <turbo/kernel/rotated_kv/encode.inl>
#include <turbo/kernel/rotated_kv/run.inl>
#include <turbo/kernel/rotated_kv/scores.inl>
#include <turbo/kernel/rotated_kv/values.inl>
#include <turbo/kernel/rotated_kv/open_rows.inl>

const Kernels kKernels = {&store_open, &load_open, &open_scores, &open_values, &rotate, &unrotate, &encode, &prepare_query,
                          &packed_scores, &packed_values, &finish_output};

}  // namespace
}  // namespace turbo::rotated_kv
