// Keys and values stored as rows of plain numbers: one codec side for attend.hpp over an element type.
//
// Keys: a lane holds 8 consecutive elements of a row, kWave / L rows lie beside each other in a wave. Score: fmadd over a
// lane's elements rising, then the lanes' tree, distance L/2 first; then times the row's scale, where it has one.
// Values: a lane holds 4 elements of a row, a wave half of the head's.
//
// An element type has Raw (8 elements as loaded), load, convert, offset (bytes before an element of a row), row_bytes, kScaled
// and scale (of a row at an element), kGain (numbers come out of convert times 1 / kGain, a power of two), kFinishes and
// finish, prepare (of a query) and store; for values Raw4, load4, convert4, offset4 (of the 4 elements of a number), scale4
// (as stored) and scale_of. Where those 4 are not consecutive, place(number, e, d) says which they are.
#pragma once

#include <turbo/kernel/gpu/attend.hpp>
#include <turbo/kernel/gpu/rotate_head.hpp>

namespace turbo::gpu {

struct NoTables {};

/// One wave copies a row of a multiple of 4 bytes.
TB_DEVICE void copy_row(const uint8_t* from, uint8_t* to, uint32_t bytes) {
  for (uint32_t i = lane(); i < bytes / 4; i += kWave) reinterpret_cast<uint32_t*>(to)[i] = reinterpret_cast<const uint32_t*>(from)[i];
}

/// The keys of a wave as read: lane l has 8 elements of every (32 / L)th, `kHeld` of them at a time.
template <class E, uint32_t L, uint32_t REGISTERS>
struct RowKeys {
  static constexpr uint32_t kGroups = kWave / L, kLoads = kPartKeys / kGroups;
  static constexpr uint32_t kMost = REGISTERS / (sizeof(typename E::Raw) < 16 ? 4 : sizeof(typename E::Raw) / 4);
  static constexpr uint32_t kHeld = kLoads < kMost ? kLoads : kMost;
  typename E::Raw raw[kHeld];
};

/// Keys from `base` on, which is the wave's first or one of its loop; rows of the block that are none are read too.
template <class E, uint32_t L, bool kFast, uint32_t R>
TB_DEVICE void request_rows(const Places<kFast>& places, uint32_t pitch, uint32_t d, uint32_t base, RowKeys<E, L, R>& keys) {
  using Keys = RowKeys<E, L, R>;
  const uint32_t element = 8 * (lane() % L) < d ? 8 * (lane() % L) : 0;
  TB_UNROLL
  for (uint32_t u = 0; u < Keys::kHeld; ++u) {
    const uint32_t key = base + u * Keys::kGroups + lane() / L;
    keys.raw[u] = E::load(places.head(key) + (uint64_t{places.row(key)} * pitch + E::offset(element)));
  }
}
/// Once more those from `from` on.
template <class E, uint32_t L, uint32_t R>
TB_DEVICE void renew_rows(const Places<true>& places, uint32_t pitch, uint32_t d, uint32_t base, uint32_t from, RowKeys<E, L, R>& keys) {
  using Keys = RowKeys<E, L, R>;
  const uint32_t element = 8 * (lane() % L) < d ? 8 * (lane() % L) : 0;
  TB_UNROLL
  for (uint32_t u = 0; u < Keys::kHeld; ++u) {
    const uint32_t key = base + u * Keys::kGroups + lane() / L;
    if (base + (u + 1) * Keys::kGroups > from) keys.raw[u] = E::load(places.head(key) + (uint64_t{places.row(key)} * pitch + E::offset(element)));
  }
}

/// Scores of the keys [begin, end) among the 32 from base on, which have been requested. A query that does not see a key
/// gets no score. Shared by the open form of packed codecs.
template <class E, uint32_t L, uint32_t NQ, bool kFast, uint32_t R, uint32_t D>
TB_DEVICE void score_rows(const KvSide& side, const float (*query)[D], const Places<kFast>& places, bool whole, uint32_t pitch, uint32_t d, uint32_t base,
                          uint32_t begin, uint32_t end, RowKeys<E, L, R>& keys, float scale, float* s) {
  static_assert(D == 8 * L);
  using Keys = RowKeys<E, L, R>;
  constexpr uint32_t kAtOnce = kQueriesAtOnce<NQ>;  // queries in registers
  constexpr uint32_t kGroups = Keys::kGroups, kWanted = !kFast ? 2 : kAtOnce * L >= 64 || L == 8 ? 4 : 8;
  constexpr uint32_t U = kWanted < Keys::kHeld ? kWanted : Keys::kHeld, kValues = kAtOnce * U, kKept = reduced_count<L / 2, 1, kValues>;
  static_assert(Keys::kHeld % U == 0);
  const uint32_t sub = lane() % L, group = lane() / L;
  const bool used = 8 * sub < d;
  const uint32_t from = reduced_index<L / 2, 1, kValues>();
  const auto score = [&](uint32_t first_query, const float (&q)[kAtOnce][8], uint32_t k, const typename E::Raw* raw) {
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
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        float dot = 0.0f;
        TB_UNROLL
        for (uint32_t e = 0; e < 8; ++e) dot = fmadd(q[i][e], x[e], dot);
        part[i * U + u] = dot;
      }
    }
    reduce_scatter<L / 2, 1>(part, AddJoin{});
    TB_UNROLL
    for (uint32_t j = 0; j < kKept; ++j) {
      const uint32_t i = first_query + (from + j) / U, key = k + (from + j) % U * kGroups + group;
      if (key < begin || key >= end) continue;
      const bool seen = (kFast && whole) || key < places.limit[i];
      if (!kFast && !seen) continue;
      float dot = part[j];
      if constexpr (E::kScaled) dot *= E::scale(side, places.head(key), places.row(key), 0);
      s[key * NQ + i] = seen ? dot * scale : kNoScore;
    }
  };
  TB_NO_UNROLL
  for (uint32_t k = base;;) {
    TB_NO_UNROLL
    for (uint32_t first_query = 0; first_query < NQ; first_query += kAtOnce) {
      float q[kAtOnce][8];
      TB_UNROLL
      for (uint32_t i = 0; i < kAtOnce; ++i)
        TB_UNROLL
        for (uint32_t e = 0; e < 8; ++e) q[i][e] = query[first_query + i][8 * sub + e];
      TB_UNROLL
      for (uint32_t b = 0; b < Keys::kHeld; b += U)
        if (k + b * kGroups < end) score(first_query, q, k + b * kGroups, keys.raw + b);
    }
    if constexpr (Keys::kHeld == Keys::kLoads) break;
    k += Keys::kHeld * kGroups;
    if (k >= end) break;
    request_rows(places, pitch, d, k, keys);
  }
}

/// Values of a wave as read: lane l has 4 elements of kHeld steps of (32 / L) keys.
template <class E, uint32_t L>
struct RowValues {
  static constexpr uint32_t kGroups = kWave / L, kHeld = kValueSteps;
  typename E::Raw4 raw[kHeld];
  uint16_t scale[E::kScaled ? kHeld : 1];
};

template <class E, uint32_t L, bool kFast>
TB_DEVICE void request_values(const KvSide& side, const Places<kFast>& places, uint32_t pitch, uint32_t d, uint32_t k, RowValues<E, L>& values) {
  using Values = RowValues<E, L>;
  const uint32_t index = 4 * value_index<L>() < d ? value_index<L>() : 0;
  TB_UNROLL
  for (uint32_t u = 0; u < Values::kHeld; ++u) {
    const uint32_t key = k + u * Values::kGroups + lane() / L;
    values.raw[u] = E::load4(places.head(key) + (uint64_t{places.row(key)} * pitch + E::offset4(index)));
    if constexpr (E::kScaled) values.scale[u] = E::scale4(side, places.head(key), places.row(key), index);
  }
}

/// Weighted rows onto acc: group g of lanes takes the keys k with k % (kWave / L) == g, rising. seen[q]: how many keys from
/// begin on query q sees; not read where every query sees all (kAll).
template <class E, uint32_t L, uint32_t NQ, bool kAll>
TB_DEVICE void add_values(const KvSide& side, uint32_t k, uint32_t begin, const uint32_t (&seen)[NQ], const RowValues<E, L>& values, const float* s,
                          float (&acc)[NQ][4]) {
  using Values = RowValues<E, L>;
  TB_UNROLL
  for (uint32_t u = 0; u < Values::kHeld; ++u) {
    const uint32_t key = k + u * Values::kGroups + lane() / L;
    float x[4], by = 1.0f;
    E::convert4(values.raw[u], x);
    if constexpr (E::kScaled) by = E::scale_of(side, values.scale[u]);
    TB_UNROLL
    for (uint32_t i = 0; i < NQ; ++i) {
      float w = s[key * NQ + i];
      if constexpr (E::kScaled) w *= by;
      if (kAll || key - begin < seen[i]) {
        TB_UNROLL
        for (uint32_t e = 0; e < 4; ++e) acc[i][e] = fmadd(w, x[e], acc[i][e]);
      }
    }
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
  using Raw4 = Words2;
  TB_DEVICE static uint32_t offset4(uint32_t index) { return 8 * index; }
  TB_DEVICE static Raw4 load4(const uint8_t* p) { return *reinterpret_cast<const Words2*>(p); }
  TB_DEVICE static void convert4(const Raw4& w, float (&x)[4]) {
    x[0] = half_to_float(static_cast<uint16_t>(w.x));
    x[1] = half_to_float(static_cast<uint16_t>(w.x >> 16));
    x[2] = half_to_float(static_cast<uint16_t>(w.y));
    x[3] = half_to_float(static_cast<uint16_t>(w.y >> 16));
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
  TB_DEVICE static void prepare(const KvSide& side, Shared& sh, uint32_t q, uint32_t d, const float (&)[L / 4]) {
    E::prepare(side, sh.query[q], sh.scratch[wave()], d);
  }
  template <uint32_t L, uint32_t R>
  using Keys = RowKeys<E, L, R>;
  template <uint32_t L, bool kFast, class Held>
  TB_DEVICE static void request(const KvSide& side, const Places<kFast>& places, bool, uint32_t d, uint32_t base, Held& keys) {
    request_rows(places, side.pitch, d, base, keys);
  }
  template <uint32_t L, class Held>
  TB_DEVICE static void renew(const KvSide& side, const Places<true>& places, uint32_t d, uint32_t base, uint32_t from, Held& keys) {
    renew_rows(places, side.pitch, d, base, from, keys);
  }
  template <uint32_t L, uint32_t NQ, bool kFast, class Shared, class Held>
  TB_DEVICE static void scores(const KvSide& side, const Shared& sh, const Places<kFast>& places, bool whole, bool, uint32_t d, uint32_t base,
                               uint32_t begin, uint32_t end, Held& keys, float scale, float* s) {
    score_rows<E, L, NQ, kFast>(side, sh.query, places, whole, side.pitch, d, base, begin, end, keys, scale, s);
  }
  template <uint32_t L>
  using Values = RowValues<E, L>;
  template <uint32_t L, bool kFast>
  TB_DEVICE static void request_values(const KvSide& side, const Places<kFast>& places, bool, uint32_t d, uint32_t k, Values<L>& values) {
    gpu::request_values<E, L, kFast>(side, places, side.pitch, d, k, values);
  }
  template <uint32_t L, uint32_t NQ, bool kAll>
  TB_DEVICE static void add(const KvSide& side, const Tables&, bool, uint32_t k, uint32_t begin, const uint32_t (&seen)[NQ], const Values<L>& values,
                            const float* s, float (&acc)[NQ][4]) {
    add_values<E, L, NQ, kAll>(side, k, begin, seen, values, s, acc);
  }
  TB_DEVICE static uint32_t place(uint32_t index, uint32_t e, uint32_t d) {
    if constexpr (requires { E::place(index, e, d); }) return E::place(index, e, d);
    else return 4 * index + e;
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
