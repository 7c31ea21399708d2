// Kernels of a KV codec beside attention itself: rows into the cache, one row moved, blocks packed, and scores and weighted
// values for pairs of codecs that no fused kernel exists for. Bodies, and the macros that name the kernels.
#pragma once

#include <turbo/kernel/gpu/attend.hpp>

namespace turbo::gpu {

/// Kernels of rows: a wave a head, four waves a block.
constexpr uint32_t kMaxHeadDim = 256, kRowWaves = 4;
using HeadScratch = float[kRowWaves][kMaxHeadDim];

/// One wave a head of a row. Grid: ((kv heads + 3) / 4, max_rows).
template <class Codec>
TB_DEVICE void append_body(const AppendArgs& args) {
  TB_SHARED(HeadScratch, scratch);
  TB_SHARED(HeadScratch, spare);
  const turbo_device_table& t = args.table;
  const uint32_t row = block_y(), head = block_x() * kRowWaves + wave(), d = args.kv.head_dim;
  if (row >= live_rows(t) || head >= args.kv.n_kv_heads) return;
  float* const x = scratch[wave()];
  turbo_device_attend a{};
  a.eps = args.eps;
  a.rope_dims = args.rope_dims;
  a.rope_style = args.rope_style;
  a.rope_magnitude = args.rope_magnitude;
  a.rope_frequencies = args.rope_frequencies;
  HeadRow<kMaxHeadDim / kWave> held;
  take_head(args.rows + row * args.row_stride + uint64_t{head} * d, x, d, d, args.norm, a, t.position[row], true, held);
  if (args.side.center) {
    for (uint32_t e = lane(); e < d; e += kWave) x[e] -= args.side.center[uint64_t{head} * d + e];
    sync_wave();
  }
  const uint32_t slot = static_cast<uint32_t>(t.slot[row]);
  constexpr bool open = Codec::kForms == 2;
  const uint64_t bytes = open ? args.side.open_head_bytes : args.side.head_bytes;
  uint8_t* const block = const_cast<uint8_t*>(block_of(t, args.kv, static_cast<uint32_t>(t.row_seq[row]), slot, open));
  Codec::store(args.side, block + head * bytes, slot % kSplit, x, spare[wave()], d);
}

/// One wave a head of a part. Grid: ((kv heads + 3) / 4, parts).
template <class Codec>
TB_DEVICE void move_body(const MoveArgs& args) {
  const uint32_t head = block_x() * kRowWaves + wave();
  if (head >= args.n_kv_heads) return;
  const uint64_t bytes = Codec::kForms == 2 ? args.side.open_head_bytes : args.side.head_bytes;
  uint8_t* const base = args.base[block_y()] + head * bytes;
  Codec::move(args.side, base + args.src, args.src_row, base + args.dst, args.dst_row, args.head_dim);
}

/// Scores of one chunk. Grid: (kv heads * head_tiles, n_chunks, max_rows).
template <class K, uint32_t L, uint32_t NQ>
TB_DEVICE void scores_body(const AttendArgs& given) {
  constexpr uint32_t D = 8 * L;
  const AttendArgs& args = again(given);
  using Shared = AttendShared<K, K, L, NQ>;
  TB_SHARED(Shared, sh);
  const turbo_device_attend& a = args.a;
  const Tile tile = find_tile(args, block_z(), block_x(), K::kForms == 2);
  const uint32_t chunk = args.chunk_begin + block_y(), d = a.k.head_dim;
  if (!tile.live || chunk * kChunk >= tile.most_keys) return;
  fill_queries(args, tile, sh.queries);
  K::load_tables(args.k, sh.key_tables);
  sync_block();
  for (uint32_t q = wave(); q < NQ; q += kAttendWaves) {
    const uint64_t row = sh.queries.row[q], head = sh.queries.head[q];
    HeadRow<L / 4> held;
    take_head(a.q + row * a.q_stride + head * d, sh.query[q], d, D, nullptr, a, 0, false, held);
    K::template prepare<L, NQ>(args.k, sh, q, d, held.x);
  }
  sync_block();
  const WaveKeys own = wave_keys();
  const uint32_t split = chunk * kChunkSplits + own.split;
  HeldKeys<K, L, NQ> keys;
  const Straight at = straight_split<K::kForms>(args, tile, split);
  request_keys<K, L, NQ>(args, tile, own, at, keys);
  score_keys<K, L, NQ>(args, tile, sh, chunk * kChunkSplits, own, at, keys);
  for (uint32_t i = lane(); i < kPartKeys * NQ; i += kWave) {
    const uint32_t q = i / kPartKeys, key = wave_part() * kPartKeys + i % kPartKeys, position = split * kSplit + key;
    if (sh.queries.valid[q] && position < sh.queries.n_keys[q])
      args.scores[(uint64_t{sh.queries.row[q]} * a.n_heads + sh.queries.head[q]) * args.score_stride + position - args.chunk_begin * kChunk] =
          sh.s[wave_split()][key * NQ + q];
  }
}

struct NoKeys {
  template <uint32_t L, uint32_t NQ>
  struct Prepared {};
  struct Tables {};
};

/// Weighted values of one chunk. Grid as above.
template <class V, uint32_t L, uint32_t NQ>
TB_DEVICE void accumulate_body(const AttendArgs& given) {
  constexpr uint32_t D = 8 * L, N = per_thread<NQ * D>;
  const AttendArgs& args = again(given);
  using Shared = AttendShared<NoKeys, V, L, NQ>;
  TB_SHARED(Shared, sh);
  const turbo_device_attend& a = args.a;
  const Tile tile = find_tile(args, block_z(), block_x(), V::kForms == 2);
  const uint32_t chunk = args.chunk_begin + block_y(), d = a.v.head_dim;
  if (!tile.live || chunk * kChunk >= tile.most_keys) return;
  fill_queries(args, tile, sh.queries);
  V::load_tables(args.v, sh.value_tables);
  sync_block();
  if (V::kForms == 2 && wave() == kAttendWaves - 1) fill_forms<NQ>(args, tile, tile.position, chunk, sh.forms);
  const uint32_t split = chunk * kChunkSplits + wave_split();
  for (uint32_t i = lane(); i < kPartKeys * NQ; i += kWave) {
    const uint32_t q = i / kPartKeys, key = wave_part() * kPartKeys + i % kPartKeys, position = split * kSplit + key;
    sh.s[wave_split()][key * NQ + q] = position < sh.queries.n_keys[q]
        ? args.scores[(uint64_t{sh.queries.row[q]} * a.n_heads + sh.queries.head[q]) * args.score_stride + position - args.chunk_begin * kChunk]
        : 0.0f;
  }
  HeldValues<V, L, NQ> values;
  const Straight at = straight_split<V::kForms>(args, tile, split);
  request_first<V, L, NQ>(args, tile, at, values);
  sync_block();
  float value[N];
  chunk_values<V, L, NQ>(args, tile, sh, split, at, values, value, [] {});
  TB_UNROLL
  for (uint32_t j = 0; j < N; ++j) {
    const uint32_t i = thread() + kAttendThreads * j, q = i / D, e = i % D;
    if (q < NQ && e < d && sh.queries.valid[q] && sh.queries.n_keys[q] > chunk * kChunk)
      args.sums[((uint64_t{sh.queries.row[q]} * a.n_heads + sh.queries.head[q]) * args.n_chunks + block_y()) * args.sum_stride + 2 + e] = value[j];
  }
}

}  // namespace turbo::gpu

#if defined(TB_NVIDIA)
#define TB_ROW_KERNEL(name, Args) TB_WAITING_KERNEL(name, Args, __launch_bounds__(128, 1))
#else
#define TB_ROW_KERNEL(name, Args) TB_KERNEL(name, Args, 128)
#endif

#define TB_KV_APPEND(name, Codec)                                                              \
  TB_ROW_KERNEL(append_##name, turbo::gpu::AppendArgs) { turbo::gpu::append_body<Codec>(args); } \
  TB_ROW_KERNEL(move_##name, turbo::gpu::MoveArgs) { turbo::gpu::move_body<Codec>(args); }

#define TB_KV_SCORES_ONE(name, K, L, NQ) \
  TB_ATTEND_KERNEL(scores_##name##_##L, turbo::gpu::AttendArgs) { turbo::gpu::scores_body<K, L, NQ>(args); }
#define TB_KV_SUMS_ONE(name, V, L, NQ) \
  TB_ATTEND_KERNEL(sums_##name##_##L, turbo::gpu::AttendArgs) { turbo::gpu::accumulate_body<V, L, NQ>(args); }
/// Tiles of 4 queries.
#define TB_KV_MIXED(name, K, V)   \
  TB_KV_SCORES_ONE(name, K, 8, 4) \
  TB_KV_SCORES_ONE(name, K, 16, 4) \
  TB_KV_SCORES_ONE(name, K, 32, 4) \
  TB_KV_SUMS_ONE(name, V, 8, 4)   \
  TB_KV_SUMS_ONE(name, V, 16, 4)  \
  TB_KV_SUMS_ONE(name, V, 32, 4)
