// Codecs of rotated codes (turbo/kernel/rotated_kv) on a device: open rows of halves, packed pages of 2, 3 or 4 bits. Bytes
// and codes are those of the CPU tier.
//
// Packed scores: the rotated query as int8, levels as int8; a lane has 32 codes of a key, L / 4 lanes a key. The dot is
// exact; score = ((dot * g) * unit) * scale, or with a scale per 32 coordinates the lanes' tree over (dot * g).
// Packed values: a lane has 4 coordinates; one fused multiply-add of (weight * g) and level a key and element. The rotation
// is undone once a chunk, on its sum.
#pragma once

#include <turbo/kernel/gpu/kv_kernels.hpp>
#include <turbo/kernel/gpu/kv_rows.hpp>

namespace turbo::gpu {

// Four bytes of the eight in (low, high), chosen by a selector of four codes. Selectors differ by platform: a nibble a code
// (NVIDIA) or a byte a code. kNibbles: what codes_of_piece makes.
#if defined(TB_NVIDIA)
constexpr bool kNibbleSelectors = true;
TB_DEVICE uint32_t pick_bytes(uint32_t low, uint32_t high, uint32_t selector) { return __byte_perm(low, high, selector); }
#elif defined(TB_AMD)
constexpr bool kNibbleSelectors = false;
TB_DEVICE uint32_t pick_bytes(uint32_t low, uint32_t high, uint32_t selector) { return __builtin_amdgcn_perm(high, low, selector); }
#else
#if defined(TB_FIBER_NIBBLE_SELECTORS)
constexpr bool kNibbleSelectors = true;
#else
constexpr bool kNibbleSelectors = false;
#endif
TB_DEVICE uint32_t pick_bytes(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t table = uint64_t{high} << 32 | low;
  uint32_t out = 0;
  for (uint32_t i = 0; i < 4; ++i) out |= static_cast<uint32_t>(table >> (8 * (selector >> ((kNibbleSelectors ? 4 : 8) * i) & 7)) & 255) << (8 * i);
  return out;
}
#endif

/// Int8 levels of the 8 codes of a piece: code i is byte (i / step) of word a or b, see level_byte().
template <uint32_t BITS>
TB_DEVICE void levels_of_piece(uint32_t piece, const uint32_t (&table)[4], uint32_t& a, uint32_t& b) {
  if constexpr (BITS == 4) {
    const uint32_t first = kNibbleSelectors ? piece & 0xffffu : piece & 0x0f0f0f0fu;
    const uint32_t second = kNibbleSelectors ? piece >> 16 : piece >> 4 & 0x0f0f0f0fu;
    constexpr uint32_t low3 = kNibbleSelectors ? 0x7777u : 0x07070707u, one = kNibbleSelectors ? 0x1111u : 0x01010101u;
    const uint32_t upper_a = pick_bytes(0xff00u, 0, first >> 3 & one), upper_b = pick_bytes(0xff00u, 0, second >> 3 & one);
    const uint32_t low_a = pick_bytes(table[0], table[1], first & low3), high_a = pick_bytes(table[2], table[3], first & low3);
    const uint32_t low_b = pick_bytes(table[0], table[1], second & low3), high_b = pick_bytes(table[2], table[3], second & low3);
    a = (low_a & ~upper_a) | (high_a & upper_a);
    b = (low_b & ~upper_b) | (high_b & upper_b);
  } else {
    constexpr uint32_t mask = (1u << BITS) - 1, step = kNibbleSelectors ? 4 : 8;
    uint32_t first = 0, second = 0;
    TB_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      first |= (piece >> (BITS * i) & mask) << (step * i);
      second |= (piece >> (BITS * (i + 4)) & mask) << (step * i);
    }
    a = pick_bytes(table[0], table[1], first);
    b = pick_bytes(table[0], table[1], second);
  }
}
/// Where code i of a piece lies among the 8 bytes of (a, b).
template <uint32_t BITS>
TB_DEVICE uint32_t level_byte(uint32_t i) {
  return BITS == 4 && !kNibbleSelectors ? (i & 1) * 4 + i / 2 : i;
}

/// A row's scale as stored, and as a number.
TB_DEVICE uint32_t stored_scale(const KvSide& side, const uint8_t* head, uint32_t row, uint32_t k) {
  const uint8_t* const at = head + (in_lanes(side.scales_at) + (row * in_lanes(side.n_scales) + k) * side.scale_bytes);
  return side.scale_bytes == 4 ? *reinterpret_cast<const uint32_t*>(at) : *reinterpret_cast<const uint16_t*>(at);
}
TB_DEVICE float scale_number(const KvSide& side, uint32_t stored) {
  return side.scale_bytes == 4 ? from_bits(stored) : half_to_float(static_cast<uint16_t>(stored));
}

/// What both sides share: open rows of halves.
struct OpenRows {
  static constexpr uint32_t kForms = 2;
  TB_DEVICE static void store(const KvSide& side, uint8_t* head, uint32_t row, const float* x, float*, uint32_t d) {
    HalfElement::write(head + uint64_t{row} * side.open_pitch, x, d);
  }
  TB_DEVICE static void move(const KvSide& side, const uint8_t* from, uint32_t from_row, uint8_t* to, uint32_t to_row, uint32_t d) {
    copy_row(from + uint64_t{from_row} * side.open_pitch, to + uint64_t{to_row} * side.open_pitch, 2 * d);
  }
};

template <uint32_t BITS>
struct RotatedKeys : OpenRows {
  template <uint32_t L, uint32_t NQ>
  struct Prepared {
    alignas(16) uint32_t code[NQ][2 * L];  // int8, in the order of levels_of_piece
    float unit[NQ];
  };
  struct Tables { uint32_t level8[4]; };
  TB_DEVICE static void load_tables(const KvSide& side, Tables& tables) {
    if (wave() == kAttendWaves - 3 && lane() < 4) tables.level8[lane()] = side.level8[lane()];
  }

  template <uint32_t L, uint32_t NQ, class Shared>
  TB_DEVICE static void prepare(const KvSide& side, Shared& sh, uint32_t q, uint32_t d, const float (&)[L / 4]) {
    float* const x = sh.scratch[wave()];
    for (uint32_t e = lane(); e < d; e += kWave) x[e] = sh.query[q][e];
    sync_wave();
    rotate_raw(side, x, sh.spare(wave()), d);
    uint32_t largest = 0;
    for (uint32_t e = lane(); e < d; e += kWave) {
      const uint32_t magnitude = bits(x[e]) & 0x7fffffffu;
      largest = magnitude > largest ? magnitude : largest;
    }
    largest = wave_largest(largest);
    const bool finite = largest < 0x7f800000u;
    const float amax = from_bits(largest), by = finite && amax > 1e-30f ? 127.0f / amax : 0.0f;
    int8_t* const codes = reinterpret_cast<int8_t*>(sh.prepared.code[q]);
    for (uint32_t e = lane(); e < 8 * L; e += kWave) {
      const float code = e < d && finite ? rintf(x[e] * by) : 0.0f;
      codes[e / 8 * 8 + level_byte<BITS>(e % 8)] = static_cast<int8_t>(static_cast<int32_t>(code));
    }
    if (lane() == 0) sh.prepared.unit[q] = finite ? amax * side.factor * (side.level8_unit / 127.0f) : __builtin_nanf("");
    sync_wave();
  }

  /// The BITS words of 32 codes.
  TB_DEVICE static Words4 load_words(const uint8_t* at, bool wide) {
    const uint32_t* const w = reinterpret_cast<const uint32_t*>(at);
    if constexpr (BITS == 2) return {w[0], w[1], 0, 0};
    if constexpr (BITS == 3) return {w[0], w[1], w[2], 0};
    if (wide) return *reinterpret_cast<const Words4*>(at);
    return {w[0], w[1], w[2], w[3]};
  }
  /// 8 codes of those 32.
  TB_DEVICE static uint32_t piece(const Words4& words, uint32_t i) {
    const uint32_t w[4] = {words.x, words.y, words.z, words.w};
    if constexpr (BITS == 4) return w[i];
    if constexpr (BITS == 2) return w[i / 2] >> (16 * (i % 2)) & 0xffffu;
    if constexpr (BITS == 3) return (i == 0 ? w[0] : i == 1 ? w[0] >> 24 | w[1] << 8 : i == 2 ? w[1] >> 16 | w[2] << 16 : w[2] >> 8) & 0xffffffu;
  }

  /// Open keys, or packed ones in the first of the same registers.
  template <uint32_t L, uint32_t R>
  struct Keys {
    static constexpr uint32_t kLanes = L / 4, kGroups = kWave / kLanes, kLoads = kPartKeys / kGroups;
    RowKeys<HalfElement, L, R> rows;
    uint32_t scale[kLoads];
    static_assert(kLoads <= RowKeys<HalfElement, L, R>::kHeld);
  };
  template <uint32_t L, bool kFast, class Held>
  TB_DEVICE static void request(const KvSide& side, const Places<kFast>& places, bool open, uint32_t d, uint32_t base, Held& keys) {
    if (open) return request_rows(places, side.open_pitch, d, base, keys.rows);
    const uint32_t sub = lane() % Held::kLanes, own = 32 * sub < d ? sub : 0;
    const bool wide = d % 32 == 0;
    const uint32_t pitch = in_lanes(side.pitch);
    TB_UNROLL
    for (uint32_t u = 0; u < Held::kLoads; ++u) {
      const uint32_t key = base + u * Held::kGroups + lane() / Held::kLanes, row = places.row(key);
      const uint8_t* const head = places.head(key);
      keys.rows.raw[u] = load_words(head + (row * pitch + 4 * BITS * own), wide);
      keys.scale[u] = stored_scale(side, head, row, side.scale_group ? own : 0);
    }
  }
  template <uint32_t L, class Held>
  TB_DEVICE static void renew(const KvSide& side, const Places<true>& places, uint32_t d, uint32_t base, uint32_t from, Held& keys) {
    renew_rows(places, side.open_pitch, d, base, from, keys.rows);
  }

  template <uint32_t L, uint32_t NQ, bool kFast, class Shared, class Held>
  TB_DEVICE static void scores(const KvSide& side, const Shared& sh, const Places<kFast>& places, bool whole, bool open, uint32_t d, uint32_t base,
                               uint32_t begin, uint32_t end, Held& keys, float scale, float* s) {
    if (open) {
      score_rows<HalfElement, L, NQ, kFast>(side, sh.query, places, whole, side.open_pitch, d, base, begin, end, keys.rows, scale, s);
      return;
    }
    constexpr uint32_t kAtOnce = kQueriesAtOnce<NQ>;  // queries in registers
    constexpr uint32_t kLanes = L / 4, kGroups = kWave / kLanes, U = 2, kValues = kAtOnce * U, kKept = reduced_count<kLanes / 2, 1, kValues>;
    const uint32_t sub = lane() % kLanes, group = lane() / kLanes;
    const bool grouped = side.scale_group != 0;
    uint32_t table[4];
    TB_UNROLL
    for (uint32_t i = 0; i < 4; ++i) table[i] = sh.key_tables.level8[i];
    const uint32_t from = reduced_index<kLanes / 2, 1, kValues>();
    TB_NO_UNROLL
    for (uint32_t first_query = 0; first_query < NQ; first_query += kAtOnce) {
      uint32_t q[kAtOnce][8];
      TB_UNROLL
      for (uint32_t i = 0; i < kAtOnce; ++i)
        TB_UNROLL
        for (uint32_t w = 0; w < 8; ++w) q[i][w] = sh.prepared.code[first_query + i][8 * sub + w];
      TB_UNROLL
      for (uint32_t k = 0; k < Held::kLoads; k += U) {
        if (base + k * kGroups >= end) break;
        float part[kValues], g[U];
        TB_UNROLL
        for (uint32_t u = 0; u < U; ++u) {
          int32_t dot[kAtOnce];
          TB_UNROLL
          for (uint32_t i = 0; i < kAtOnce; ++i) dot[i] = 0;
          TB_UNROLL
          for (uint32_t p = 0; p < 4; ++p) {
            uint32_t a, b;
            levels_of_piece<BITS>(piece(keys.rows.raw[k + u], p), table, a, b);
            TB_UNROLL
            for (uint32_t i = 0; i < kAtOnce; ++i) dot[i] = dot4(b, q[i][2 * p + 1], dot4(a, q[i][2 * p], dot[i]));
          }
          const float own = scale_number(side, keys.scale[k + u]);
          g[u] = grouped ? 1.0f : own;
          TB_UNROLL
          for (uint32_t i = 0; i < kAtOnce; ++i) part[i * U + u] = grouped ? static_cast<float>(dot[i]) * own : static_cast<float>(dot[i]);  // else exact
        }
        reduce_scatter<kLanes / 2, 1>(part, AddJoin{});
        TB_UNROLL
        for (uint32_t j = 0; j < kKept; ++j) {
          const uint32_t i = first_query + (from + j) / U, u = (from + j) % U, key = base + (k + u) * kGroups + group;
          if (key < begin || key >= end) continue;
          const bool seen = (kFast && whole) || key < places.limit[i];
          if (kFast || seen) s[key * NQ + i] = seen ? part[j] * (u ? g[1] : g[0]) * sh.prepared.unit[i] * scale : kNoScore;
        }
      }
    }
  }
};

template <uint32_t BITS>
struct RotatedValues : OpenRows {
  static constexpr bool kFinishes = true;
  struct Tables { float level[16]; };
  TB_DEVICE static void load_tables(const KvSide& side, Tables& tables) {
    if (wave() == kAttendWaves - 4 && lane() < 16) tables.level[lane()] = side.level[lane()];
  }
  TB_DEVICE static uint32_t place(uint32_t index, uint32_t e, uint32_t) { return 4 * index + e; }
  TB_DEVICE static void finish(const KvSide& side, float* row, uint32_t d, float* spare) { unrotate_head(side, row, spare, d); }

  /// Open rows, or of packed ones the 4 codes in the low bits and the scale.
  template <uint32_t L>
  using Values = RowValues<HalfElement, L>;

  TB_DEVICE static uint32_t load_codes(const uint8_t* row, uint32_t index) {
    if constexpr (BITS == 4) return reinterpret_cast<const uint16_t*>(row)[index];
    if constexpr (BITS == 2) return row[index];
    const uint32_t bit = 12 * index;  // two words hold them; behind the last row of a page lie its scales
    const uint32_t* const words = reinterpret_cast<const uint32_t*>(row) + bit / 32;
    return static_cast<uint32_t>((uint64_t{words[1]} << 32 | words[0]) >> (bit % 32));
  }
  template <uint32_t L, bool kFast>
  TB_DEVICE static void request_values(const KvSide& side, const Places<kFast>& places, bool open, uint32_t d, uint32_t k, Values<L>& values) {
    if (open) return gpu::request_values<HalfElement, L, kFast>(side, places, side.open_pitch, d, k, values);
    const uint32_t index = 4 * value_index<L>() < d ? value_index<L>() : 0, pitch = in_lanes(side.pitch);
    TB_UNROLL
    for (uint32_t u = 0; u < Values<L>::kHeld; ++u) {
      const uint32_t key = k + u * Values<L>::kGroups + lane() / L, row = places.row(key);
      const uint8_t* const head = places.head(key);
      values.raw[u] = {load_codes(head + row * pitch, index), stored_scale(side, head, row, side.scale_group ? index / 8 : 0)};
    }
  }
  template <uint32_t L, uint32_t NQ, bool kAll>
  TB_DEVICE static void add(const KvSide& side, const Tables& tables, bool open, uint32_t k, uint32_t begin, const uint32_t (&seen)[NQ],
                            const Values<L>& values, const float* s, float (&acc)[NQ][4]) {
    if (open) return add_values<HalfElement, L, NQ, kAll>(side, k, begin, seen, values, s, acc);
    constexpr uint32_t mask = (1u << BITS) - 1;
    TB_UNROLL
    for (uint32_t u = 0; u < Values<L>::kHeld; ++u) {
      const uint32_t key = k + u * Values<L>::kGroups + lane() / L, codes = values.raw[u].x;
      const float g = scale_number(side, values.raw[u].y);
      float x[4];
      TB_UNROLL
      for (uint32_t e = 0; e < 4; ++e) x[e] = tables.level[codes >> (BITS * e) & mask];
      TB_UNROLL
      for (uint32_t i = 0; i < NQ; ++i) {
        const float w = s[key * NQ + i] * g;
        if (kAll || key - begin < seen[i]) {
          TB_UNROLL
          for (uint32_t e = 0; e < 4; ++e) acc[i][e] = fmadd(w, x[e], acc[i][e]);
        }
      }
    }
  }
};

namespace detail {

// Sums of the CPU tier: sixteen lanes by place, then their tree. Both halves of a wave do the same.
TB_DEVICE float sum_of_16(float v) {
  TB_UNROLL
  for (uint32_t m = 8; m; m >>= 1) v += shuffle_xor(v, m);
  return v;
}

TB_DEVICE float scale_by_rule(uint32_t rule, float norm, float root, float uc, float cc) {
  return rule == 0 ? norm * root / uc : rule == 1 ? norm / sqrtf(cc) : rule == 2 ? norm / root * (uc / cc) : norm / root;
}

}  // namespace detail

/// One open row to codes and scales, by one wave: the bits that the CPU tier stores. A row that is not finite gets scales
/// that are not numbers.
template <uint32_t BITS>
TB_DEVICE void encode_row(const KvSide& side, float* x, float* spare, uint8_t* bytes, uint32_t d, uint8_t* page, uint32_t row) {
  const uint32_t lane16 = lane() % 16;
  float squares = 0.0f;
  for (uint32_t i = lane16; i < d; i += 16) squares = fmadd(x[i], x[i], squares);
  const float square = detail::sum_of_16(squares);
  sync_wave();
  rotate_raw(side, x, spare, d);
  const uint32_t width = side.scale_group ? side.scale_group : d;
  for (uint32_t from = 0, k = 0; from < d; from += width, ++k) {
    const uint32_t n = min_of(width, d - from);
    const float root = sqrtf(static_cast<float>(n));
    float norm = sqrtf(square), to_unit = side.seed ? 1.0f : root;
    if (side.scale_group) {
      float sum = 0.0f;
      for (uint32_t i = lane16; i < n; i += 16) sum = fmadd(x[from + i], x[from + i], sum);
      norm = sqrtf(detail::sum_of_16(sum));
      to_unit = root;
    }
    const float by = norm > 0.0f ? to_unit / norm : 0.0f;
    float uc = 0.0f, cc = 0.0f;
    for (uint32_t i = lane16; i < n; i += 16) {
      const float u = x[from + i] * by;
      uint32_t code = u >= 0.0f ? 1u << (BITS - 1) : 0;
      if constexpr (BITS > 3) code += u >= side.boundary[code + 3] ? 4 : 0;
      if constexpr (BITS > 2) code += u >= side.boundary[code + 1] ? 2 : 0;
      code += u >= side.boundary[code] ? 1 : 0;
      const float c = side.level[code];
      uc = fmadd(u, c, uc);
      cc = fmadd(c, c, cc);
      bytes[from + i] = static_cast<uint8_t>(code);
    }
    uc = detail::sum_of_16(uc);
    cc = detail::sum_of_16(cc);
    if (side.scale_group) norm *= side.factor;
    const float g = norm > 0.0f ? detail::scale_by_rule(side.rule, norm, root, uc, cc) : norm == 0.0f ? 0.0f : __builtin_nanf("");
    uint8_t* const at = page + side.scales_at + uint64_t{row * side.n_scales + k} * side.scale_bytes;
    if (lane() == 0) {
      if (side.scale_bytes == 4) {
        *reinterpret_cast<float*>(at) = g;
      } else {
        const uint16_t half = float_to_half(g >= 65520.0f ? 65504.0f : g);
        *reinterpret_cast<uint16_t*>(at) = half == 0 && g > 0.0f ? static_cast<uint16_t>(1) : half;
      }
    }
  }
  sync_wave();
  uint8_t* const codes = page + uint64_t{row} * side.pitch;
  for (uint32_t p = lane(); p < d / 8; p += kWave) {
    uint32_t piece = 0;
    TB_UNROLL
    for (uint32_t i = 0; i < 8; ++i) piece |= static_cast<uint32_t>(bytes[8 * p + i]) << (BITS * i);
    TB_UNROLL
    for (uint32_t i = 0; i < BITS; ++i) codes[BITS * p + i] = static_cast<uint8_t>(piece >> (8 * i));
  }
}

/// Pack an open block. Grid: (16, kv heads, parts); one wave a row.
template <uint32_t BITS>
TB_DEVICE void pack_body(const PackArgs& args) {
  using Bytes = uint8_t[kRowWaves][kMaxHeadDim];
  TB_SHARED(HeadScratch, scratch);
  TB_SHARED(HeadScratch, spare);
  TB_SHARED(Bytes, bytes);
  const uint32_t row = block_x() * kRowWaves + wave(), d = args.kv.head_dim;
  const PackArgs::Part& part = args.part[block_z()];
  const uint8_t* const open = part.open_base + static_cast<uint64_t>(args.open_id) * args.kv.open_stride + block_y() * args.side.open_head_bytes;
  uint8_t* const page = part.base + static_cast<uint64_t>(args.block_id) * args.kv.stride + block_y() * args.side.head_bytes;
  const uint16_t* const halves = reinterpret_cast<const uint16_t*>(open + uint64_t{row} * args.side.open_pitch);
  for (uint32_t e = lane(); e < d; e += kWave) scratch[wave()][e] = half_to_float(halves[e]);
  sync_wave();
  encode_row<BITS>(args.side, scratch[wave()], spare[wave()], bytes[wave()], d, page, row);
}

}  // namespace turbo::gpu

/// All kernels of the codecs of `bits` bits, whatever their rotation.
#define TB_ROTATED_KV_KERNELS(bits)                                                                              \
  namespace {                                                                                                    \
  using RotatedKeys##bits = turbo::gpu::RotatedKeys<bits>;                                                       \
  using RotatedValues##bits = turbo::gpu::RotatedValues<bits>;                                                   \
  }                                                                                                              \
  TB_ATTEND_KERNELS(rotated##bits, RotatedKeys##bits, RotatedValues##bits)                                       \
  TB_KV_MIXED(rotated##bits, RotatedKeys##bits, RotatedValues##bits)                                             \
  TB_KV_APPEND(rotated##bits, RotatedKeys##bits)                                                                 \
  TB_ROW_KERNEL(pack_rotated##bits, turbo::gpu::PackArgs) { turbo::gpu::pack_body<bits>(args); }
