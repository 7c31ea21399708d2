// Heads of a step's rows on their way into attention: read, normed and rotated by one wave, in registers where the head
// fits its lanes: lane l holds element 32 p + l in x[p].
#pragma once

#include <turbo/kernel/gpu/attend_merge.hpp>
#include <turbo/kernel/gpu/rope.hpp>

namespace turbo::gpu {

/// Where attention's rows come from and where its output goes: memory, as here, or mail (attend_mail.hpp).
///   wait()                             until rows may be read and anything be written; row() waits too
///   row<P>(args, side, row, head, x)   by a wave: a head of q (side 0), k or v; lane l holds element 32 p + l in x[p]
///   kLate                              heads are read by row() alone; else request_head has asked for them
///   output(args, row, head, d, e, x)   element e of a head; a wave holds a tile and comes here together
struct MemoryRows {
#if defined(TB_AMD)  // the kernel begins when rows are there
  static constexpr bool kLate = false;
#else
  static constexpr bool kLate = true;
#endif
  TB_DEVICE void wait() const { wait_for_previous(); }
  template <uint32_t P>
  TB_DEVICE void row(const AttendArgs& args, uint32_t side, uint32_t row, uint32_t head, float (&x)[P]) const {
    const turbo_device_attend& a = args.a;
    const uint32_t d = a.k.head_dim;
    wait();
    const float* const rows = side == 0 ? a.q : side == 1 ? a.k_rows : a.v_rows;
    const float* const from = rows + uint64_t{row} * (side == 0 ? a.q_stride : side == 1 ? a.k_stride : a.v_stride) + uint64_t{head} * d;
    TB_UNROLL
    for (uint32_t p = 0; p < P; ++p) x[p] = from[min_of(p * kWave + lane(), d - 1)];
  }
  TB_DEVICE void output(const AttendArgs& args, uint32_t row, uint32_t head, uint32_t d, uint32_t e, float x) const { write_output(args, row, head, d, e, x); }
};

/// A head of up to 32 * P elements as read, with what its norm and rotation need: all requested before any is waited for.
template <uint32_t P>
struct HeadRow {
  float x[P], weight[P], frequency[P / 2];
  RopeTurn turn[P / 2];
};

/// Whether pairs of the rotation lie in one lane.
template <uint32_t P>
TB_DEVICE bool turns_in_lanes(const turbo_device_attend& a) {
  return a.rope_style == TURBO_ROPE_HALVES && a.rope_dims == kWave * P;
}

template <uint32_t P, bool kRow = true>
TB_DEVICE void request_head(const float* from, uint32_t d, const float* norm, bool rope, const turbo_device_attend& a, HeadRow<P>& row) {
  TB_UNROLL
  for (uint32_t p = 0; p < P; ++p) {
    const uint32_t e = p * kWave + lane(), held = min_of(e, d - 1);
    if (kRow) row.x[p] = from[held];  // not yet zero behind the head: that would wait for it
    row.weight[p] = norm ? norm[held] : 1.0f;
  }
  const bool turns = rope && turns_in_lanes<P>(a);
  TB_UNROLL
  for (uint32_t p = 0; p < P / 2; ++p) row.frequency[p] = turns ? a.rope_frequencies[p * kWave + lane()] : 0.0f;
}

/// Its angles, which need the position but not the row: while the row is on its way.
template <uint32_t P>
TB_DEVICE void turn_head(bool rope, const turbo_device_attend& a, int32_t position, HeadRow<P>& row) {
  if (!rope || !turns_in_lanes<P>(a)) return;
  TB_UNROLL
  for (uint32_t p = 0; p < P / 2; ++p) row.turn[p] = rope_turn(position, row.frequency[p], a.rope_magnitude);
}

/// Normed and rotated as asked for, its angles being known: in row.x, and in shared memory `to` with zeros behind it up to n. The wave has met.
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
    for (uint32_t p = 0; p < P / 2; ++p) rope_pair(row.turn[p], row.x[p], row.x[p + P / 2]);
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
  turn_head(rope, a, position, row);
  finish_head(row, d, n, norm != nullptr, rope, a, position, to);
}

/// The step's rows, a lane each, as far as blocks append them: at most kMaxFusedAppend.
struct StepRows {
  int32_t seq = 0, position = 0, slot = 0;
  uint32_t in_chunk = 0;  // bit a row: of the tile's sequence, its position in one of the block's chunks
  TB_DEVICE uint32_t row(uint32_t n) const {  // n-th of those
    uint32_t left = in_chunk;
    for (uint32_t i = 0; i < n; ++i) left &= left - 1;
    return left ? static_cast<uint32_t>(__builtin_ffs(static_cast<int>(left))) - 1 : 0;
  }
};

/// Heads that the block's waves take before the first scores: the tile's queries, and keys and values of the step's rows in
/// its chunks. This block appends them for itself, the same bytes as every other block of such a chunk writes.
template <class K, class V, uint32_t L, uint32_t NQ, class Shared, class Rows>
struct Heads {
  static constexpr uint32_t P = L / 4;
  const AttendArgs& given;
  Shared& sh;
  const Rows& from;
  uint32_t first_row, kv_head, head_tile;
  HeadRow<P> head;

  TB_DEVICE void request(uint32_t item, uint32_t append_row) {
    const AttendArgs& args = again(given);
    const turbo_device_attend& a = args.a;
    const uint32_t d = a.k.head_dim;
    const bool query = item < NQ, key = !query && (item - NQ) % 2 == 0;
    const uint64_t row = query ? min_of(first_row + row_of_query(args, item), a.max_rows - 1) : append_row;
    const uint64_t column = uint64_t{query ? head_of_query(args, kv_head, head_tile, item) : kv_head} * d;
    const float* const rows = query ? a.q : key ? a.k_rows : a.v_rows;
    const uint64_t stride = query ? a.q_stride : key ? a.k_stride : a.v_stride;
    request_head<P, !Rows::kLate>(rows + row * stride + column, d, query ? a.q_norm : key ? a.k_norm : nullptr, query || key, a, head);
  }
  TB_DEVICE void take(const Tile& tile, const StepRows& rows) {
    const uint32_t n = NQ + 2 * static_cast<uint32_t>(__builtin_popcount(rows.in_chunk));
    TB_NO_UNROLL
    for (uint32_t item = wave(); item < n; item += kAttendWaves) {
      const AttendArgs& args = again(given);
      const turbo_device_attend& a = args.a;
      const uint32_t d = a.k.head_dim;
      const bool query = item < NQ, key = !query && (item - NQ) % 2 == 0;
      const uint32_t append_row = query ? 0 : rows.row((item - NQ) / 2);
      if (item != wave() || (!query && append_row != guess(item))) request(item, append_row);
      const uint32_t slot = static_cast<uint32_t>(shuffle(rows.slot, append_row));
      const int32_t of_tile = shuffle(tile.position, min_of(row_of_query(args, item), tile.n_rows - 1)), of_step = shuffle(rows.position, append_row);
      float* const to = query ? sh.query[item] : sh.scratch[wave()];
      uint8_t* const block = query ? nullptr : block_of_slot(tile, slot, key);  // its id is read meanwhile
      turn_head<P>(query || key, a, query ? of_tile : of_step, head);
      if constexpr (Rows::kLate) {
        const uint32_t row = query ? min_of(first_row + row_of_query(args, item), tile.first_row + tile.n_rows - 1) : append_row;
        from.template row<P>(args, query ? 0 : key ? 1 : 2, row, query ? head_of_query(args, kv_head, head_tile, item) : kv_head, head.x);
      }
      finish_head<P>(head, d, query ? 8 * L : d, query ? a.q_norm != nullptr : key && a.k_norm, query || key, a, query ? of_tile : of_step, to);
      if (query) K::template prepare<L, NQ>(args.k, sh, item, d, head.x);
      else append(tile, block, slot, key, to);
    }
    from.wait();
  }
  /// The row that an item most likely is, before the table is known.
  TB_DEVICE uint32_t guess(uint32_t item) const { return item < NQ ? 0 : min_of((item - NQ) / 2, given.a.max_rows - 1); }

 private:
  TB_DEVICE uint8_t* block_of_slot(const Tile& tile, uint32_t slot, bool key) const {
    const AttendArgs& args = again(given);
    constexpr bool open = K::kForms == 2;
    const KvSide& side = key ? args.k : args.v;
    return const_cast<uint8_t*>(block_of(args.a.table, key ? args.a.k : args.a.v, tile.seq, slot, open)) +
           tile.kv_head * (open ? side.open_head_bytes : side.head_bytes);
  }
  TB_DEVICE void append(const Tile& tile, uint8_t* block, uint32_t slot, bool key, float* x) {
    const AttendArgs& args = again(given);
    const uint32_t d = args.a.k.head_dim;
    if (key && args.k.center) {
      for (uint32_t e = lane(); e < d; e += kWave) x[e] -= args.k.center[uint64_t{tile.kv_head} * d + e];
      sync_wave();
    }
    if (key) K::store(args.k, block, slot % kSplit, x, sh.spare(wave()), d);
    else V::store(args.v, block, slot % kSplit, x, sh.spare(wave()), d);
    sync_wave();
  }
};

}  // namespace turbo::gpu
