// Kernels of a KV codec beside attention itself: rows into the cache, one row moved, blocks packed, and scores and weighted
// values for pairs of codecs that no fused kernel exists for. Bodies, and the macros that name the kernels.
#pragma once

#include <turbo/kernel/gpu/attend.hpp>

namespace turbo::gpu {

constexpr uint32_t kMaxHeadDim = 256;
using HeadScratch = float[kAttendWaves][kMaxHeadDim];

/// One wave a head of a row. Grid: ((kv heads + 3) / 4, max_rows).
template <class Codec>
TB_DEVICE void append_body(const AppendArgs& args) {
  TB_SHARED(HeadScratch, scratch);
  TB_SHARED(HeadScratch, spare);
  const turbo_device_table& t = args.table;
  const uint32_t row = block_y(), head = block_x() * kAttendWaves + wave(), d = args.kv.head_dim;
  if (row >= live_rows(t) || head >= args.kv.n_kv_heads) return;
  float* const x = scratch[wave()];
  turbo_device_attend a{};
  a.eps = args.eps;
  a.rope_dims = args.rope_dims;
  a.rope_style = args.rope_style;
  a.rope_magnitude = args.rope_magnitude;
  a.rope_frequencies = args.rope_frequencies;
  take_head(args.rows + row * args.row_stride + uint64_t{head} * d, x, d, d, args.norm, a, t.position[row], true);
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
  const uint32_t head = block_x() * kAttendWaves + wave();
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
    take_head(a.q + row * a.q_stride + head * d, sh.query[q], d, D, nullptr, a, 0, false);
    K::template prepare<L, NQ>(args.k, sh, q, d);
  }
  sync_block();
  const uint32_t split = chunk * kChunkSplits + wave();
  score_split<K, L, NQ>(args, tile, sh, split);
  for (uint32_t i = lane(); i < kSplit * NQ; i += kWave) {
    const uint32_t q = i / kSplit, key = i % kSplit, position = split * kSplit + key;
    if (sh.queries.valid[q] && position < sh.queries.n_keys[q])
      args.scores[(uint64_t{sh.queries.row[q]} * a.n_heads + sh.queries.head[q]) * args.score_stride + position - args.chunk_begin * kChunk] =
          sh.s[wave()][key * NQ + q];
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
  constexpr uint32_t D = 8 * L, N = NQ * D / kAttendThreads;
  static_assert(NQ * D % kAttendThreads == 0);
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
  if constexpr (V::kForms == 2)
    if (thread() < NQ) sh.forms[thread()] = forms_of_chunk(a.table, tile.seq, sh.queries.n_keys[thread()], chunk, a.v.sinks);
  const uint32_t split = chunk * kChunkSplits + wave();
  for (uint32_t i = lane(); i < kSplit * NQ; i += kWave) {
    const uint32_t q = i / kSplit, key = i % kSplit, position = split * kSplit + key;
    sh.s[wave()][key * NQ + q] = position < sh.queries.n_keys[q]
        ? args.scores[(uint64_t{sh.queries.row[q]} * a.n_heads + sh.queries.head[q]) * args.score_stride + position - args.chunk_begin * kChunk]
        : 0.0f;
  }
  sync_block();
  float value[N];
  chunk_values<V, L, NQ>(args, tile, sh, split, value);
  TB_UNROLL
  for (uint32_t j = 0; j < N; ++j) {
    const uint32_t i = thread() + kAttendThreads * j, q = i / D, e = i % D;
    if (e < d && sh.queries.valid[q] && sh.queries.n_keys[q] > chunk * kChunk)
      args.sums[((uint64_t{sh.queries.row[q]} * a.n_heads + sh.queries.head[q]) * args.n_chunks + block_y()) * args.sum_stride + 2 + e] = value[j];
  }
}

}  // namespace turbo::gpu

#define TB_KV_APPEND(name, Codec)                                                                \
  TB_ATTEND_KERNEL(append_##name, turbo::gpu::AppendArgs) { turbo::gpu::append_body<Codec>(args); } \
  TB_ATTEND_KERNEL(move_##name, turbo::gpu::MoveArgs) { turbo::gpu::move_body<Codec>(args); }

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
