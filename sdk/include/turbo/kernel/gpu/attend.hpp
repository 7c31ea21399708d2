// Attention over blocks of a KV cache: the skeleton that codecs fill with how a key is scored on its codes and how a value
// is added. The arithmetic's order is attend_order.hpp's.
//
// A block of 256 threads takes one tile of queries (attend_tile.hpp) and, of the chunks of 256 positions, every so many'th
// or, `loop`, all of them in turn. Each split of 64 keys is two waves'; a key is loaded and converted once for all queries
// of the tile. Without `loop` each chunk's partial results go to memory, and the block that comes last for its tile merges
// them in order, so one launch does it all. Nobody waits for anybody.
//
// What a block waits for is memory, so whatever can be asked for is asked for early: table and keys before the kernel waits
// for those ahead of it, or while the chunk before is summed; then its rows; then values, while scores become weights.
//
// Keys below `committed` lie where their position says; beyond, where each row's own path says, so splits that hold such
// keys are taken row by row. Nothing outside the keys of a row is read into it: what other rows or unwritten memory hold,
// NaN too, stays outside.
//
// A key codec K and a value codec V have
//   kForms                         1, or 2: open and packed; rows are stored open, keys below them packed
//   Prepared<L, NQ>                shared memory of prepared queries (K)
//   Tables                         shared memory of tables, filled by load_tables (K and V)
//   prepare<L, NQ>                 by one wave: query q, in shared memory and in lanes, to what scores wants (K)
//   Keys<L>, request<L, kFast>     registers of 32 keys of one form from a base on, and their loads (K)
//   renew<L>                       of the open (or only) form: once more those from a key on (K)
//   scores<L, NQ, kFast>           by one wave: scores of keys among those to s[key * NQ + query] (K)
//   Values<L>, request_values      registers of kHeld steps of kGroups keys of one form, 4 elements a lane (V)
//   add<L, NQ, kAll>               by one wave: those values, weighted, onto acc (V)
//   place(index, e, d)             element of the head that acc[..][e] of the lane with value_index() is (V)
//   kFinishes, finish              by one wave: summed values of the packed (or only) form to the head's own basis, in place
//   store                          by one wave: a row, less its center, into the open (or only) form
// L is lanes a head: 8, 16 or 32 for heads of up to 64, 128 or 256. kFast: keys lie in one block in order.
#pragma once

#include <turbo/kernel/gpu/attend_head.hpp>
#include <turbo/kernel/gpu/attend_merge.hpp>
#include <turbo/kernel/gpu/attend_tile.hpp>

/// Two blocks of a kernel fit a unit.
#if defined(TB_NVIDIA)
#define TB_ATTEND_KERNEL(name, Args) TB_WAITING_KERNEL(name, Args, __launch_bounds__(turbo::gpu::kAttendThreads, 2))
/// One that waits by itself, when it needs its rows. With tiles of one query, which few blocks take, it fits beside a block of
/// eight or nine waves of the product before it.
#define TB_ATTEND_KERNEL_EARLY(name, Args, NQ) \
  extern "C" __global__ void __maxnreg__((NQ) == 1 ? 112 : 128) name(const __grid_constant__ Args args)
#else
#define TB_ATTEND_KERNEL(name, Args) TB_KERNEL(name, Args, turbo::gpu::kAttendThreads)
#define TB_ATTEND_KERNEL_EARLY(name, Args, NQ) TB_ATTEND_KERNEL(name, Args)
#endif

namespace turbo::gpu {

template <class K, class V, uint32_t L, uint32_t NQ>
struct AttendShared {
  static constexpr uint32_t D = 8 * L, kParts = NQ < kSplitWaves ? kSplitWaves : NQ;  // so that every wave has a spare
  alignas(16) float query[NQ][D];
  alignas(16) float parts[kChunkSplits][kParts][D];
  alignas(16) float s[kChunkSplits][kSplit * NQ];
  alignas(16) float scratch[kAttendWaves][D];
  alignas(16) float most[NQ][kAttendWaves];
  alignas(16) float sum[NQ][kChunkSplits];
  typename K::template Prepared<L, NQ> prepared;
  typename K::Tables key_tables;
  typename V::Tables value_tables;
  uint64_t list[kAttendWaves][kSplit];
  uint32_t limit[kAttendWaves][kWave];
  // Kept here between phases, so that they take no registers of those that hold keys and values.
  Tile tile;
  Straight at[kAttendWaves + 1];  // the last has no keys
  bool is_short;                  // see wave_keys_of_short
  TileQueries<NQ> queries;
  uint32_t forms[NQ];
  uint32_t arrived;
  /// Memory of D floats of a wave, as long as there are no parts.
  TB_DEVICE float* spare(uint32_t of_wave) {
    return &parts[0][0][0] + of_wave * D;
  }
};

template <bool B>
struct Always { static constexpr bool value = B; };

/// Keys that a wave has asked for: those of [begin, end) from `from` on.
template <class K, uint32_t L, uint32_t NQ>
struct HeldKeys {
  typename K::template Keys<L, kKeyRegisters<L, NQ>> keys;
  uint32_t from, end;
  bool open;
};
/// Whether a wave asks for no more keys at a time than a short chunk gives it, so for none beyond the block.
template <class K, uint32_t L, uint32_t NQ>
constexpr bool kDealsShort = [] {
  using Keys = typename K::template Keys<L, kKeyRegisters<L, NQ>>;
  if constexpr (requires { Keys::kHeld; }) return Keys::kHeld * Keys::kGroups <= kShortKeys;
  else return false;
}();
template <class V, uint32_t L, uint32_t NQ>
struct HeldValues {
  using Values = typename V::template Values<L>;
  static constexpr uint32_t kSpan = Values::kHeld * Values::kGroups, kBatches = kSplit / kSpan, kAhead = kBatches < kValueBatches<NQ> ? kBatches : kValueBatches<NQ>;
  Values batch[kAhead];
};

/// Ask for the wave's keys, or most of them: those of the last form. Registers are written in any case, so that they are
/// free before.
template <class K, uint32_t L, uint32_t NQ>
TB_DEVICE void request_keys(const AttendArgs& given, const Tile& tile, const WaveKeys& own, const Straight& at, HeldKeys<K, L, NQ>& held) {
  const AttendArgs& args = again(given);
  const uint32_t begin = own.begin, open_end = K::kForms == 2 ? at.open_end[0] : 0;
  held.end = min_of(begin + own.n, at.n);
  held.open = K::kForms == 2 && open_end >= held.end;
  held.from = !held.open && open_end > begin ? open_end : begin;
  if (at.is && begin < held.end)
    K::template request<L, true>(args.k, at.places(args.a.k, args.k, tile.kv_head, held.open, nullptr), held.open, args.a.k.head_dim, begin, held.keys);
  else held.keys = {};
}

/// Scores of this wave's keys, of a split of the chunk that begins at first_split, to s. By every wave.
template <class K, uint32_t L, uint32_t NQ, class Shared>
TB_DEVICE void score_keys(const AttendArgs& given, const Tile& tile, Shared& sh, uint32_t first_split, const WaveKeys& own, const Straight& at,
                          HeldKeys<K, L, NQ>& held) {
  const AttendArgs& args = again(given);
  float* const s = sh.s[own.split];
  const uint32_t d = args.a.k.head_dim, begin = own.begin, split = first_split + own.split, first = split * kSplit;
  uint32_t* const limit = sh.limit[wave()];
  if (at.is) {
    if (!at.whole) {
      const uint32_t seen = lane() < NQ ? sh.queries.n_keys[lane()] : 0;
      limit[lane()] = seen > first ? seen - first : 0;
      if (lane() < own.n && begin + lane() >= at.n) {
        TB_UNROLL
        for (uint32_t q = 0; q < NQ; ++q) s[(begin + lane()) * NQ + q] = kNoScore;
      }
      sync_wave();
    }
    if (begin < held.end) {
      K::template scores<L, NQ, true>(args.k, sh, at.places(args.a.k, args.k, tile.kv_head, held.open, limit), at.whole, held.open, d, begin, held.from,
                                      held.end, held.keys, args.a.scale, s);
      if (K::kForms == 2 && held.from > begin) {  // the first of them are of the other form
        const Places<true> places = at.places(args.a.k, args.k, tile.kv_head, true, limit);
        K::template request<L, true>(args.k, places, true, d, begin, held.keys);
        K::template scores<L, NQ, true>(args.k, sh, places, at.whole, true, d, begin, begin, held.from, held.keys, args.a.scale, s);
      }
    }
  } else {
    for (uint32_t i = lane(); i < own.n * NQ; i += kWave) s[begin * NQ + i] = kNoScore;
    sync_wave();
    walk_rows<K::kForms, NQ>(args, tile, sh.queries, args.a.k, args.k, split, kOpenForm | kPackedForm, begin, begin + own.n, sh.list[wave()],
                             limit, [&](const Places<false>& places, bool open, uint32_t from, uint32_t end) {
                               typename K::template Keys<L, kFewRegisters<L>> keys;
                               K::template request<L, false>(args.k, places, open, d, begin, keys);
                               K::template scores<L, NQ, false>(args.k, sh, places, false, open, d, begin, from, end, keys, args.a.scale, s);
                             });
  }
  sync_wave();
}

template <class Shared>
TB_DEVICE float largest_score(const Shared& sh, uint32_t q) {
  float m = sh.most[q][0];
  TB_UNROLL
  for (uint32_t w = 1; w < kAttendWaves; ++w) m = __builtin_fmaxf(m, sh.most[q][w]);
  return m;
}

/// Scores of the chunk to weights. By every wave; contains a barrier, and another follows.
template <uint32_t NQ, bool kDeals, class Shared>
TB_DEVICE void weigh(Shared& sh, bool is_short) {
  float* s = sh.s[wave_split()] + (wave_part() * kPartKeys + lane()) * NQ;
  bool has = true;
  if constexpr (kDeals) {
    if (is_short) {
      const WaveKeys keys = wave_keys_of_short();
      has = lane() < keys.n;
      s = sh.s[keys.split] + (keys.begin + (has ? lane() : 0)) * NQ;
    }
  }
  float own[NQ], v[NQ];
  TB_UNROLL
  for (uint32_t q = 0; q < NQ; ++q) v[q] = own[q] = s[q];
  reduce_scatter<16, 1>(v, MaxJoin{});
  sh.most[reduced_index<16, 1, NQ>()][wave()] = v[0];
  sync_attend();
  TB_UNROLL
  for (uint32_t q = 0; q < NQ; ++q) {
    const float weight = exp_of(own[q] - largest_score(sh, q));
    if (has) s[q] = weight;
  }
}
/// Sums of the wave's split, either wave for half of the queries.
template <uint32_t NQ, class Shared>
TB_DEVICE void sum_weights(Shared& sh, bool is_short) {
  constexpr uint32_t N = NQ < kSplitWaves ? 1 : NQ / kSplitWaves;
  const float* const s = sh.s[wave_split()];
  const uint32_t first = wave_part() * N;
  if (first >= NQ) return;
  if (is_short && beyond_short()) {
    if (lane() < N) sh.sum[first + lane()][wave_split()] = 0.0f;
    return;
  }
  float v[N];
  TB_UNROLL
  for (uint32_t q = 0; q < N; ++q) v[q] = s[lane() * NQ + first + q] + s[(lane() + kWave) * NQ + first + q];
  reduce_scatter<16, 1>(v, AddJoin{});
  sh.sum[first + reduced_index<16, 1, N>()][wave_split()] = v[0];
}
template <class Shared>
TB_DEVICE float sum_of_chunk(const Shared& sh, uint32_t q) {
  return sh.sum[q][0] + sh.sum[q][1] + sh.sum[q][2] + sh.sum[q][3];
}

template <class V, uint32_t L, uint32_t NQ>
TB_DEVICE void request_batches(const AttendArgs& args, const Places<true>& places, bool open, uint32_t end, HeldValues<V, L, NQ>& held) {
  TB_UNROLL
  for (uint32_t h = 0; h < HeldValues<V, L, NQ>::kAhead; ++h) {
    if (h * HeldValues<V, L, NQ>::kSpan < end)
      V::template request_values<L, true>(args.v, places, open, args.a.v.head_dim, h * HeldValues<V, L, NQ>::kSpan, held.batch[h]);
    else held.batch[h] = {};
  }
}
/// Ask for the first values of the split, those of the packed (or only) form where there are such.
template <class V, uint32_t L, uint32_t NQ>
TB_DEVICE void request_first(const AttendArgs& given, const Tile& tile, const Straight& at, HeldValues<V, L, NQ>& held) {
  const AttendArgs& args = again(given);
  const bool open = V::kForms == 2 && at.open_end[1] == at.n;
  request_batches<V, L, NQ>(args, at.places(args.a.v, args.v, tile.kv_head, open, nullptr), open, at.is ? at.n : 0, held);
}

/// Before the block's rows are there: values of the wave's keys, and its keys beyond the first kAsked, on their way into the far
/// cache. What a step before this one read has been driven out by weights.
template <class K, class V, uint32_t kAsked>
TB_DEVICE void prefetch_split(const AttendArgs& args, const Tile& tile, const WaveKeys& own, const Straight& at) {
#if defined(TB_NVIDIA)
  constexpr uint32_t kLine = 128;
  if (!at.is || K::kForms != 1) return;
  const uint32_t begin = own.begin, n = at.n > begin ? min_of(at.n - begin, own.n) : 0;
  const auto rows = [&](const turbo_device_kv& kv, const KvSide& side, uint32_t from) {
    const uint8_t* const first = at.places(kv, side, tile.kv_head, false, nullptr).head(0) + uint64_t{begin + from} * side.pitch;
    for (uint32_t i = lane() * kLine; i < (n > from ? n - from : 0) * side.pitch; i += kWave * kLine) prefetch_far(first + i);
  };
  rows(args.a.v, args.v, 0);
  if (kAsked < kPartKeys) rows(args.a.k, args.k, kAsked);
#else
  (void)args, (void)tile, (void)own, (void)at;
#endif
}

/// Weighted values of the keys of one form in the wave's split to parts, half of the elements a wave. By every wave.
template <class V, uint32_t L, uint32_t NQ, class Shared>
TB_DEVICE void add_split(const AttendArgs& given, const Tile& tile, Shared& sh, uint32_t split, uint32_t form, const Straight& at, HeldValues<V, L, NQ>& held) {
  using Held = HeldValues<V, L, NQ>;
  const AttendArgs& args = again(given);
  const float* const s = sh.s[wave_split()];
  const uint32_t d = args.a.v.head_dim, first = split * kSplit;
  const bool open = V::kForms == 2 && form == kOpenForm;
  float acc[NQ][4];
  uint32_t seen[NQ];
  TB_UNROLL
  for (uint32_t q = 0; q < NQ; ++q)
    TB_UNROLL
    for (uint32_t e = 0; e < 4; ++e) acc[q][e] = 0.0f;
  if (at.is) {
    const uint32_t open_end = V::kForms == 2 ? at.open_end[1] : 0, begin = open ? 0 : open_end, last_of_form = open ? open_end : at.n;
    const uint32_t end = begin < last_of_form ? last_of_form : 0;
    if (end > 0) {
      const Places<true> places = at.places(args.a.v, args.v, tile.kv_head, open, nullptr);
      if (open && open_end != at.n) request_batches<V, L, NQ>(args, places, open, end, held);
      const auto walk = [&](auto all) {
        TB_NO_UNROLL
        for (uint32_t k = 0; k < end; k += Held::kAhead * Held::kSpan) {
          TB_UNROLL
          for (uint32_t h = 0; h < Held::kAhead; ++h) {
            const uint32_t here = k + h * Held::kSpan, next = here + Held::kAhead * Held::kSpan;
            if (here < end) V::template add<L, NQ, decltype(all)::value>(args.v, sh.value_tables, open, here, begin, seen, held.batch[h], s, acc);
            if (next < end) V::template request_values<L, true>(args.v, places, open, d, next, held.batch[h]);
          }
        }
      };
      if (at.whole && begin == 0 && end == kSplit) {
        walk(Always<true>{});
      } else {
        TB_UNROLL
        for (uint32_t q = 0; q < NQ; ++q) {
          const uint32_t own = sh.queries.n_keys[q], last = own > first ? min_of(own - first, end) : 0;
          seen[q] = last > begin ? last - begin : 0;
        }
        walk(Always<false>{});
      }
    }
  } else {
    const uint32_t* const limit = sh.limit[wave()];
    walk_rows<V::kForms, NQ>(args, tile, sh.queries, args.a.v, args.v, split, form, 0, kSplit, sh.list[wave()], sh.limit[wave()],
                             [&](const Places<false>& places, bool as_open, uint32_t begin, uint32_t end) {
                               TB_UNROLL
                               for (uint32_t q = 0; q < NQ; ++q) {
                                 const uint32_t last = min_of(limit[q], end);
                                 seen[q] = last > begin ? last - begin : 0;
                               }
                               TB_NO_UNROLL
                               for (uint32_t k = begin / Held::kSpan * Held::kSpan; k < end; k += Held::kSpan) {
                                 typename Held::Values batch;
                                 V::template request_values<L, false>(args.v, places, as_open, d, k, batch);
                                 V::template add<L, NQ, false>(args.v, sh.value_tables, as_open, k, begin, seen, batch, s, acc);
                               }
                             });
  }
  constexpr uint32_t kKept = reduced_count<16, L, 4>;
  const uint32_t from = reduced_index<16, L, 4>(), index = value_index<L>();
  TB_UNROLL
  for (uint32_t q = 0; q < NQ; ++q) {
    reduce_scatter<16, L>(acc[q], AddJoin{});
    if (4 * index < d) {
      TB_UNROLL
      for (uint32_t e = 0; e < kKept; ++e) sh.parts[wave_split()][q][open ? 4 * index + from + e : V::place(index, from + e, d)] = acc[q][e];
    }
  }
}

/// The chunk's values: this thread's elements thread() + 256 j of [NQ][8 L]. By the block, which has met since the weights
/// were written; contains barriers. then() is called once the wave's values have been used.
template <class V, uint32_t L, uint32_t NQ, class Shared, uint32_t N, class Then>
TB_DEVICE void chunk_values(const AttendArgs& args, const Tile& tile, Shared& sh, uint32_t split, const Straight& at, HeldValues<V, L, NQ>& held,
                            float (&value)[N], Then then) {
  constexpr uint32_t D = 8 * L;
  const uint32_t d = args.a.v.head_dim;
  uint32_t forms = kPackedForm;
  if constexpr (V::kForms == 2) {
    forms = 0;
    for (uint32_t q = 0; q < NQ; ++q) forms |= sh.forms[q];
  }
  TB_UNROLL
  for (uint32_t j = 0; j < N; ++j) value[j] = 0.0f;
  const auto summed = [&](uint32_t q, uint32_t e) { return sh.parts[0][q][e] + sh.parts[1][q][e] + sh.parts[2][q][e] + sh.parts[3][q][e]; };
  if (forms & kPackedForm) {
    add_split<V, L, NQ>(args, tile, sh, split, kPackedForm, at, held);
    if (V::kForms == 1 || !(forms & kOpenForm)) then();
    sync_attend();
    if constexpr (V::kFinishes) {
      for (uint32_t q = wave(); q < NQ; q += kAttendWaves) {
        for (uint32_t e = lane(); e < d; e += kWave) sh.parts[0][q][e] = summed(q, e);
        sync_wave();
        V::finish(args.v, sh.parts[0][q], d, sh.scratch[wave()]);
      }
      sync_attend();
    }
    TB_UNROLL
    for (uint32_t j = 0; j < N; ++j) {
      const uint32_t i = thread() + kAttendThreads * j, q = i / D, e = i % D;
      if (q < NQ && e < d) value[j] = V::kFinishes ? sh.parts[0][q][e] : summed(q, e);
    }
  }
  if constexpr (V::kForms == 2) {
    if (forms & kOpenForm) {
      if (forms & kPackedForm) sync_attend();
      add_split<V, L, NQ>(args, tile, sh, split, kOpenForm, at, held);
      then();
      sync_attend();
      TB_UNROLL
      for (uint32_t j = 0; j < N; ++j) {
        const uint32_t i = thread() + kAttendThreads * j, q = i / D, e = i % D;
        if (q >= NQ || e >= d) continue;
        const float open = summed(q, e);
        if (sh.forms[q] & kOpenForm) value[j] = sh.forms[q] & kPackedForm ? value[j] + open : open;
      }
    }
  }
}

/// Forms that each query reads in a chunk, by one wave; a barrier follows.
template <uint32_t NQ>
TB_DEVICE void fill_forms(const AttendArgs& args, const Tile& tile, int32_t position, uint32_t chunk, uint32_t* forms) {
  const int32_t of_query = shuffle(position, min_of(row_of_query(args, min_of(lane(), NQ - 1)), tile.n_rows - 1));
  const uint32_t n_keys = min_of(static_cast<uint32_t>(of_query) + 1, args.a.max_chunks * kChunk);
  if (lane() < NQ) forms[lane()] = forms_of_chunk(args.a.table, tile.seq, n_keys, chunk, args.a.v.sinks);
}

/// Which blocks a tile has: heads, chunks and row of this one of a grid of (kv heads * head_tiles, loop ? 1 : up to max_chunks,
/// max_rows).
struct TilePlace {
  uint32_t head, chunk, row, n_heads, n_chunks;
};

/// One block of that grid, by kAttendWaves waves.
template <class K, class V, uint32_t L, uint32_t NQ, class Rows>
TB_DEVICE void attend_tile(const AttendArgs& given, TilePlace place, AttendShared<K, V, L, NQ>& sh, const Rows& from) {
  const AttendArgs& args = again(given);
  constexpr uint32_t D = 8 * L, N = per_thread<NQ * D>;
  static_assert(NQ <= kWave);
  using Shared = AttendShared<K, V, L, NQ>;
  const turbo_device_attend& a = args.a;
  const turbo_device_table& t = a.table;
  const uint32_t d = a.k.head_dim;

  // What a kernel of the same step writes is read after this: rows, and keys that others append. Tables and the keys of
  // earlier steps are there from the start.
  if (!a.k_rows) from.wait();
  const uint32_t kv_head = kv_head_of(args, place.head);
  Heads<K, V, L, NQ, Shared, Rows> heads{args, sh, from, place.row, kv_head, place.head - kv_head * args.head_tiles, {}};
  StepRows rows;
  if (a.k_rows) {
    const uint32_t row = min_of(lane(), a.max_rows - 1);
    rows.seq = t.row_seq[row];
    rows.position = t.position[row];
    rows.slot = t.slot[row];
  }
  if (wave() < NQ || a.k_rows) heads.request(wave(), heads.guess(wave()));
  const Tile found = find_tile(args, place.row, place.head, K::kForms == 2);
  if (!found.live) return from.wait();
  const uint32_t n_chunks = (found.most_keys + kChunk - 1) / kChunk;
  const uint32_t chunk_begin = place.chunk, chunk_step = place.n_chunks;
  if (chunk_begin >= n_chunks) return from.wait();
  if (a.k_rows)
    rows.in_chunk = ballot(lane() < min_of(live_rows(t), a.max_rows) && static_cast<uint32_t>(rows.seq) == found.seq &&
                           static_cast<uint32_t>(rows.position) / kChunk % chunk_step == chunk_begin);
  const int32_t position = found.position;
  const uint32_t renewed = rows.in_chunk ? chunk_begin : n_chunks;  // the chunk whose keys are asked for before the step's own are there

  HeldKeys<K, L, NQ> keys;
  HeldValues<V, L, NQ> values;
  // Where a wave holds no more keys at a time than a short chunk gives it.
  constexpr bool kDeals = kDealsShort<K, L, NQ>;
  const auto keys_of_wave = [&](bool is_short) { return kDeals && is_short ? wave_keys_of_short() : wave_keys(); };
  const auto split_of = [&](const Tile& tile, uint32_t chunk, uint32_t split) {
    return straight_split<K::kForms>(again(given), tile, chunk * kChunkSplits + split);
  };
  const auto begin_chunk = [&](const Tile& tile, const WaveKeys& own, const Straight& at) {
    request_keys<K, L, NQ>(given, tile, own, at, keys);
    sync_wave();  // no lane reads any more where the split before lay
    if (lane() == 0) sh.at[wave()] = at;
    sync_wave();
  };
  const bool found_short = kDeals && found.most_keys <= kShortChunk;
  {
    const WaveKeys own = keys_of_wave(found_short);
    const Straight at = split_of(found, chunk_begin, own.split);
    begin_chunk(found, own, at);
    if (a.k_rows && chunk_begin + chunk_step >= n_chunks) prefetch_split<K, V, kShortKeys>(args, found, own, at);
  }
  if (wave() == kAttendWaves - 2 && lane() == 0) {
    sh.tile = found;
    sh.is_short = found_short;
    sh.at[kAttendWaves] = {};
    sh.at[kAttendWaves].is = true;
  }
  fill_queries(args, found, sh.queries);
  K::load_tables(args.k, sh.key_tables);
  V::load_tables(args.v, sh.value_tables);
  if (V::kForms == 2 && wave() == kAttendWaves - 1) fill_forms<NQ>(args, found, position, chunk_begin, sh.forms);
  heads.take(found, rows);

  float value[N], most[N], sum[N];
  TB_UNROLL
  for (uint32_t j = 0; j < N; ++j) {
    value[j] = sum[j] = 0.0f;
    most[j] = kNoScore;
  }
  sync_attend();
  const Tile& tile = same_in_wave(sh.tile);
  TB_NO_UNROLL
  for (uint32_t chunk = chunk_begin; chunk < n_chunks; chunk += chunk_step) {
    const AttendArgs& args = again(given);
    const turbo_device_attend& a = args.a;
    const uint32_t d = a.v.head_dim;
    const bool is_short = kDeals && sh.is_short;
    const WaveKeys own = keys_of_wave(is_short);
    const Straight& at_keys = same_in_wave(sh.at[wave()]);
    const uint32_t split = chunk * kChunkSplits + wave_split(), first = (chunk * kChunkSplits + own.split) * kSplit;
    if (chunk == renewed && at_keys.is && first + keys.end > tile.committed && own.begin < keys.end && (K::kForms == 1 || keys.open))
      K::template renew<L>(args.k, at_keys.places(a.k, args.k, tile.kv_head, keys.open, nullptr), d, own.begin,  // the step's own are there now
                           tile.committed > first ? tile.committed - first : 0, keys.keys);
    const bool more = chunk + chunk_step < n_chunks;
    const Straight ahead = more ? split_of(tile, chunk + chunk_step, wave_split()) : Straight{};  // its block is known once its keys are asked for
    score_keys<K, L, NQ>(args, tile, sh, chunk * kChunkSplits, own, at_keys, keys);
    const Straight& at = same_in_wave(sh.at[is_short && beyond_short() ? kAttendWaves : wave()]);
    request_first<V, L, NQ>(args, tile, at, values);
    weigh<NQ, kDeals>(sh, is_short);
    sync_attend();
    sum_weights<NQ>(sh, is_short);
    float here[N];
    chunk_values<V, L, NQ>(args, tile, sh, split, at, values, here, [&] {
      if (more) begin_chunk(tile, wave_keys(), ahead);
    });
    const AttendArgs& late = again(given);
    const bool alone = late.loop || n_chunks == 1;
    TB_UNROLL
    for (uint32_t j = 0; j < N; ++j) {
      const uint32_t i = thread() + kAttendThreads * j, q = i / D, e = i % D;
      if (q >= NQ || e >= d || sh.queries.n_keys[q] <= chunk * kChunk) continue;
      const float m = largest_score(sh, q), l = sum_of_chunk(sh, q);
      if (alone && !late.loop) {  // as below, with factors 0 and 1
        value[j] = here[j] + 0.0f;
        sum[j] = l;
      } else if (alone) {
        const MergeFactors f = merge_factors(most[j], m);
        value[j] = merge_into(value[j], f.a, here[j], f.b);
        sum[j] = merge_into(sum[j], f.a, l, f.b);
        most[j] = f.most;
      } else if (sh.queries.valid[q]) {
        float* const p = partial_of(late, sh.queries, q, chunk);
        p[4 + e] = here[j];
        if (e == 0) {
          p[0] = m;
          p[1] = l;
        }
      }
    }
    if (more) {
      if constexpr (V::kForms == 2) {
        sync_attend();
        if (wave() == kAttendWaves - 1) fill_forms<NQ>(args, tile, position, chunk + chunk_step, sh.forms);
      }
      sync_attend();
    }
  }
  const AttendArgs& last = again(given);
  if (last.loop || n_chunks == 1) {
    TB_UNROLL
    for (uint32_t j = 0; j < N; ++j) {
      const uint32_t i = thread() + kAttendThreads * j, q = i / D, e = i % D;
      if (q < NQ && e < d && sh.queries.valid[q]) from.output(last, sh.queries.row[q], sh.queries.head[q], last.a.v.head_dim, e, value[j] / sum[j]);
    }
    return;
  }
  // The partials of this block are seen by all before it is counted; the last to be counted sees those of all.
  const uint32_t n_blocks = min_of(chunk_step, n_chunks);
  fence_device();
  sync_attend();
  if (thread() == 0) {
    uint32_t* const counter = last.counters + uint64_t{tile.first_row} * place.n_heads + place.head;
    sh.arrived = atomic_add(counter, 1);
    if (sh.arrived == n_blocks - 1) store_shared_word(counter, 0);
  }
  sync_attend();
  if (sh.arrived != n_blocks - 1) return;
  fence_device();
  merge_chunks<L, NQ>(given, tile, sh, from);
}

/// The kernel.
template <class K, class V, uint32_t L, uint32_t NQ>
TB_DEVICE void attend_body(const AttendArgs& args) {
  using Shared = AttendShared<K, V, L, NQ>;
  TB_SHARED(Shared, sh);
  let_next_begin();
  attend_tile<K, V, L, NQ>(args, {block_x(), block_y(), block_z(), grid_x(), grid_y()}, sh, MemoryRows{});
}

}  // namespace turbo::gpu
