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

}  // namespace detail

/// x = R x / factor
TB_DEVICE void rotate_raw(const KvSide& side, float* x, float* spare, uint32_t d) {
  detail::turn_head(side, x, spare, d, false);
  detail::transform_head(side, x, spare, d, false);
}
/// x = R x
TB_DEVICE void rotate_head(const KvSide& side, float* x, float* spare, uint32_t d) {
  rotate_raw(side, x, spare, d);
  for (uint32_t i = lane(); i < d; i += kWave) x[i] *= side.factor;
  sync_wave();
}
/// x = R^T x
TB_DEVICE void unrotate_head(const KvSide& side, float* x, float* spare, uint32_t d) {
  detail::transform_head(side, x, spare, d, true);
  detail::turn_head(side, x, spare, d, true);
  for (uint32_t i = lane(); i < d; i += kWave) x[i] *= side.factor;
  sync_wave();
}

}  // namespace turbo::gpu
