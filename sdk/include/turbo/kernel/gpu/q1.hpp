// Q1_0 in kernels: quantised groups of activations and their exact dot with 128 signs.
//
// Numbers. A group of 128 activations is quantised as quantise.hpp says. An output:
//   within a segment, groups rising:  acc = fmadd(weight scale * scale, (float)(sum of +-q), acc), from 0
//   then the segments, rising:        0 + segment 0 + segment 1 + ...
#pragma once

#include <turbo/kernel/gpu/device.hpp>
#include <turbo/kernel/gpu/q1_layout.hpp>
#include <turbo/kernel/gpu/quantise.hpp>

namespace turbo::gpu::q1 {

/// 16 bytes in one instruction. A struct may be taken apart by a compiler, and then is loaded in pieces.
TB_DEVICE Words4 load_words(const void* p) {
#if defined(TB_AMD)
  typedef uint32_t Vector __attribute__((ext_vector_type(4)));
  const Vector v = *static_cast<const Vector*>(p);
  return {v.x, v.y, v.z, v.w};
#else
  return *static_cast<const Words4*>(p);
#endif
}
TB_DEVICE void store_words(void* p, const Words4& w) {
#if defined(TB_AMD)
  typedef uint32_t Vector __attribute__((ext_vector_type(4)));
  *static_cast<Vector*>(p) = Vector{w.x, w.y, w.z, w.w};
#else
  *static_cast<Words4*>(p) = w;
#endif
}

/// A lane quantises the four elements that make up one word of one plane: element(lane, b) for b = 0..3, and the word's
/// place among the 32 of the group.
TB_DEVICE uint32_t element_of(uint32_t lane, uint32_t b) { return (lane >> 3) * 32 + b * 8 + (lane & 7); }
TB_DEVICE uint32_t plane_word_of(uint32_t lane) { return (lane & 7) * 4 + (lane >> 3); }

struct QuantisedWord {
  uint32_t word;
  GroupScale scale;  // the same in every lane
};

/// The wave quantises a group; x holds the lane's four elements.
TB_DEVICE QuantisedWord quantise(const float (&x)[4]) {
  uint32_t largest = 0;
  TB_UNROLL
  for (uint32_t b = 0; b < 4; ++b) {
    const uint32_t magnitude = bits(x[b]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  const ByteScale by = byte_scale(wave_largest(largest));
  uint32_t word = 0;
  int32_t sum = 0;
  TB_UNROLL
  for (uint32_t b = 0; b < 4; ++b) {
    const int32_t q = byte_of(x[b], by);
    sum += q;
    word |= (static_cast<uint32_t>(q) & 255u) << (8 * b);
  }
  return {word, {by.scale, kFloatBase - wave_total(sum)}};
}

TB_DEVICE int32_t dot16(uint32_t m0, uint32_t m1, uint32_t m2, uint32_t m3, const Words4& a, int32_t sum) {
  sum = dot4(m0, a.x, sum);
  sum = dot4(m1, a.y, sum);
  sum = dot4(m2, a.z, sum);
  return dot4(m3, a.w, sum);
}

/// sum[t][r] = sum of the q of row r where word t has set bits. Rows lie row_bytes apart, 16-byte aligned.
/// Planes i and i + 4 share a mask, the signs of the latter being moved down; three shifts take the powers of two out.
template <uint32_t R, uint32_t T>
TB_DEVICE void group_dot(const Words4 (&w)[T], const uint8_t* planes, uint32_t row_bytes, int32_t (&sum)[T][R]) {
  TB_UNROLL
  for (uint32_t t = 0; t < T; ++t) {
    TB_UNROLL
    for (uint32_t r = 0; r < R; ++r) sum[t][r] = 0;
  }
  TB_UNROLL
  for (uint32_t step = 0; step < 8; ++step) {
    const uint32_t i = 3 - step / 2, high = step % 2 * 4;
    const uint32_t mask = 0x01010101u << i;
    // Activations of one plane at a time: a compiler that loads several planes ahead runs out of registers.
    asm volatile("" ::: "memory");
    uint32_t m[T][4];
    TB_UNROLL
    for (uint32_t t = 0; t < T; ++t) {
      m[t][0] = (w[t].x >> high) & mask;
      m[t][1] = (w[t].y >> high) & mask;
      m[t][2] = (w[t].z >> high) & mask;
      m[t][3] = (w[t].w >> high) & mask;
    }
    TB_UNROLL
    for (uint32_t r = 0; r < R; ++r) {
      const Words4 a = load_words(planes + r * row_bytes + (i + high) * 16);
      TB_UNROLL
      for (uint32_t t = 0; t < T; ++t) {
        if (high == 0 && i < 3) sum[t][r] >>= 1;
        sum[t][r] = dot16(m[t][0], m[t][1], m[t][2], m[t][3], a, sum[t][r]);
      }
    }
  }
}

/// One group of one output: `sum` as group_dot gives it.
TB_DEVICE float add_group(float weight_scale, GroupScale a, int32_t sum, float acc) {
  const float t = from_bits(static_cast<uint32_t>(a.base + 2 * sum)) - 12582912.f;
  return fmadd(weight_scale * a.scale, t, acc);
}

}  // namespace turbo::gpu::q1
