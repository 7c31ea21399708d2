// The codecs q8 and q4: integer codes with one half as the scale of 32 elements, in the bytes of the CPU half
// (src/block_kernels.h). A lane scores a key of its own: exact integer dots with the query's own codes, then one fused
// multiply-add a block of 32 with the product of both scales, as the CPU tier does.
#pragma once

#include "elements.hpp"

namespace turbo::kv_float {

TB_DEVICE int32_t to_code(float x, float scale, float bottom, float top) {
  const float ratio = x / scale, in = ratio < bottom ? bottom : ratio > top ? top : ratio == ratio ? ratio : 0.0f;
  return static_cast<int32_t>(rintf(in));
}

/// Codes and scales of a row, 32 elements at a time: put(block, element, code) by the lane of each element, all lanes at
/// once, code 0 behind the end.
template <uint32_t BITS, class Put>
TB_DEVICE void round_blocks(const KvSide& side, uint8_t* head, uint32_t row, const float* x, uint32_t d, Put put) {
  TB_NO_UNROLL
  for (uint32_t first = 0; first * 32 < d; first += 4) {
    float own[4];
    uint32_t largest[4];
    TB_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t e = (first + i) * 32 + lane();
      own[i] = e < d ? x[e] : 0.0f;
      largest[i] = wave_largest(bits(own[i]) & 0x7fffffffu);
    }
    TB_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t b = first + i, e = b * 32 + lane();
      if (b * 32 >= d) break;
      float scale = from_bits(largest[i]) / 127.0f;
      if constexpr (BITS == 4) {
        const uint32_t holders = ballot((bits(own[i]) & 0x7fffffffu) == largest[i]);
        scale = shuffle(own[i], static_cast<uint32_t>(__builtin_ffs(static_cast<int>(holders))) - 1) / -8.0f;
      }
      const uint16_t stored = float_to_half(scale > 65504.0f ? 65504.0f : scale < -65504.0f ? -65504.0f : scale);
      const float kept = half_to_float(stored), divisor = kept == 0.0f ? __builtin_inff() : kept;
      const int32_t code = BITS == 8 ? to_code(own[i], divisor, -127.0f, 127.0f) : to_code(own[i], divisor, -8.0f, 7.0f);
      if (lane() == 0) reinterpret_cast<uint16_t*>(head + side.scales_at)[b * kSplit + row] = stored;
      put(b, e, e < d ? code : 0);
    }
  }
}

TB_DEVICE void turn_incoming(const KvSide& side, float* x, float* spare, uint32_t d) {
  for (uint32_t e = lane(); e < d; e += kWave) x[e] = held(x[e]);
  sync_wave();
  if (side.rotated) rotate_head(side, x, spare, d);
}

TB_DEVICE uint64_t key_unit(uint32_t row, uint32_t units, uint32_t u) { return (uint64_t{row / 16 * units + u} * 16 + row % 16) * 4; }

template <uint32_t BITS>
struct BlockKeys {
  static constexpr uint32_t kForms = 1, kUnit = BITS == 8 ? 4 : 8;
  template <uint32_t L, uint32_t NQ>
  struct Prepared {
    alignas(16) uint32_t code[NQ][2 * L];  // int8 of the query, four a word
    float scale[NQ][L / 4];
    int32_t offset[NQ][L / 4];             // nibbles count from 8
  };
  using Tables = NoTables;
  TB_DEVICE static void load_tables(const KvSide&, Tables&) {}

  template <uint32_t L, uint32_t NQ, class Shared>
  TB_DEVICE static void prepare(const KvSide& side, Shared& sh, uint32_t q, uint32_t d, const float (&)[L / 4]) {
    float* const x = sh.query[q];
    if (side.rotated) rotate_head(side, x, sh.scratch[wave()], d);
    TB_UNROLL
    for (uint32_t b = 0; b < L / 4; ++b) {
      const uint32_t e = b * 32 + lane();
      const float own = e < d ? x[e] : 0.0f;
      const uint32_t largest = wave_largest(bits(own) & 0x7fffffffu);
      const bool finite = largest < 0x7f800000u;
      const float scale = finite ? from_bits(largest) / 127.0f : __builtin_nanf("");
      const int32_t code = finite ? to_code(own, scale > 0.0f ? scale : __builtin_inff(), -127.0f, 127.0f) : 0;
      const int32_t sum = wave_total(code);
      reinterpret_cast<int8_t*>(sh.prepared.code[q])[e] = static_cast<int8_t>(code);
      if (lane() == 0) {
        sh.prepared.scale[q][b] = scale;
        sh.prepared.offset[q][b] = BITS == 4 ? -8 * sum : 0;
      }
    }
    sync_wave();
  }

  /// One key a lane: its codes and scales as stored.
  template <uint32_t L, uint32_t>
  struct Keys {
    uint32_t word[8 * L / kUnit];
    uint16_t scale[L / 4];
  };
  template <uint32_t L, bool kFast, class Held>
  TB_DEVICE static void request(const KvSide& side, const Places<kFast>& places, bool, uint32_t d, uint32_t base, Held& keys) {
    const uint32_t units = in_lanes(d / kUnit), n_blocks = in_lanes((d + 31) / 32), key = base + lane(), row = places.row(key);
    const uint8_t* const head = places.head(key);
    const uint8_t* const codes = head + key_unit(row, units, 0);
    const uint16_t* const scales = reinterpret_cast<const uint16_t*>(head + side.scales_at) + row;
    TB_UNROLL
    for (uint32_t u = 0; u < 8 * L / kUnit; ++u)  // behind a short head: its last unit again, against zeros of the query
      keys.word[u] = *reinterpret_cast<const uint32_t*>(codes + uint64_t{min_of(u, units - 1)} * 64);
    TB_UNROLL
    for (uint32_t b = 0; b < L / 4; ++b) keys.scale[b] = scales[min_of(b, n_blocks - 1) * kSplit];
  }
  template <uint32_t L, class Held>
  TB_DEVICE static void renew(const KvSide& side, const Places<true>& places, uint32_t d, uint32_t base, uint32_t, Held& keys) {
    request<L, true>(side, places, false, d, base, keys);
  }
  template <uint32_t L, uint32_t NQ, bool kFast, class Shared, class Held>
  TB_DEVICE static void scores(const KvSide&, const Shared& sh, const Places<kFast>& places, bool whole, bool, uint32_t d, uint32_t base,
                               uint32_t begin, uint32_t end, const Held& keys, float scale, float* s) {
    constexpr uint32_t kUnits = 32 / kUnit;
    const uint32_t key = base + lane();
    constexpr uint32_t kAtOnce = NQ < 4 ? NQ : 4;
    TB_NO_UNROLL
    for (uint32_t first = 0; first < NQ; first += kAtOnce) {
      float total[kAtOnce];
      TB_UNROLL
      for (uint32_t q = 0; q < kAtOnce; ++q) total[q] = 0.0f;
      TB_UNROLL
      for (uint32_t b = 0; b < L / 4; ++b) {
        if (32 * b >= d) break;
        const float own = half_to_float(keys.scale[b]);
        TB_UNROLL
        for (uint32_t q = 0; q < kAtOnce; ++q) {
          const uint32_t* const codes_of_query = &sh.prepared.code[first + q][b * 8];
          int32_t sum = BITS == 4 ? sh.prepared.offset[first + q][b] : 0;
          TB_UNROLL
          for (uint32_t u = 0; u < kUnits; ++u) {
            const uint32_t word = keys.word[b * kUnits + u];
            if constexpr (BITS == 8) {
              sum = dot4(word, codes_of_query[u], sum);
            } else {
              sum = dot4(word & 0x0f0f0f0fu, codes_of_query[2 * u], sum);
              sum = dot4(word >> 4 & 0x0f0f0f0fu, codes_of_query[2 * u + 1], sum);
            }
          }
          total[q] = fmadd(static_cast<float>(sum), own * sh.prepared.scale[first + q][b], total[q]);
        }
      }
      if (key < begin || key >= end) continue;
      TB_UNROLL
      for (uint32_t q = 0; q < kAtOnce; ++q) {
        const bool seen = (kFast && whole) || key < places.limit[first + q];
        if (kFast || seen) s[key * NQ + first + q] = seen ? total[q] * scale : kNoScore;
      }
    }
  }

  TB_DEVICE static void store(const KvSide& side, uint8_t* head, uint32_t row, float* x, float* spare, uint32_t d) {
    turn_incoming(side, x, spare, d);
    round_blocks<BITS>(side, head, row, x, d, [&](uint32_t, uint32_t e, int32_t code) {
      if constexpr (BITS == 8) {
        if (e < d) head[key_unit(row, d / 4, e / 4) + e % 4] = static_cast<uint8_t>(code);
      } else {
        const int32_t high = shuffle(code, (lane() + 4) & 31);
        if (e < d && e % 8 < 4) head[key_unit(row, d / 8, e / 8) + e % 4] = static_cast<uint8_t>((code + 8) | (high + 8) << 4);
      }
    });
  }
  TB_DEVICE static void move(const KvSide& side, const uint8_t* from, uint32_t from_row, uint8_t* to, uint32_t to_row, uint32_t d) {
    for (uint32_t u = lane(); u < d / kUnit; u += kWave)
      *reinterpret_cast<uint32_t*>(to + key_unit(to_row, d / kUnit, u)) = *reinterpret_cast<const uint32_t*>(from + key_unit(from_row, d / kUnit, u));
    for (uint32_t b = lane(); b < side.n_scales; b += kWave)
      reinterpret_cast<uint16_t*>(to + side.scales_at)[b * kSplit + to_row] = reinterpret_cast<const uint16_t*>(from + side.scales_at)[b * kSplit + from_row];
  }
};

/// Codes of a value row, four at a time. Bits of a code under the exponent of the power of two whose last place they are
/// in make a float of that power plus the code.
template <uint32_t BITS>
struct BlockElement {
  static constexpr bool kScaled = true, kFinishes = BITS == 4;
  using Raw4 = decltype([] { if constexpr (BITS == 8) return uint32_t{}; else return uint16_t{}; }());
  TB_DEVICE static uint32_t offset4(uint32_t index) { return index * BITS / 2; }
  TB_DEVICE static uint32_t row_bytes(uint32_t d) { return d * BITS / 8; }
  TB_DEVICE static Raw4 load4(const uint8_t* p) { return *reinterpret_cast<const Raw4*>(p); }
  TB_DEVICE static uint16_t scale4(const KvSide& side, const uint8_t* head, uint32_t row, uint32_t index) {
    return reinterpret_cast<const uint16_t*>(head + side.scales_at)[index / 8 * kSplit + row];
  }
  TB_DEVICE static float scale_of(const KvSide&, uint16_t stored) { return half_to_float(stored); }
  TB_DEVICE static void convert4(Raw4 stored, float (&x)[4]) {
    const uint32_t w = stored;
    if constexpr (BITS == 8) {
      const uint32_t biased = w ^ 0x80808080u, upper = biased >> 16;
      x[0] = from_bits((biased & 0x00ffu) | 0x4b000000u) - 8388736.0f;
      x[1] = from_bits((biased & 0xff00u) | 0x47000000u) - 32896.0f;
      x[2] = from_bits((upper & 0x00ffu) | 0x4b000000u) - 8388736.0f;
      x[3] = from_bits((upper & 0xff00u) | 0x47000000u) - 32896.0f;
    } else {
      x[0] = from_bits((w & 0x000fu) | 0x4b000000u) - 8388616.0f;
      x[1] = from_bits((w & 0x0f00u) | 0x47000000u) - 32776.0f;
      x[2] = from_bits((w & 0x00f0u) | 0x49000000u) - 524296.0f;
      x[3] = from_bits((w & 0xf000u) | 0x45000000u) - 2056.0f;
    }
  }
  TB_DEVICE static uint32_t place(uint32_t index, uint32_t e, uint32_t d) {
    if constexpr (BITS == 8) return 4 * index + e;
    const uint32_t block = index / 8, half = min_of(32, d - 32 * block) / 2;
    return 32 * block + 2 * (index % 8) + e % 2 + (e < 2 ? 0 : half);
  }
  TB_DEVICE static void finish(const KvSide& side, float* row, float* spare, uint32_t d) {
    if (side.rotated) unrotate_head(side, row, spare, d);
  }
  TB_DEVICE static void store(const KvSide& side, uint8_t* head, uint32_t row, float* x, float* spare, uint32_t d) {
    turn_incoming(side, x, spare, d);
    uint8_t* const to = head + uint64_t{row} * side.pitch;
    round_blocks<BITS>(side, head, row, x, d, [&](uint32_t b, uint32_t e, int32_t code) {
      if constexpr (BITS == 8) {
        if (e < d) to[e] = static_cast<uint8_t>(code);
      } else {
        const uint32_t half = min_of(32, d - 32 * b) / 2;
        const int32_t high = shuffle(code, (lane() + half) & 31);
        if (lane() < half) to[16 * b + lane()] = static_cast<uint8_t>((code + 8) | (high + 8) << 4);
      }
    });
  }
};
template <uint32_t BITS>
using BlockValues = RowCodec<BlockElement<BITS>>;

}  // namespace turbo::kv_float
