// Bytes of packed rows. One page per block and kv head: 64 code rows, then 64 scales; pages of a block follow each
// other in the order of heads and begin at multiples of 64 bytes. Integers and halves are little-endian.
//   codes   bit stream: coordinate i of the rotated vector is bits [b i, b i + b)
//   pitch   code bytes rounded up to 4; what fills the gap is neither read into results nor assumed to be zero
//   scales  one binary16 (or binary32) per row, or one per 32 coordinates of a row
// Kernels may load up to 64 bytes from any place in a code row; behind the last row lie at least 128 bytes of scales.
#pragma once

#include <turbo/kernel/half.h>

#include <stdint.h>
#include <string.h>

namespace turbo::rotated_kv {

static constexpr uint64_t kPageRows = 64;

struct Page {
  uint32_t code_bytes, code_pitch;
  uint32_t n_scales;      // per row
  uint32_t scale_bytes;   // of one
  uint64_t bytes;         // of one page
};

static inline Page page_of(uint32_t d, uint32_t bits, uint32_t group, bool wide_scale) {
  Page page;
  page.code_bytes = (d * bits + 7) / 8;
  page.code_pitch = (page.code_bytes + 3) / 4 * 4;
  page.n_scales = group ? (d + group - 1) / group : 1;
  page.scale_bytes = wide_scale ? 4 : 2;
  page.bytes = kPageRows * (page.code_pitch + uint64_t{page.n_scales} * page.scale_bytes);
  return page;
}

static inline uint64_t code_offset(const Page& page, uint64_t row) { return row * page.code_pitch; }
static inline uint64_t scale_offset(const Page& page, uint64_t row) {
  return kPageRows * page.code_pitch + row * page.n_scales * page.scale_bytes;
}

/// Scale k of a row.
static inline float scale_of_row(const Page& page, const uint8_t* base, uint64_t row, uint64_t k) {
  const uint8_t* at = base + scale_offset(page, row) + k * page.scale_bytes;
  if (page.scale_bytes == 4) {
    float wide;
    memcpy(&wide, at, 4);
    return wide;
  }
  uint16_t half;
  memcpy(&half, at, 2);
  return turbo_f16_to_f32(half);
}

/// Code i of a row.
static inline uint32_t code_at(const uint8_t* codes, uint32_t bits, uint32_t i) {
  const uint32_t bit = bits * i, shift = bit % 8;
  const uint32_t low = codes[bit / 8] >> shift;
  return (shift + bits > 8 ? low | static_cast<uint32_t>(codes[bit / 8 + 1]) << (8 - shift) : low) & ((1u << bits) - 1u);
}

}  // namespace turbo::rotated_kv
