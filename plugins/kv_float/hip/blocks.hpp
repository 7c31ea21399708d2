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
  for (uint32_t b = 0; b * 32 < d; ++b) {
    const uint32_t e = b * 32 + lane();
    const float own = e < d ? x[e] : 0.0f;
    uint32_t magnitude = bits(own) & 0x7fffffffu, largest = magnitude;
    TB_UNROLL
    for (uint32_t m = kWave / 2; m; m >>= 1) {
      const uint32_t other = shuffle_xor(largest, m);
      largest = other > largest ? other : largest;
    }
    float scale = from_bits(largest) / 127.0f;
    if constexpr (BITS == 4) {
      const uint32_t holders = ballot(magnitude == largest);
      scale = shuffle(own, static_cast<uint32_t>(__builtin_ffs(static_cast<int>(holders))) - 1) / -8.0f;
    }
    const uint16_t stored = float_to_half(scale > 65504.0f ? 65504.0f : scale < -65504.0f ? -65504.0f : scale);
    const float kept = half_to_float(stored), divisor = kept == 0.0f ? __builtin_inff() : kept;
    const int32_t code = BITS == 8 ? to_code(own, divisor, -127.0f, 127.0f) : to_code(own, divisor, -8.0f, 7.0f);
    if (lane() == 0) reinterpret_cast<uint16_t*>(head + side.scales_at)[b * kSplit + row] = stored;
    put(b, e, e < d ? code : 0);
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
  TB_DEVICE static void prepare(const KvSide& side, Shared& sh, uint32_t q, uint32_t d) {
    float* const x = sh.query[q];
    if (side.rotated) rotate_head(side, x, sh.scratch[wave()], d);
    for (uint32_t b = 0; b < L / 4; ++b) {
      const uint32_t e = b * 32 + lane();
      const float own = e < d ? x[e] : 0.0f;
      uint32_t largest = bits(own) & 0x7fffffffu;
      TB_UNROLL
      for (uint32_t m = kWave / 2; m; m >>= 1) {
        const uint32_t other = shuffle_xor(largest, m);
        largest = other > largest ? other : largest;
      }
      const bool finite = largest < 0x7f800000u;
      const float scale = finite ? from_bits(largest) / 127.0f : __builtin_nanf("");
      const int32_t code = finite ? to_code(own, scale > 0.0f ? scale : __builtin_inff(), -127.0f, 127.0f) : 0;
      const int32_t sum = wave_sum(code);
      reinterpret_cast<int8_t*>(sh.prepared.code[q])[e] = static_cast<int8_t>(code);
      if (lane() == 0) {
        sh.prepared.scale[q][b] = scale;
        sh.prepared.offset[q][b] = BITS == 4 ? -8 * sum : 0;
      }
    }
    sync_wave();
  }

  template <uint32_t L, uint32_t NQ, bool kFast, class Shared>
  TB_DEVICE static void scores(const KvSide& side, const Shared& sh, const Places<kFast>& places, bool, uint32_t d, uint32_t begin, uint32_t end,
                               float scale, float* s) {
    const uint32_t units = d / kUnit, n_blocks = (d + 31) / 32;
    for (uint32_t k = begin; k < end; k += kWave) {
      const uint32_t key = min_of(k + lane(), end - 1), row = places.row(key);
      const uint8_t* const head = places.head(key);
      const uint8_t* const codes = head + key_unit(row, units, 0);
      const uint16_t* const scales = reinterpret_cast<const uint16_t*>(head + side.scales_at) + row;
      float total[NQ];
      TB_UNROLL
      for (uint32_t q = 0; q < NQ; ++q) total[q] = 0.0f;
      TB_NO_UNROLL
      for (uint32_t b = 0; b < n_blocks; ++b) {
        constexpr uint32_t kUnits = 32 / kUnit;
        const uint32_t here = min_of(kUnits, units - b * kUnits);
        uint32_t word[kUnits];
        TB_UNROLL
        for (uint32_t u = 0; u < kUnits; ++u)  // behind a short block: its last unit again, against zeros of the query
          word[u] = *reinterpret_cast<const uint32_t*>(codes + uint64_t{b * kUnits + min_of(u, here - 1)} * 64);
        const float own = half_to_float(scales[b * kSplit]);
        TB_UNROLL
        for (uint32_t q = 0; q < NQ; ++q) {
          int32_t sum = BITS == 4 ? sh.prepared.offset[q][b] : 0;
          TB_UNROLL
          for (uint32_t u = 0; u < kUnits; ++u) {
            const uint32_t* const codes_of_query = &sh.prepared.code[q][b * 8];
            if constexpr (BITS == 8) {
              sum = dot4(word[u], codes_of_query[u], sum);
            } else {
              sum = dot4(word[u] & 0x0f0f0f0fu, codes_of_query[2 * u], sum);
              sum = dot4(word[u] >> 4 & 0x0f0f0f0fu, codes_of_query[2 * u + 1], sum);
            }
          }
          total[q] = fmadd(static_cast<float>(sum), own * sh.prepared.scale[q][b], total[q]);
        }
      }
      if (k + lane() >= end) continue;
      TB_UNROLL
      for (uint32_t q = 0; q < NQ; ++q)
        if (kFast || key < places.limit[q]) s[key * NQ + q] = total[q] * scale;
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

/// Eight codes of a value row.
template <uint32_t BITS>
struct BlockElement {
  static constexpr bool kScaled = true, kFinishes = BITS == 4;
  struct Word { uint32_t x; };
  using Raw = decltype([] { if constexpr (BITS == 8) return Words2{}; else return Word{}; }());
  TB_DEVICE static uint32_t offset(uint32_t element) { return element * BITS / 8; }
  TB_DEVICE static uint32_t row_bytes(uint32_t d) { return d * BITS / 8; }
  TB_DEVICE static Raw load(const uint8_t* p) { return *reinterpret_cast<const Raw*>(p); }
  TB_DEVICE static float scale(const KvSide& side, const uint8_t* head, uint32_t row, uint32_t element) {
    return half_to_float(reinterpret_cast<const uint16_t*>(head + side.scales_at)[element / 32 * kSplit + row]);
  }
  TB_DEVICE static void convert(const Raw& w, float (&x)[8]) {
    TB_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      if constexpr (BITS == 8) {
        x[i] = static_cast<float>(static_cast<int8_t>(w.x >> (8 * i)));
        x[4 + i] = static_cast<float>(static_cast<int8_t>(w.y >> (8 * i)));
      } else {
        x[i] = static_cast<float>(static_cast<int32_t>(w.x >> (8 * i) & 15u) - 8);
        x[4 + i] = static_cast<float>(static_cast<int32_t>(w.x >> (8 * i + 4) & 15u) - 8);
      }
    }
  }
  TB_DEVICE static uint32_t place(uint32_t sub, uint32_t e, uint32_t d) {
    if constexpr (BITS == 8) return 8 * sub + e;
    const uint32_t block = sub / 4, half = min_of(32, d - 32 * block) / 2;
    return 32 * block + 4 * (sub % 4) + (e < 4 ? e : half + e - 4);
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
