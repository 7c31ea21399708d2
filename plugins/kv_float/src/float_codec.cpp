#include "float_codec.h"

#include <turbo/kernel/half.h>

#include <cmath>
#include <cstring>

#include "fp8.h"

namespace turbo::kv_float {
namespace {

const Kernels& kernels_for(CpuIsa isa, Element element) {
  return isa == CpuIsa::avx512 ? avx512_kernels(element) : isa == CpuIsa::avx2 ? avx2_kernels(element) : scalar_kernels(element);
}

}  // namespace

FloatCodec::FloatCodec(const Host& host, const char* name, Element element) : name_(name), element_(element) {
  if (is_fp8()) {
    if (choose_option(host, name, "scale", {"none", "head"}) == 1)
      element_ = element == Element::e4m3 ? Element::e4m3_scaled : Element::e5m2_scaled;
    rotate_keys_ = choose_option(host, name, "rotate", {"none", "hadamard"}) == 1;
  }
  kernels_ = &kernels_for(isa(), element_);
}

uint64_t FloatCodec::pitch(const turbo_kv_shape& shape) const {
  return is_fp8() ? shape.head_dim : (uint64_t{shape.head_dim} * element_bytes() + 63) / 64 * 64;
}

void FloatCodec::layout(const turbo_kv_shape& shape, turbo_kv_layout& layout) const {
  check_shape(name_, shape);
  if (rotates(shape)) make_rotation(name_, shape);
  layout.flags = TURBO_KV_OPEN_IS_PACKED;
  layout.packed_block_bytes = head_bytes(shape) * shape.n_kv_heads;
  layout.alignment = 64;
  layout.query_floats = padded_dim(shape);
  layout.truncate_granularity = 1;
  layout.bits_per_element = static_cast<float>(head_bytes(shape) * 8) / static_cast<float>(shape.head_dim * TURBO_KV_BLOCK);
  const float root = std::sqrt(static_cast<float>(shape.head_dim));
  switch (element_) {
    case Element::f32: layout.error_bound = 0.0f; break;
    case Element::f16: layout.error_bound = 0x1p-11f; break;
    case Element::bf16: layout.error_bound = 0x1p-8f; break;
    // Half a step of a normal number, and half the smallest subnormal in each element.
    case Element::e4m3: layout.error_bound = 0x1p-4f + root * 0x1p-10f; break;
    case Element::e5m2: layout.error_bound = 0x1p-3f + root * 0x1p-17f; break;
    case Element::e4m3_scaled: layout.error_bound = 0x1p-4f + root * 0x1p-18f; break;
    case Element::e5m2_scaled: layout.error_bound = 0x1p-3f + root * 0x1p-18f; break;
  }
}

turbo_status FloatCodec::append(const turbo_kv_shape& shape, void* block, uint32_t row, const float* src, uint32_t head_begin,
                                uint32_t head_end) const noexcept {
  const uint64_t step = pitch(shape), bytes = head_bytes(shape);
  float changed[kMaxHeadDim];
  for (uint32_t head = head_begin; head < head_end; ++head) {
    const float* values = src + uint64_t{head} * shape.head_dim;
    if (rotates(shape)) {
      if (!incoming(shape, head, values, true, changed)) return TURBO_CORRUPT_INPUT;
      values = changed;
    } else if (const float* mean = center(shape, head)) {
      for (uint32_t e = 0; e < shape.head_dim; ++e) changed[e] = values[e] - mean[e];
      values = changed;
    }
    uint8_t* at = static_cast<uint8_t*>(block) + head * bytes;
    uint16_t* scale = scaled() ? reinterpret_cast<uint16_t*>(at + scales_at(shape)) + row : nullptr;
    if (!kernels_->encode(values, shape.head_dim, at + row * step, scale)) return TURBO_CORRUPT_INPUT;
  }
  return TURBO_OK;
}

void FloatCodec::prepare_query(const turbo_kv_shape& shape, uint32_t, const float* query, float* prepared) const noexcept {
  std::memcpy(prepared, query, shape.head_dim * sizeof(float));
  std::memset(prepared + shape.head_dim, 0, (padded_dim(shape) - shape.head_dim) * sizeof(float));
  if (rotates(shape)) rotation(shape).forward(prepared);
  if (is_e4m3())
    for (uint32_t e = 0; e < shape.head_dim; ++e) prepared[e] *= kE4m3Gain;
}

KeyRun FloatCodec::key_run(const turbo_kv_shape& shape, const turbo_kv_run& run) const {
  const uint64_t step = pitch(shape), head = run.kv_head * head_bytes(shape), first = head + run.row_begin * step;
  const uint8_t *block = static_cast<const uint8_t*>(run.block), *ahead = static_cast<const uint8_t*>(run.ahead);
  const uint16_t* scales = scaled() ? reinterpret_cast<const uint16_t*>(block + head + scales_at(shape)) + run.row_begin : nullptr;
  return {block + first, step, run.n_rows, shape.head_dim, run.n_queries, ahead ? ahead + first : nullptr, scales};
}

void FloatCodec::qk_scores(const turbo_kv_shape& shape, const turbo_kv_run& run, const float* queries, uint64_t query_stride,
                           float* scores, uint64_t score_stride) const noexcept {
  kernels_->scores(key_run(shape, run), queries, query_stride, scores, score_stride);
}

void FloatCodec::pv_accumulate(const turbo_kv_shape& shape, const turbo_kv_run& run, const float* weights, uint64_t weight_stride,
                               float* out, uint64_t out_stride) const noexcept {
  kernels_->accumulate(key_run(shape, run), weights, weight_stride, out, out_stride);
}

void FloatCodec::finish_output(const turbo_kv_shape& shape, uint32_t, const float* accumulated, float* output) const noexcept {
  if (!is_e4m3()) {
    std::memmove(output, accumulated, shape.head_dim * sizeof(float));
    return;
  }
  for (uint32_t e = 0; e < shape.head_dim; ++e) output[e] = accumulated[e] * kE4m3Gain;
}

void FloatCodec::move_row(const turbo_kv_shape& shape, const void* src_block, uint32_t src_row, void* dst_block,
                          uint32_t dst_row) const noexcept {
  const uint64_t step = pitch(shape), bytes = uint64_t{shape.head_dim} * element_bytes();
  for (uint32_t head = 0; head < shape.n_kv_heads; ++head) {
    uint8_t* to = static_cast<uint8_t*>(dst_block) + head * head_bytes(shape);
    const uint8_t* from = static_cast<const uint8_t*>(src_block) + head * head_bytes(shape);
    std::memmove(to + dst_row * step, from + src_row * step, bytes);
    if (scaled()) std::memmove(to + scales_at(shape) + dst_row * 2, from + scales_at(shape) + src_row * 2, 2);
  }
}

float FloatCodec::decode(const uint8_t* row, uint32_t e) const {
  if (is_fp8()) return is_e4m3() ? from_e4m3(row[e]) : from_e5m2(row[e]);
  if (element_ == Element::f32) {
    float value;
    std::memcpy(&value, row + uint64_t{e} * 4, 4);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, row + uint64_t{e} * 2, 2);
  return element_ == Element::f16 ? turbo_f16_to_f32(half) : turbo_bf16_to_f32(half);
}

void FloatCodec::decode_row(const turbo_kv_shape& shape, uint32_t, const void* block, uint32_t row, float* dst) const noexcept {
  for (uint32_t head = 0; head < shape.n_kv_heads; ++head, dst += shape.head_dim) {
    const uint8_t* base = static_cast<const uint8_t*>(block) + head * head_bytes(shape);
    float scale = 1.0f;
    if (scaled()) {
      uint16_t half;
      std::memcpy(&half, base + scales_at(shape) + row * 2, 2);
      scale = turbo_f16_to_f32(half);
    }
    for (uint32_t e = 0; e < shape.head_dim; ++e) dst[e] = decode(base + row * pitch(shape), e) * scale;
    outgoing(shape, head, rotates(shape), dst);
  }
}

uint64_t FloatCodec::fingerprint() const noexcept {
  // "kvfloat", the layout revision, the element and what was chosen: all that decides stored bits.
  return 0x6b76666c6f617400ull ^ (1ull << 4) ^ static_cast<uint64_t>(element_) ^ (rotate_keys_ ? Rotation::kFingerprint : 0);
}

}  // namespace turbo::kv_float
