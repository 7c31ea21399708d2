// Rotary positions in kernels: one definition of the angle, of its cosine and sine and of the turned pair, so that every
// kernel that rotates a head gives the same bits, on every platform. Pure.
//
// The angle is the exact product position * frequency, reduced by pi / 2 in three parts: what the CPU tier computes in
// double, to about 1e-7. Plain f32 cosf(position * frequency) would be off by 1e-3 at position 32768. No tables, no local
// memory. Positions below 4 million; frequencies up to 1.
#pragma once

#include <turbo/abi/draft/program.h>
#include <turbo/kernel/gpu/device.hpp>

namespace turbo::gpu {

struct RopeTurn { float c, s; };

/// Cosine and sine of position * frequency, times magnitude. A frequency that is not finite gives NaN.
TB_DEVICE RopeTurn rope_turn(int32_t position, float frequency, float magnitude) {
  const float p = static_cast<float>(position), high = p * frequency, low = fmadd(p, frequency, -high);
  const float n = rintf(high * 0x1.45f306p-1f);  // quarter turns
  float r = fmadd(-n, 0x1.921fb6p+0f, high);     // exact
  r = fmadd(-n, -0x1.777a5cp-25f, r);
  r = fmadd(-n, -0x1.ee59dap-50f, r) + low;
  const float z = r * r;
  float s = fmadd(z, 1.0f / 362880, -1.0f / 5040), c = fmadd(z, -1.0f / 3628800, 1.0f / 40320);
  s = fmadd(s, z, 1.0f / 120);
  s = fmadd(s, z, -1.0f / 6);
  s = fmadd(s * z, r, r);
  c = fmadd(c, z, -1.0f / 720);
  c = fmadd(c, z, 1.0f / 24);
  c = fmadd(c, z, -0.5f);
  c = fmadd(c, z, 1.0f);
  const float quarter = n - 4.0f * floorf(n * 0.25f);  // 0, 1, 2, 3
  const bool odd = quarter == 1.0f || quarter == 3.0f;
  const float cosine = odd ? s : c, sine = odd ? c : s;
  return {(quarter == 1.0f || quarter == 2.0f ? -cosine : cosine) * magnitude, (quarter >= 2.0f ? -sine : sine) * magnitude};
}

/// (x, y) -> (x c - y s, x s + y c): one product rounded, the other fused.
TB_DEVICE void rope_pair(RopeTurn t, float& x, float& y) {
  const float a = x, b = y;
  x = fmadd(a, t.c, -(b * t.s));
  y = fmadd(a, t.s, b * t.c);
}

/// Places of pair i of a head that turns its first `dims` elements.
TB_DEVICE uint32_t rope_first(uint32_t i, uint32_t style) { return style == TURBO_ROPE_HALVES ? i : 2 * i; }
TB_DEVICE uint32_t rope_second(uint32_t i, uint32_t dims, uint32_t style) { return style == TURBO_ROPE_HALVES ? i + dims / 2 : 2 * i + 1; }

/// Rotate one head in place; called by n_workers threads, each a worker of its own number. Every pair is one worker's, so
/// nothing has to meet in between.
TB_DEVICE void rope_head(float* head, uint32_t dims, uint32_t style, const float* frequencies, float magnitude, int32_t position,
                         uint32_t worker, uint32_t n_workers) {
  for (uint32_t i = worker; i < dims / 2; i += n_workers) {
    const RopeTurn turn = rope_turn(position, frequencies[i], magnitude);
    const uint32_t a = rope_first(i, style), b = rope_second(i, dims, style);
    float x = head[a], y = head[b];
    rope_pair(turn, x, y);
    head[a] = x;
    head[b] = y;
  }
}

}  // namespace turbo::gpu
