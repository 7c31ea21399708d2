// Rows as signed bytes in tiles of 32 columns, as turbo_device_q8 lays them out. The wave that finishes 32 outputs writes
// their tile, so that the products which read them only read bytes.
//
// A tile: weighted = x * weight (weight 1 without a norm), quantised as quantise.hpp says: value = scale * code.
//   sum       of the codes, an integer
//   squares   sum of x * x: each product rounded, then the wave's tree
// Factor of a normed row: lane l adds the squares of tiles l, l + 32, ... rising, then the wave's tree, then
// norm_scale of norm.hpp.
#pragma once

#include <turbo/kernel/gpu/norm.hpp>
#include <turbo/kernel/gpu/q8_layout.hpp>
#include <turbo/kernel/gpu/quantise.hpp>

namespace turbo::gpu {

/// A column of a tile; all but the code is the whole tile's.
struct Q8Value {
  int32_t code;
  float scale, sum, squares;
};
/// One wave, N tiles side by side, so that none waits for another's exchange of lanes: lane l holds column l of each.
template <uint32_t N>
TB_DEVICE void q8_values(const float (&x)[N], float weight, Q8Value (&to)[N]) {
  float weighted[N];
  uint32_t largest[N];
  TB_UNROLL
  for (uint32_t k = 0; k < N; ++k) {
    weighted[k] = x[k] * weight;
    largest[k] = wave_largest(bits(weighted[k]) & 0x7fffffffu);
    to[k].squares = x[k] * x[k];
  }
  TB_UNROLL
  for (uint32_t m = kWave / 2; m; m >>= 1) {  // as wave_sum
    TB_UNROLL
    for (uint32_t k = 0; k < N; ++k) to[k].squares += shuffle_xor(to[k].squares, m);
  }
  TB_UNROLL
  for (uint32_t k = 0; k < N; ++k) {
    const ByteScale by = byte_scale(largest[k]);
    to[k].scale = by.scale;
    to[k].code = byte_of(weighted[k], by);
    to[k].sum = static_cast<float>(wave_total(to[k].code));
  }
}
/// One tile, the same bits. By itself: made of the above, products of a few rows compile to something a tenth slower (nvcc 13).
TB_DEVICE Q8Value q8_value(float x, float weight) {
  const float weighted = x * weight;
  const ByteScale by = byte_scale(wave_largest(bits(weighted) & 0x7fffffffu));
  const int32_t q = byte_of(weighted, by);
  return {q, by.scale, static_cast<float>(wave_total(q)), wave_sum(x * x)};
}
TB_DEVICE void store_q8_tile(const Q8Rows& to, uint32_t row, uint32_t tile, const Q8Value& value) {
  const uint64_t at = row * to.n_tiles + tile;
  to.codes[at * kQ8Tile + lane()] = static_cast<int8_t>(value.code);
  if (lane() == 0) {
    to.scales[at] = {value.scale, value.sum};
    to.squares[at] = value.squares;
  }
}
TB_DEVICE void write_q8_tile(const Q8Rows& to, uint32_t row, uint32_t tile, float x, float weight) {
  store_q8_tile(to, row, tile, q8_value(x, weight));
}

/// One wave: what the lane adds of a row's squares, to be given to q8_factor.
TB_DEVICE float q8_part(const float* squares, uint32_t n_tiles) {
  constexpr uint32_t kBatch = 4;  // loads in flight
  float part = 0;
  for (uint32_t begin = 0; begin < n_tiles; begin += kBatch * kWave) {
    float s[kBatch];
    TB_UNROLL
    for (uint32_t k = 0; k < kBatch; ++k) {
      const uint32_t i = begin + k * kWave + lane();
      s[k] = i < n_tiles ? squares[i] : 0.f;
    }
    TB_UNROLL
    for (uint32_t k = 0; k < kBatch; ++k) part += s[k];
  }
  return part;
}
TB_DEVICE float q8_factor(float part, uint32_t n_tiles, float eps) { return norm_scale(wave_sum(part), n_tiles * kQ8Tile, eps); }

}  // namespace turbo::gpu
