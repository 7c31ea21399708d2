#include "block_codec.h"

#include <turbo/kernel/half.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace turbo::kv_float {
namespace {

const BlockKernels& kernels_for(CpuIsa isa, uint32_t bits) {
  return isa == CpuIsa::avx512 ? avx512_block_kernels(bits) : isa == CpuIsa::avx2 ? avx2_block_kernels(bits) : scalar_block_kernels(bits);
}

uint32_t magnitude(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits & 0x7fffffffu;
}
float from_bits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

/// x / scale within [-limit, top], to the nearest even integer. The sum with 1.5 * 2^23 rounds.
int8_t to_code(float x, float scale, float bottom, float top) {
  const float ratio = x / scale, held = ratio < bottom ? bottom : ratio > top ? top : ratio;
  return static_cast<int8_t>((held + 12582912.0f) - 12582912.0f);
}

/// Where unit u of a key lies; `unit` bytes of one key follow each other.
uint64_t key_unit(uint64_t row, uint64_t units, uint64_t u) { return ((row / 16 * units + u) * 16 + row % 16) * 4; }

}  // namespace

BlockCodec::BlockCodec(const Host& host, const char* name, uint32_t bits) : name_(name), bits_(bits) {
  rotate_ = bits == 8 ? choose_option(host, name, "rotate", {"none", "hadamard"}) == 1
                      : choose_option(host, name, "rotate", {"hadamard", "none"}) == 0;
  kernels_ = &kernels_for(isa(), bits);
}

void BlockCodec::layout(const turbo_kv_shape& shape, turbo_kv_layout& layout) const {
  check_shape(name_, shape);
  if (shape.head_dim % 8 != 0)
    throw Failure(TURBO_UNSUPPORTED, std::string(name_) + ": head size " + std::to_string(shape.head_dim) + " is no multiple of 8",
                  "choose f16 or fp8_e4m3 for this model");
  if (rotates(shape)) make_rotation(name_, shape);
  layout.flags = TURBO_KV_OPEN_IS_PACKED;
  layout.packed_block_bytes = head_bytes(shape) * shape.n_kv_heads;
  layout.alignment = 64;
  layout.query_floats = padded_dim(shape);
  layout.truncate_granularity = 1;
  layout.bits_per_element = static_cast<float>(head_bytes(shape) * 8) / static_cast<float>(shape.head_dim * TURBO_KV_BLOCK);
  // The worst block has one large element and the others halfway between two codes.
  layout.error_bound = bits_ == 8 ? 0.0225f : 0.35f;
}

void BlockCodec::round_row(const float* x, uint32_t n, int8_t* codes, uint16_t* scales) const {
  for (uint32_t begin = 0; begin < n; begin += kRowBlock) {
    const uint32_t end = std::min(begin + kRowBlock, n);
    uint32_t largest = 0;
    for (uint32_t e = begin; e < end; ++e) largest = std::max(largest, magnitude(x[e]));
    float scale = from_bits(largest) / 127.0f;
    if (bits_ == 4) {
      uint32_t first = begin;
      while (magnitude(x[first]) != largest) ++first;
      scale = x[first] / -8.0f;
    }
    const uint16_t stored = turbo_f32_to_f16(std::clamp(scale, -65504.0f, 65504.0f));
    scales[begin / kRowBlock] = stored;
    const float divisor = turbo_f16_to_f32(stored) == 0.0f ? std::numeric_limits<float>::infinity() : turbo_f16_to_f32(stored);
    const float bottom = bits_ == 8 ? -127.0f : -8.0f, top = bits_ == 8 ? 127.0f : 7.0f;
    for (uint32_t e = begin; e < end; ++e) codes[e] = to_code(x[e], divisor, bottom, top);
  }
}

void BlockCodec::write_codes(const turbo_kv_shape& shape, uint8_t* head, uint32_t row, const int8_t* codes) const {
  const uint32_t d = shape.head_dim;
  if (bits_ == 8) {
    if (shape.side == TURBO_KV_SIDE_V) std::memcpy(head + uint64_t{row} * d, codes, d);
    else
      for (uint32_t u = 0; u < d / 4; ++u) std::memcpy(head + key_unit(row, d / 4, u), codes + u * 4, 4);
    return;
  }
  const auto pair = [&](uint32_t low, uint32_t high) { return static_cast<uint8_t>((codes[low] + 8) | (codes[high] + 8) << 4); };
  if (shape.side == TURBO_KV_SIDE_K) {
    for (uint32_t u = 0; u < d / 8; ++u)
      for (uint32_t j = 0; j < 4; ++j) head[key_unit(row, d / 8, u) + j] = pair(u * 8 + j, u * 8 + 4 + j);
    return;
  }
  for (uint32_t begin = 0; begin < d; begin += kRowBlock) {
    const uint32_t half = std::min(kRowBlock, d - begin) / 2;
    uint8_t* to = head + (uint64_t{row} * d + begin) / 2;
    for (uint32_t j = 0; j < half; ++j) to[j] = pair(begin + j, begin + half + j);
  }
}

void BlockCodec::read_codes(const turbo_kv_shape& shape, const uint8_t* head, uint32_t row, int8_t* codes) const {
  const uint32_t d = shape.head_dim;
  if (bits_ == 8) {
    if (shape.side == TURBO_KV_SIDE_V) std::memcpy(codes, head + uint64_t{row} * d, d);
    else
      for (uint32_t u = 0; u < d / 4; ++u) std::memcpy(codes + u * 4, head + key_unit(row, d / 4, u), 4);
    return;
  }
  const auto split = [&](uint8_t byte, uint32_t low, uint32_t high) {
    codes[low] = static_cast<int8_t>((byte & 15) - 8);
    codes[high] = static_cast<int8_t>((byte >> 4) - 8);
  };
  if (shape.side == TURBO_KV_SIDE_K) {
    for (uint32_t u = 0; u < d / 8; ++u)
      for (uint32_t j = 0; j < 4; ++j) split(head[key_unit(row, d / 8, u) + j], u * 8 + j, u * 8 + 4 + j);
    return;
  }
  for (uint32_t begin = 0; begin < d; begin += kRowBlock) {
    const uint32_t half = std::min(kRowBlock, d - begin) / 2;
    const uint8_t* from = head + (uint64_t{row} * d + begin) / 2;
    for (uint32_t j = 0; j < half; ++j) split(from[j], begin + j, begin + half + j);
  }
}

turbo_status BlockCodec::append(const turbo_kv_shape& shape, void* block, uint32_t row, const float* src, uint32_t head_begin,
                                uint32_t head_end) const noexcept {
  float x[kMaxHeadDim];
  int8_t codes[kMaxHeadDim];
  uint16_t scales[kMaxHeadDim / kRowBlock];
  for (uint32_t head = head_begin; head < head_end; ++head) {
    if (!incoming(shape, head, src + uint64_t{head} * shape.head_dim, rotates(shape), x)) return TURBO_CORRUPT_INPUT;
    round_row(x, shape.head_dim, codes, scales);
    uint8_t* to = static_cast<uint8_t*>(block) + head * head_bytes(shape);
    write_codes(shape, to, row, codes);
    uint16_t* kept = reinterpret_cast<uint16_t*>(to + scales_at(shape));
    for (uint32_t b = 0; b < row_blocks(shape.head_dim); ++b) kept[b * TURBO_KV_BLOCK + row] = scales[b];
  }
  return TURBO_OK;
}

void BlockCodec::prepare_query(const turbo_kv_shape& shape, uint32_t, const float* query, float* prepared) const noexcept {
  const uint32_t d = shape.head_dim, n_blocks = static_cast<uint32_t>(row_blocks(d));
  float x[kMaxHeadDim];
  std::memcpy(x, query, d * sizeof(float));
  if (rotates(shape)) rotation(shape).forward(x);
  int8_t codes[kMaxHeadDim];
  int32_t offsets[kMaxHeadDim / kRowBlock];
  for (uint32_t b = 0; b < n_blocks; ++b) {
    const uint32_t begin = b * kRowBlock, end = std::min(begin + kRowBlock, d);
    uint32_t largest = 0;
    for (uint32_t e = begin; e < end; ++e) largest = std::max(largest, magnitude(x[e]));
    const bool finite = largest < 0x7f800000u;
    prepared[b] = finite ? from_bits(largest) / 127.0f : std::numeric_limits<float>::quiet_NaN();
    const float divisor = prepared[b] > 0.0f ? prepared[b] : std::numeric_limits<float>::infinity();
    int32_t sum = 0;
    for (uint32_t e = begin; e < end; ++e) sum += codes[e] = finite ? to_code(x[e], divisor, -127.0f, 127.0f) : int8_t{0};
    offsets[b] = sum * (bits_ == 8 ? -128 : -8);
  }
  std::memcpy(prepared + n_blocks, offsets, n_blocks * 4);
  std::memcpy(prepared + 2 * n_blocks, codes, d);
}

BlockRun BlockCodec::block_run(const turbo_kv_shape& shape, const turbo_kv_run& run) const {
  const uint64_t head = run.kv_head * head_bytes(shape);
  const uint8_t *block = static_cast<const uint8_t*>(run.block), *ahead = static_cast<const uint8_t*>(run.ahead);
  return {block + head, ahead ? ahead + head : nullptr, scales_at(shape), run.row_begin, run.n_rows, shape.head_dim, run.n_queries};
}

void BlockCodec::qk_scores(const turbo_kv_shape& shape, const turbo_kv_run& run, const float* queries, uint64_t query_stride,
                           float* scores, uint64_t score_stride) const noexcept {
  kernels_->scores(block_run(shape, run), queries, query_stride, scores, score_stride);
}

void BlockCodec::pv_accumulate(const turbo_kv_shape& shape, const turbo_kv_run& run, const float* weights, uint64_t weight_stride,
                               float* out, uint64_t out_stride) const noexcept {
  kernels_->accumulate(block_run(shape, run), weights, weight_stride, out, out_stride);
}

void BlockCodec::finish_output(const turbo_kv_shape& shape, uint32_t, const float* accumulated, float* output) const noexcept {
  std::memmove(output, accumulated, shape.head_dim * sizeof(float));
  if (rotates(shape)) rotation(shape).inverse(output);
}

void BlockCodec::move_row(const turbo_kv_shape& shape, const void* src_block, uint32_t src_row, void* dst_block,
                          uint32_t dst_row) const noexcept {
  int8_t codes[kMaxHeadDim];
  for (uint32_t head = 0; head < shape.n_kv_heads; ++head) {
    uint8_t* to = static_cast<uint8_t*>(dst_block) + head * head_bytes(shape);
    const uint8_t* from = static_cast<const uint8_t*>(src_block) + head * head_bytes(shape);
    read_codes(shape, from, src_row, codes);
    write_codes(shape, to, dst_row, codes);
    for (uint32_t b = 0; b < row_blocks(shape.head_dim); ++b) {
      const uint64_t at = scales_at(shape) + b * TURBO_KV_BLOCK * 2;
      std::memmove(to + at + dst_row * 2, from + at + src_row * 2, 2);
    }
  }
}

void BlockCodec::decode_row(const turbo_kv_shape& shape, uint32_t, const void* block, uint32_t row, float* dst) const noexcept {
  int8_t codes[kMaxHeadDim];
  for (uint32_t head = 0; head < shape.n_kv_heads; ++head, dst += shape.head_dim) {
    const uint8_t* from = static_cast<const uint8_t*>(block) + head * head_bytes(shape);
    read_codes(shape, from, row, codes);
    const uint16_t* scales = reinterpret_cast<const uint16_t*>(from + scales_at(shape));
    for (uint32_t e = 0; e < shape.head_dim; ++e)
      dst[e] = static_cast<float>(codes[e]) * turbo_f16_to_f32(scales[e / kRowBlock * TURBO_KV_BLOCK + row]);
    outgoing(shape, head, rotates(shape), dst);
  }
}

uint64_t BlockCodec::fingerprint() const noexcept {
  // "kvblock", the layout revision, the bits and what was chosen: all that decides stored bits.
  return 0x6b76626c6f636b00ull ^ (1ull << 4) ^ bits_ ^ (rotate_ ? Rotation::kFingerprint : 0);
}

}  // namespace turbo::kv_float
