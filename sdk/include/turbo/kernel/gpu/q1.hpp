// Q1_0 in kernels: a group of 128 signs times the bytes of a row.
//
// Numbers. Of one output and a group: tiles t = 0..3 of the activations with scale s_t and sum of codes m_t, S_t the sum of
// the codes under set bits, d the weights' scale:
//   base  = fmadd(s_t, m_t, base), t rising from base = 0
//   inner = fmadd(2 s_t, S_t, inner), t rising from inner = -base
//   within a segment, groups rising:  acc = fmadd(d, inner, acc), from 0
//   then the segments, rising:        f = 0 + segment 0 + segment 1 + ...
//   with a norm:                      f * factor of the row (q8.hpp)
// Dots with bit t of every byte give 2^t S_t; the power is taken out with the scale.
#pragma once

#include <turbo/kernel/gpu/device.hpp>
#include <turbo/kernel/gpu/q1_layout.hpp>

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

TB_DEVICE int32_t dot16(uint32_t x, uint32_t y, uint32_t z, uint32_t w, const Words4& a, int32_t sum) {
  sum = dot4(x, a.x, sum);
  sum = dot4(y, a.y, sum);
  sum = dot4(z, a.z, sum);
  return dot4(w, a.w, sum);
}

TB_DEVICE float integer_of(int32_t biased) { return from_bits(static_cast<uint32_t>(biased)) - 12582912.f; }

/// T words of signs, of one group, with R rows' bytes of that group in shared memory, `row_bytes` apart: tile t of the
/// activations onto inner of the header's formula.
template <uint32_t R, uint32_t T>
TB_DEVICE void add_tile(const Words4 (&w)[T], const uint8_t* group, uint32_t row_bytes, uint32_t t, float (&inner)[T][R]) {
  int32_t sum[T][R];
  TB_UNROLL
  for (uint32_t half = 0; half < 2; ++half) {
    const uint32_t mask = 0x01010101u << t;
    Words4 m[T];
    TB_UNROLL
    for (uint32_t i = 0; i < T; ++i)
      m[i] = {w[i].x >> 4 * half & mask, w[i].y >> 4 * half & mask, w[i].z >> 4 * half & mask, w[i].w >> 4 * half & mask};
    TB_UNROLL
    for (uint32_t r = 0; r < R; ++r) {
      // Activations of a few rows at a time: a compiler that loads more ahead runs out of registers.
      if (R * T > 2 && r % 4 == 0) asm volatile("" ::: "memory");
      const Words4 a = load_words(group + r * row_bytes + t * kQ8Tile + half * 16);
      TB_UNROLL
      for (uint32_t i = 0; i < T; ++i) sum[i][r] = dot16(m[i].x, m[i].y, m[i].z, m[i].w, a, half ? sum[i][r] : kFloatBase);
    }
  }
  const float power = from_bits((128 - t) << 23);  // 2^(1 - t)
  TB_UNROLL
  for (uint32_t r = 0; r < R; ++r) {
    if (R * T > 2 && r % 4 == 0) asm volatile("" ::: "memory");
    const float scale = reinterpret_cast<const Q8Scale*>(group + r * row_bytes + kGroup)[t].scale * power;
    TB_UNROLL
    for (uint32_t i = 0; i < T; ++i) inner[i][r] = fmadd(scale, integer_of(sum[i][r]), inner[i][r]);
  }
}

template <uint32_t R, uint32_t T>
TB_DEVICE void group_inner(const Words4 (&w)[T], const uint8_t* group, uint32_t row_bytes, float (&inner)[T][R]) {
  TB_UNROLL
  for (uint32_t r = 0; r < R; ++r) {
    const Q8Scale* const scale = reinterpret_cast<const Q8Scale*>(group + r * row_bytes + kGroup);
    float base = 0;
    TB_UNROLL
    for (uint32_t t = 0; t < kGroupTiles; ++t) base = fmadd(scale[t].scale, scale[t].sum, base);
    TB_UNROLL
    for (uint32_t i = 0; i < T; ++i) inner[i][r] = -base;
  }
  TB_UNROLL
  for (uint32_t t = 0; t < kGroupTiles; ++t) add_tile<R, T>(w, group, row_bytes, t, inner);
}

}  // namespace turbo::gpu::q1
