// RMS norm of a row, with the same bits whatever the block: a row is summed by 256 virtual threads.
//
//   thread i:  acc = fmadd(x, x, acc) over elements i, i + 256, ... in rising order
//   wave v:    wave_sum of its 32 threads
//   row:       0 + wave 0 + wave 1 + ... + wave 7
//   r = 1 / sqrt(sum / n + eps),  y = (x * r) * w
//
// Threads and waves beyond the end of a short row hold zero, which changes no bits. A row may be a whole hidden row or
// one head. Virtual waves are dealt over the waves of a block, or one wave does all of them.
#pragma once

#include <turbo/kernel/gpu/device.hpp>

namespace turbo::gpu {

constexpr uint32_t kNormThreads = 256, kNormWaves = kNormThreads / kWave;

/// Virtual wave `v` of a row of n elements, load(i) giving element i < n. The same bits in every lane.
template <typename Load>
TB_DEVICE float norm_wave(const Load& load, uint32_t n, uint32_t v) {
  constexpr uint32_t kBatch = 8;  // loads in flight
  const uint32_t first = v * kWave + lane();
  float acc = 0;
  for (uint32_t begin = 0; begin < n; begin += kBatch * kNormThreads) {
    float x[kBatch];
    TB_UNROLL
    for (uint32_t j = 0; j < kBatch; ++j) {
      const uint32_t i = begin + j * kNormThreads + first;
      const float value = load(i < n ? i : 0);
      x[j] = i < n ? value : 0.f;
    }
    TB_UNROLL
    for (uint32_t j = 0; j < kBatch; ++j) acc = fmadd(x[j], x[j], acc);
  }
  return wave_sum(acc);
}

/// One wave alone: sum of squares of a row, the same bits in every lane.
template <typename Load>
TB_DEVICE float wave_square_sum(const Load& load, uint32_t n) {
  const uint32_t n_waves = n < kNormThreads ? (n + kWave - 1) / kWave : kNormWaves;
  float sum = 0;
  for (uint32_t v = 0; v < n_waves; ++v) sum += norm_wave(load, n, v);
  return sum;
}

/// One wave alone, a row of at most 32 * PARTS <= 256 elements in registers: lane l holds element p * 32 + l in x[p], zero
/// beyond the row.
template <uint32_t PARTS>
TB_DEVICE float wave_square_sum(const float (&x)[PARTS]) {
  static_assert(PARTS <= kNormWaves);
  float sum = 0;
  TB_UNROLL
  for (uint32_t p = 0; p < PARTS; ++p) sum += wave_sum(fmadd(x[p], x[p], 0.f));
  return sum;
}

/// The whole block: partial sums of n_rows rows, `stride` floats apart, into shared slots[n_rows * kNormWaves]. Barriers
/// are the caller's: one before the slots are used again, one before square_sum reads them.
TB_DEVICE void block_square_sums(const float* rows, uint64_t stride, uint32_t n, uint32_t n_rows, float* slots) {
  const uint32_t n_waves = threads() / kWave;
  for (uint32_t t = wave(); t < n_rows * kNormWaves; t += n_waves) {
    const float* const x = rows + stride * (t / kNormWaves);
    const float part = norm_wave([x](uint32_t i) { return x[i]; }, n, t % kNormWaves);
    if (lane() == 0) slots[t] = part;
  }
}
TB_DEVICE float square_sum(const float* slots, uint32_t row) {
  float sum = 0;
  TB_UNROLL
  for (uint32_t v = 0; v < kNormWaves; ++v) sum += slots[row * kNormWaves + v];
  return sum;
}

/// The whole block, one row: slots is shared memory of kNormWaves floats. Contains a barrier; another must lie before the
/// slots are used again.
TB_DEVICE float block_square_sum(const float* x, uint32_t n, float* slots) {
  block_square_sums(x, 0, n, 1, slots);
  sync_block();
  return square_sum(slots, 0);
}

TB_DEVICE float norm_scale(float square_sum, uint32_t n, float eps) {
  return 1.f / sqrtf(square_sum / static_cast<float>(n) + eps);
}
TB_DEVICE float normed(float x, float scale, float weight) { return (x * scale) * weight; }

}  // namespace turbo::gpu
