// Keys and values stored as rows of plain numbers: one codec side for attend.hpp over an element type.
//
// A lane holds 8 consecutive elements of a row, kWave / L rows lie beside each other in a wave. Score: fmadd over a lane's
// elements rising, then the lanes' tree, distance L/2 first; then times the row's scale, where it has one.
//
// An element type has Raw (8 elements as loaded), load, convert, offset (bytes before an element of a row), row_bytes, kScaled
// and scale (of a row at an element), kGain (numbers come out of convert times 1 / kGain, a power of two), kFinishes and
// finish, prepare (of a query) and store.
#pragma once

#include <turbo/kernel/gpu/attend.hpp>
#include <turbo/kernel/gpu/rotate_head.hpp>

namespace turbo::gpu {

struct NoTables {};

/// One wave copies a row of a multiple of 4 bytes.
TB_DEVICE void copy_row(const uint8_t* from, uint8_t* to, uint32_t bytes) {
  for (uint32_t i = lane(); i < bytes / 4; i += kWave) reinterpret_cast<uint32_t*>(to)[i] = reinterpret_cast<const uint32_t*>(from)[i];
}

/// Scores of rows; `own_scale` and gain as the codec wants. Shared by the open form of packed codecs.
template <class E, uint32_t L, uint32_t NQ, bool kFast, uint32_t D>
TB_DEVICE void score_rows(const KvSide& side, const float (*query)[D], const Places<kFast>& places, uint32_t pitch, uint32_t d, uint32_t begin,
                          uint32_t end, float scale, float* s) {
  static_assert(D == 8 * L);
  constexpr uint32_t kGroups = kWave / L, U = !kFast ? 2 : NQ * L >= 64 || L == 8 ? 4 : 8, kValues = NQ * U, kKept = reduced_count<L / 2, 1, kValues>;
  const uint32_t sub = lane() % L, group = lane() / L;
  const bool used = 8 * sub < d;
  const uint32_t element = used ? 8 * sub : 0;
  float q[NQ][8];
  TB_UNROLL
  for (uint32_t i = 0; i < NQ; ++i)
    TB_UNROLL
    for (uint32_t e = 0; e < 8; ++e) q[i][e] = query[i][8 * sub + e];
  const uint32_t from = reduced_index<L / 2, 1, kValues>();
  for (uint32_t k = begin; k < end; k += kGroups * U) {
    typename E::Raw raw[U];
    TB_UNROLL
    for (uint32_t u = 0; u < U; ++u) {
      const uint32_t key = min_of(k + u * kGroups + group, end - 1);
      raw[u] = E::load(places.head(key) + uint64_t{places.row(key)} * pitch + E::offset(element));
    }
    float part[kValues];
    TB_UNROLL
    for (uint32_t u = 0; u < U; ++u) {
      float x[8];
      E::convert(raw[u], x);
      if (d != 8 * L) {
        TB_UNROLL
        for (uint32_t e = 0; e < 8; ++e) x[e] = used ? x[e] : 0.0f;
      }
      TB_UNROLL
      for (uint32_t i = 0; i < NQ; ++i) {
        float dot = 0.0f;
        TB_UNROLL
        for (uint32_t e = 0; e < 8; ++e) dot = fmadd(q[i][e], x[e], dot);
        part[i * U + u] = dot;
      }
    }
    reduce_scatter<L / 2, 1>(part, AddJoin{});
    TB_UNROLL
    for (uint32_t j = 0; j < kKept; ++j) {
      const uint32_t i = (from + j) / U, key = k + (from + j) % U * kGroups + group;
      if (key >= end || (!kFast && key >= places.limit[i])) continue;
      float dot = part[j];
      if constexpr (E::kScaled) dot *= E::scale(side, places.head(key), places.row(key), 0);
      s[key * NQ + i] = dot * scale;
    }
  }
}

namespace detail {
// U rows of each lane group from key k on; kCheck: not all of them are wanted by all queries.
template <class E, uint32_t L, uint32_t NQ, uint32_t U, bool kCheck, bool kFast>
TB_DEVICE void add_batch(const KvSide& side, const Places<kFast>& places, uint32_t pitch, uint32_t element, uint32_t k, uint32_t begin, uint32_t end,
                         const float* s, float (&acc)[NQ][8]) {
  constexpr uint32_t kGroups = kWave / L;
  typename E::Raw raw[U];
  float scale[U];
  uint32_t key[U];
  TB_UNROLL
  for (uint32_t u = 0; u < U; ++u) {
    const uint32_t wanted = k + u * kGroups + lane() / L;
    key[u] = !kCheck ? wanted : wanted < begin ? begin : min_of(wanted, end - 1);
    raw[u] = E::load(places.head(key[u]) + uint64_t{places.row(key[u])} * pitch + E::offset(element));
    if constexpr (E::kScaled) scale[u] = E::scale(side, places.head(key[u]), places.row(key[u]), element);
  }
  TB_UNROLL
  for (uint32_t u = 0; u < U; ++u) {
    float x[8];
    E::convert(raw[u], x);
    TB_UNROLL
    for (uint32_t i = 0; i < NQ; ++i) {
      if (kCheck && (key[u] != k + u * kGroups + lane() / L || key[u] >= places.limit[i])) continue;
      float w = s[key[u] * NQ + i];
      if constexpr (E::kScaled) w *= scale[u];
      TB_UNROLL
      for (uint32_t e = 0; e < 8; ++e) acc[i][e] = fmadd(w, x[e], acc[i][e]);
    }
  }
}
}  // namespace detail

/// Weighted rows onto acc: group g of lanes takes the keys k with k % (kWave / L) == g, rising.
template <class E, uint32_t L, uint32_t NQ, bool kFast>
TB_DEVICE void add_rows(const KvSide& side, const Places<kFast>& places, uint32_t pitch, uint32_t d, uint32_t begin, uint32_t end, const float* s,
                        float (&acc)[NQ][8]) {
  constexpr uint32_t kGroups = kWave / L, U = 4;
  const uint32_t element = 8 * (lane() % L) < d ? 8 * (lane() % L) : 0;
  uint32_t k = begin / kGroups * kGroups;
  if constexpr (kFast) {
    for (; k + kGroups * U <= end; k += kGroups * U) detail::add_batch<E, L, NQ, U, false>(side, places, pitch, element, k, begin, end, s, acc);
    for (; k < end; k += kGroups) detail::add_batch<E, L, NQ, 1, false>(side, places, pitch, element, k, begin, end, s, acc);
  } else {
    for (; k < end; k += kGroups) detail::add_batch<E, L, NQ, 1, true>(side, places, pitch, element, k, begin, end, s, acc);
  }
}

/// Eight halves: also the open form of every codec that has one.
struct HalfElement {
  static constexpr bool kScaled = false, kFinishes = false;
  static constexpr float kGain = 1.0f;
  using Raw = Words4;
  TB_DEVICE static uint32_t offset(uint32_t element) { return 2 * element; }
  TB_DEVICE static uint32_t row_bytes(uint32_t d) { return 2 * d; }
  TB_DEVICE static Raw load(const uint8_t* p) { return *reinterpret_cast<const Words4*>(p); }
  TB_DEVICE static void convert(const Raw& w, float (&x)[8]) {
    const uint32_t words[4] = {w.x, w.y, w.z, w.w};
    TB_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      x[2 * i] = half_to_float(static_cast<uint16_t>(words[i]));
      x[2 * i + 1] = half_to_float(static_cast<uint16_t>(words[i] >> 16));
    }
  }
  /// Beyond +-65504, infinity too: +-65504. NaN stays NaN.
  TB_DEVICE static uint16_t round(float x) {
    const float held = x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x;
    return float_to_half(held);
  }
  TB_DEVICE static void prepare(const KvSide&, float*, float*, uint32_t) {}
  TB_DEVICE static void finish(const KvSide&, float*, float*, uint32_t) {}
  TB_DEVICE static void store(const KvSide& side, uint8_t* head, uint32_t row, float* x, float*, uint32_t d) { write(head + uint64_t{row} * side.pitch, x, d); }
  TB_DEVICE static void write(uint8_t* row, const float* x, uint32_t d) {
    for (uint32_t e = 8 * lane(); e < d; e += 8 * kWave) {
      uint32_t words[4];
      TB_UNROLL
      for (uint32_t i = 0; i < 4; ++i) words[i] = round(x[e + 2 * i]) | static_cast<uint32_t>(round(x[e + 2 * i + 1])) << 16;
      *reinterpret_cast<Words4*>(row + 2 * e) = {words[0], words[1], words[2], words[3]};
    }
  }
};

/// A codec of one form over an element type; both sides.
template <class E>
struct RowCodec {
  static constexpr uint32_t kForms = 1;
  static constexpr bool kFinishes = E::kFinishes;
  template <uint32_t L, uint32_t NQ>
  struct Prepared {};
  using Tables = NoTables;
  TB_DEVICE static void load_tables(const KvSide&, Tables&) {}

  template <uint32_t L, uint32_t NQ, class Shared>
  TB_DEVICE static void prepare(const KvSide& side, Shared& sh, uint32_t q, uint32_t d) {
    E::prepare(side, sh.query[q], sh.scratch[wave()], d);
  }
  template <uint32_t L, uint32_t NQ, bool kFast, class Shared>
  TB_DEVICE static void scores(const KvSide& side, const Shared& sh, const Places<kFast>& places, bool, uint32_t d, uint32_t begin, uint32_t end,
                               float scale, float* s) {
    score_rows<E, L, NQ, kFast>(side, sh.query, places, side.pitch, d, begin, end, scale, s);
  }
  template <uint32_t L, uint32_t NQ, bool kFast>
  TB_DEVICE static void add(const KvSide& side, const Tables&, const Places<kFast>& places, bool, uint32_t d, uint32_t begin, uint32_t end,
                            const float* s, float (&acc)[NQ][8]) {
    add_rows<E, L, NQ, kFast>(side, places, side.pitch, d, begin, end, s, acc);
  }
  TB_DEVICE static uint32_t place(uint32_t sub, uint32_t e, uint32_t d) {
    if constexpr (requires { E::place(sub, e, d); }) return E::place(sub, e, d);
    else return 8 * sub + e;
  }
  TB_DEVICE static void finish(const KvSide& side, float* row, uint32_t d, float* spare) { E::finish(side, row, spare, d); }
  TB_DEVICE static void store(const KvSide& side, uint8_t* head, uint32_t row, float* x, float* spare, uint32_t d) { E::store(side, head, row, x, spare, d); }
  TB_DEVICE static void move(const KvSide& side, const uint8_t* from, uint32_t from_row, uint8_t* to, uint32_t to_row, uint32_t d) {
    copy_row(from + uint64_t{from_row} * side.pitch, to + uint64_t{to_row} * side.pitch, E::row_bytes(d));
    // scales lie as [scale of the row][64 rows]
    for (uint32_t i = lane(); i < side.n_scales; i += kWave)
      reinterpret_cast<uint16_t*>(to + side.scales_at)[i * kSplit + to_row] = reinterpret_cast<const uint16_t*>(from + side.scales_at)[i * kSplit + from_row];
  }
};

}  // namespace turbo::gpu
