// Heads of a step's rows on their way into attention: read, normed and rotated by one wave, in registers where the head
// fits its lanes: lane l holds element 32 p + l in x[p].
#pragma once

#include <turbo/kernel/gpu/attend_order.hpp>
#include <turbo/kernel/gpu/kv_side.hpp>
#include <turbo/kernel/gpu/rope.hpp>

namespace turbo::gpu {

/// A head of up to 32 * P elements as read, with what its norm and rotation need: all requested before any is waited for.
template <uint32_t P>
struct HeadRow {
  float x[P], weight[P], frequency[P / 2];
};

/// Whether pairs of the rotation lie in one lane.
template <uint32_t P>
TB_DEVICE bool turns_in_lanes(const turbo_device_attend& a) {
  return a.rope_style == TURBO_ROPE_HALVES && a.rope_dims == kWave * P;
}

template <uint32_t P>
TB_DEVICE void request_head(const float* from, uint32_t d, const float* norm, bool rope, const turbo_device_attend& a, HeadRow<P>& row) {
  TB_UNROLL
  for (uint32_t p = 0; p < P; ++p) {
    const uint32_t e = p * kWave + lane(), held = min_of(e, d - 1);
    row.x[p] = from[held];  // not yet zero behind the head: that would wait for it
    row.weight[p] = norm ? norm[held] : 1.0f;
  }
  const bool turns = rope && turns_in_lanes<P>(a);
  TB_UNROLL
  for (uint32_t p = 0; p < P / 2; ++p) row.frequency[p] = turns ? a.rope_frequencies[p * kWave + lane()] : 0.0f;
}

/// Normed and rotated as asked for: in row.x, and in shared memory `to` with zeros behind it up to n. The wave has met.
template <uint32_t P>
TB_DEVICE void finish_head(HeadRow<P>& row, uint32_t d, uint32_t n, bool norm, bool rope, const turbo_device_attend& a, int32_t position, float* to) {
  const auto cut = [&] {
    if (d == P * kWave) return;
    TB_UNROLL
    for (uint32_t p = 0; p < P; ++p) row.x[p] = p * kWave + lane() < d ? row.x[p] : 0.0f;
  };
  cut();
  if (norm) {
    const float scale = norm_scale(wave_square_sum(row.x), d, a.eps);
    TB_UNROLL
    for (uint32_t p = 0; p < P; ++p) row.x[p] = normed(row.x[p], scale, row.weight[p]);
    cut();
  }
  const bool turns = rope && turns_in_lanes<P>(a);
  if (turns) {
    TB_UNROLL
    for (uint32_t p = 0; p < P / 2; ++p) rope_pair(rope_turn(position, row.frequency[p], a.rope_magnitude), row.x[p], row.x[p + P / 2]);
  }
  sync_wave();
  TB_UNROLL
  for (uint32_t p = 0; p < P; ++p)
    if (p * kWave + lane() < n) to[p * kWave + lane()] = row.x[p];
  sync_wave();
  if (rope && a.rope_dims && !turns) {
    rope_head(to, a.rope_dims, a.rope_style, a.rope_frequencies, a.rope_magnitude, position, lane(), kWave);
    sync_wave();
    TB_UNROLL
    for (uint32_t p = 0; p < P; ++p)
      if (p * kWave + lane() < d) row.x[p] = to[p * kWave + lane()];
  }
}

/// Both at once.
template <uint32_t P>
TB_DEVICE void take_head(const float* from, float* to, uint32_t d, uint32_t n, const float* norm, const turbo_device_attend& a, int32_t position,
                         bool rope, HeadRow<P>& row) {
  request_head(from, d, norm, rope, a, row);
  finish_head(row, d, n, norm != nullptr, rope, a, position, to);
}

}  // namespace turbo::gpu
