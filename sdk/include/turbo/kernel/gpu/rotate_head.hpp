// The rotations of KV codecs (turbo/kernel/rotated_kv) by one wave, in place in shared memory, with the bits of the CPU
// tier: turn, then butterflies of stride 1, 2, 4, .. inside blocks, then the seed's sums with columns rising.
// `spare` is shared memory of d floats more. The wave meets before a call; it has met after it.
#pragma once

#include <turbo/kernel/gpu/device.hpp>
#include <turbo/kernel/gpu/kv_side.hpp>

namespace turbo::gpu {

constexpr uint32_t kTurnSigns = 0, kTurnGivens = 1, kTurnQuaternion = 2, kTurnDense = 3;

namespace detail {

TB_DEVICE void take_back(float* x, const float* spare, uint32_t d) {
  sync_wave();
  for (uint32_t i = lane(); i < d; i += kWave) x[i] = spare[i];
  sync_wave();
}

TB_DEVICE void transform_head(const KvSide& side, float* x, float* spare, uint32_t d, bool transposed) {
  if (side.seed == 0) return;
  for (uint32_t h = 1; h < side.block; h *= 2) {
    for (uint32_t p = lane(); p < d / 2; p += kWave) {
      const uint32_t i = p / h * 2 * h + p % h;
      const float a = x[i], b = x[i + h];
      x[i] = a + b;
      x[i + h] = a - b;
    }
    sync_wave();
  }
  if (side.seed == 1) return;
  const float* const mix = transposed ? side.mix_transposed : side.mix;
  for (uint32_t i = lane(); i < d; i += kWave) {
    float sum = 0.0f;
    for (uint32_t c = 0; c < side.seed; ++c)
      sum = fmadd(mix[(i / 16 * side.seed + c) * 16 + i % 16], x[c * side.block + (i & (side.block - 1))], sum);
    spare[i] = sum;
  }
  take_back(x, spare, d);
}

TB_DEVICE void turn_head(const KvSide& side, float* x, float* spare, uint32_t d, bool back) {
  const uint32_t quarter = d / 4;
  if (side.turn == kTurnSigns) {
    for (uint32_t i = lane(); i < d; i += kWave) x[i] = side.first[i] * x[i];
  } else if (side.turn == kTurnGivens) {
    for (uint32_t g = lane(); g < d / 2; g += kWave) {
      const uint32_t half = g / quarter, i = half * 2 * quarter + g % quarter, j = i + quarter;
      const float c = side.first[g], drawn = side.second[g], s = back ? -drawn : drawn, a = x[i], b = x[j];
      x[i] = fmadd(c, a, -(s * b));
      x[j] = fmadd(s, a, c * b);
    }
  } else if (side.turn == kTurnQuaternion) {
    for (uint32_t k = lane(); k < quarter; k += kWave) {
      const float p0 = x[k], p1 = x[quarter + k], p2 = x[2 * quarter + k], p3 = x[3 * quarter + k];
      for (uint32_t row = 0; row < 4; ++row) {
        const uint32_t first = back ? row : row * 4, step = back ? 4 : 1;
        float sum = fmadd(side.first[first * quarter + k], p0, 0.0f);
        sum = fmadd(side.first[(first + step) * quarter + k], p1, sum);
        sum = fmadd(side.first[(first + 2 * step) * quarter + k], p2, sum);
        x[row * quarter + k] = fmadd(side.first[(first + 3 * step) * quarter + k], p3, sum);
      }
    }
  } else {
    const float* const columns = back ? side.second : side.first;
    for (uint32_t i = lane(); i < d; i += kWave) {
      float sum = 0.0f;
      for (uint32_t c = 0; c < d; ++c) sum = fmadd(x[c], columns[c * d + i], sum);
      spare[i] = sum;
    }
    take_back(x, spare, d);
    return;
  }
  sync_wave();
}

/// Whether a head of 32 * P elements can be rotated in registers, lane l holding element 32 p + l in x[p].
template <uint32_t P>
TB_DEVICE bool rotates_in_lanes(const KvSide& side, uint32_t d) {
  return d == P * kWave && (side.turn == kTurnSigns || (P % 4 == 0 && (side.turn == kTurnGivens || side.turn == kTurnQuaternion))) &&
         (side.seed == 0 || (side.seed == 1 && side.block == d));
}

template <uint32_t P>
TB_DEVICE void transform_lanes(const KvSide& side, float (&x)[P]) {
  if (side.seed == 0) return;
  TB_UNROLL
  for (uint32_t h = 1; h < kWave; h *= 2) {
    const bool second = (lane() & h) != 0;
    TB_UNROLL
    for (uint32_t p = 0; p < P; ++p) {
      const float other = shuffle_xor(x[p], h);
      x[p] = second ? other - x[p] : x[p] + other;
    }
  }
  TB_UNROLL
  for (uint32_t h = 1; h < P; h *= 2)
    TB_UNROLL
    for (uint32_t p = 0; p < P; ++p) {
      if (p & h) continue;
      const float a = x[p], b = x[p + h];
      x[p] = a + b;
      x[p + h] = a - b;
    }
}

template <uint32_t P>
TB_DEVICE void turn_lanes(const KvSide& side, float (&x)[P], bool back) {
  constexpr uint32_t Q = P / 4, kQuarter = P * kWave / 4;
  if (side.turn == kTurnSigns) {
    TB_UNROLL
    for (uint32_t p = 0; p < P; ++p) x[p] = side.first[p * kWave + lane()] * x[p];
    return;
  }
  TB_UNROLL
  for (uint32_t r = 0; r < Q; ++r) {
    if (side.turn == kTurnGivens) {
      TB_UNROLL
      for (uint32_t half = 0; half < 2; ++half) {
        const uint32_t g = half * kQuarter + r * kWave + lane(), i = 2 * half * Q + r;
        const float c = side.first[g], drawn = side.second[g], s = back ? -drawn : drawn, a = x[i], b = x[i + Q];
        x[i] = fmadd(c, a, -(s * b));
        x[i + Q] = fmadd(s, a, c * b);
      }
    } else {
      const uint32_t k = r * kWave + lane();
      const float p0 = x[r], p1 = x[Q + r], p2 = x[2 * Q + r], p3 = x[3 * Q + r];
      TB_UNROLL
      for (uint32_t row = 0; row < 4; ++row) {
        const uint32_t first = back ? row : row * 4, step = back ? 4 : 1;
        float sum = fmadd(side.first[first * kQuarter + k], p0, 0.0f);
        sum = fmadd(side.first[(first + step) * kQuarter + k], p1, sum);
        sum = fmadd(side.first[(first + 2 * step) * kQuarter + k], p2, sum);
        x[row * Q + r] = fmadd(side.first[(first + 3 * step) * kQuarter + k], p3, sum);
      }
    }
  }
}

/// In place in shared memory, by way of registers; times the factor where `scaled`.
template <uint32_t P>
TB_DEVICE void rotate_by_lanes(const KvSide& side, float* x, bool back, bool scaled) {
  float v[P];
  TB_UNROLL
  for (uint32_t p = 0; p < P; ++p) v[p] = x[p * kWave + lane()];
  if (!back) turn_lanes(side, v, false);
  transform_lanes(side, v);
  if (back) turn_lanes(side, v, true);
  TB_UNROLL
  for (uint32_t p = 0; p < P; ++p) x[p * kWave + lane()] = scaled ? v[p] * side.factor : v[p];
  sync_wave();
}

TB_DEVICE void rotate(const KvSide& side, float* x, float* spare, uint32_t d, bool back, bool scaled) {
  if (rotates_in_lanes<4>(side, d)) return rotate_by_lanes<4>(side, x, back, scaled);
  if (!back) turn_head(side, x, spare, d, false);
  transform_head(side, x, spare, d, back);
  if (back) turn_head(side, x, spare, d, true);
  if (!scaled) return;
  for (uint32_t i = lane(); i < d; i += kWave) x[i] *= side.factor;
  sync_wave();
}

}  // namespace detail

/// x = R x / factor
TB_DEVICE void rotate_raw(const KvSide& side, float* x, float* spare, uint32_t d) { detail::rotate(side, x, spare, d, false, false); }
/// x = R x
TB_DEVICE void rotate_head(const KvSide& side, float* x, float* spare, uint32_t d) { detail::rotate(side, x, spare, d, false, true); }
/// x = R^T x
TB_DEVICE void unrotate_head(const KvSide& side, float* x, float* spare, uint32_t d) { detail::rotate(side, x, spare, d, true, true); }

}  // namespace turbo::gpu
