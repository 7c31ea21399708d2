#include "model/files/weight_check.h"

#include <cstring>

#include "model/files/utf8.h"

namespace turbo::model {
namespace {

/// Index of the first word at `stride` bytes whose exponent bits are all ones (infinity or NaN), or `count`.
template <typename Word>
uint64_t first_not_finite(const std::byte* at, uint64_t count, uint64_t stride, Word exponent) {
  for (uint64_t i = 0; i < count; ++i, at += stride) {
    Word word;
    std::memcpy(&word, at, sizeof(word));
    if ((word & exponent) == exponent) return i;
  }
  return count;
}

}  // namespace

Status check_weights(const ModelFile& file, const Tensor& tensor) {
  const TypeInfo& info = tensor.type_info();
  const uint64_t blocks = tensor.n_elements() / info.block_weights;
  uint64_t bad = blocks;
  if (tensor.type == type::f32)
    bad = first_not_finite<uint32_t>(tensor.data, blocks, 4, 0x7F800000u);
  else if (tensor.type == type::f64)
    bad = first_not_finite<uint64_t>(tensor.data, blocks, 8, 0x7FF0000000000000u);
  else if (tensor.type == type::f16)
    bad = first_not_finite<uint16_t>(tensor.data, blocks, 2, 0x7C00u);
  else if (tensor.type == type::bf16)
    bad = first_not_finite<uint16_t>(tensor.data, blocks, 2, 0x7F80u);
  else if (info.scale_offset >= 0) {
    bad = first_not_finite<uint16_t>(tensor.data + info.scale_offset, blocks, info.block_bytes, 0x7C00u);
  }
  if (bad == blocks) return Status::ok();
  return error(Code::corrupt_input, "{}: tensor '{}': element {}: expected a finite {} but found infinity or NaN",
               file.name(), printable(tensor.name), bad * info.block_weights,
               info.block_weights > 1 ? "scale" : "weight")
      .with_hint("the model is damaged or its training diverged; download it again");
}

Status check_weights(const ModelFile& file) {
  for (const Tensor& tensor : file.tensors()) {
    const Status status = check_weights(file, tensor);
    file.drop_pages(tensor);
    TURBO_RETURN_IF_ERROR(status);
  }
  return Status::ok();
}

}  // namespace turbo::model
