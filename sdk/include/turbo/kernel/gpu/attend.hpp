// Attention over blocks of a KV cache: the skeleton that codecs fill with how a key is scored on its codes and how a value
// is added. The arithmetic's order is attend_order.hpp's.
//
// A block of 128 threads takes one kv head, one tile of queries (rows of one sequence times heads of the group) and either
// one chunk of 256 positions or, `loop`, all of them in turn. Each of its 4 waves takes a split of 64 keys; a key is loaded
// and converted once for all queries of the tile. One chunk a block: partial results go to memory, and the block that
// comes last for its tile merges them in order, so one launch does it all. Nobody waits for anybody.
//
// Keys below `committed` lie where their position says; beyond, where each row's own path says, so splits that hold such
// keys are taken row by row. Nothing outside the keys of a row is read into it: what other rows or unwritten memory hold,
// NaN too, stays outside.
//
// A key codec K and a value codec V have
//   kForms                         1, or 2: open and packed
//   Prepared<L, NQ>                shared memory of prepared queries (K)
//   Tables                         shared memory of tables, filled by load_tables (K and V)
//   prepare<L, NQ>                 by one wave: query q to what scores wants (K)
//   scores<L, NQ, kFast>           by one wave: scores of keys [begin, end) of one form to s[key * NQ + query]
//   add<L, NQ, kFast>              by one wave: weighted values of keys [begin, end) onto acc (V)
//   place(sub, e, d)               element of the head that acc[..][e] of lane sub is (V)
//   kFinishes, finish              by one wave: summed values of the packed (or only) form to the head's own basis, in place
//   store                          by one wave: a row, less its center, into the open (or only) form
// L is lanes a head: 8, 16 or 32 for heads of up to 64, 128 or 256. kFast: keys lie in one block in order, all wanted.
#pragma once

#include <turbo/kernel/gpu/attend_order.hpp>
#include <turbo/kernel/gpu/kv_side.hpp>
#include <turbo/kernel/gpu/q8.hpp>
#include <turbo/kernel/gpu/rope.hpp>
#include <turbo/kernel/gpu/table.hpp>

/// A kernel of 128 threads that may take all registers there are: ptxas else aims for more blocks and spills.
#if defined(TB_NVIDIA)
#define TB_ATTEND_KERNEL(name, Args) TB_WAITING_KERNEL(name, Args, __launch_bounds__(128, 1))
#else
#define TB_ATTEND_KERNEL(name, Args) TB_KERNEL(name, Args, 128)
#endif

namespace turbo::gpu {

constexpr uint32_t kAttendThreads = 128, kAttendWaves = 4;
static_assert(kAttendWaves == kChunkSplits && kChunk == TURBO_DEVICE_CHUNK && kSplit == TURBO_KV_BLOCK);

/// The kernel's argument struct, loaded anew: what is used late does not lie in scalar registers from the start, of which a
/// large kernel has too few.
template <class Args>
TB_DEVICE const Args& again(const Args& args) {
#if defined(TB_AMD) && defined(__HIP_DEVICE_COMPILE__)
  (void)args;
  typedef const __attribute__((address_space(4))) Args* Pointer;
  Pointer p = (Pointer)__builtin_amdgcn_kernarg_segment_ptr();
  asm volatile("" : "+s"(p));
  return *(const Args*)p;
#else
  return args;
#endif
}

/// A number that is an address of device memory.
TB_DEVICE const uint8_t* device_address(uint64_t address) {
#if defined(TB_AMD) && defined(__HIP_DEVICE_COMPILE__)
  return (const uint8_t*)(const __attribute__((address_space(1))) uint8_t*)address;
#else
  return reinterpret_cast<const uint8_t*>(address);
#endif
}

/// Where the keys of a split lie: head and row of key i.
template <bool kFast>
struct Places {
  uint64_t base;         // kFast: head of the block; keys are its rows
  const uint64_t* list;  // else, shared: head | row
  const uint32_t* limit; // else, shared: queries see keys below
  TB_DEVICE const uint8_t* head(uint32_t i) const { return device_address(kFast ? base : list[i] & ~uint64_t{63}); }
  TB_DEVICE uint32_t row(uint32_t i) const { return kFast ? i : static_cast<uint32_t>(list[i] & 63); }
};

/// Rows and heads of a block; the same in all threads.
struct Tile {
  uint32_t first_row, n_rows, seq, kv_head, head_tile;
  uint32_t committed, least_keys, most_keys;
  uint32_t run_begin;   // first row of the sequence
  bool live, tree, by_row;
};

template <uint32_t NQ>
struct TileQueries {
  uint32_t row[NQ], head[NQ], tile_row[NQ], n_keys[NQ], valid[NQ];
};

/// The tile whose first row is `row`; live is false for rows that begin none. By all waves alike.
TB_DEVICE Tile find_tile(const AttendArgs& args, uint32_t row, uint32_t block, bool two_forms) {
  const turbo_device_table& t = args.a.table;
  Tile tile{};
  tile.first_row = row;
  tile.kv_head = block / args.head_tiles;
  tile.head_tile = block % args.head_tiles;
  const uint32_t n_live = live_rows(t);
  if (row >= n_live) return tile;
  const int32_t seq = t.row_seq[row];
  tile.seq = static_cast<uint32_t>(seq);
  tile.run_begin = row;
  if (args.a.same_sequence) {
    for (bool more = true; more;) {  // rows before this one, 32 at a time, nearest first
      const uint32_t begin = tile.run_begin;
      const bool same = lane() < begin && t.row_seq[lane() < begin ? begin - 1 - lane() : 0] == seq;
      const uint32_t others = ~ballot(same);
      const uint32_t run = others ? static_cast<uint32_t>(__builtin_ffs(static_cast<int>(others))) - 1 : kWave;
      tile.run_begin -= run;
      more = run == kWave;
    }
    if ((row - tile.run_begin) % args.tile_rows != 0) return tile;
  }
  const uint32_t mine = lane() < args.tile_rows && row + lane() < n_live ? row + lane() : row;
  const bool same = t.row_seq[mine] == seq && (mine != row || lane() == 0);
  const uint32_t others = ~ballot(same);
  tile.n_rows = others ? static_cast<uint32_t>(__builtin_ffs(static_cast<int>(others))) - 1 : kWave;
  const uint32_t own = lane() < tile.n_rows ? row + lane() : row;
  const int32_t position = t.position[own];
  uint32_t most = static_cast<uint32_t>(position) + 1, least = most;
  TB_UNROLL
  for (uint32_t m = kWave / 2; m; m >>= 1) {
    const uint32_t a = shuffle_xor(most, m), b = shuffle_xor(least, m);
    most = a > most ? a : most;
    least = b < least ? b : least;
  }
  tile.live = true;
  tile.most_keys = min_of(most, args.a.max_chunks * kChunk);
  tile.least_keys = min_of(least, args.a.max_chunks * kChunk);
  tile.committed = static_cast<uint32_t>(t.committed[seq]);
  tile.tree = ballot(t.path_length[own] > 0) != 0;
  tile.by_row = two_forms && !open_uncommitted(t) && (most - 1) / kSplit != (least - 1) / kSplit;
  return tile;
}

/// By threads below NQ; a barrier follows.
template <uint32_t NQ>
TB_DEVICE void fill_queries(const AttendArgs& args, const Tile& tile, TileQueries<NQ>& queries) {
  const uint32_t q = thread();
  if (q >= NQ) return;
  const uint32_t group = args.a.n_heads / args.a.k.n_kv_heads;
  const uint32_t tile_row = q / args.tile_heads, of_group = tile.head_tile * args.tile_heads + q % args.tile_heads;
  const uint32_t held_row = min_of(tile_row, tile.n_rows - 1), row = tile.first_row + held_row;
  queries.row[q] = row;
  queries.head[q] = tile.kv_head * group + min_of(of_group, group - 1);
  queries.tile_row[q] = held_row;
  queries.n_keys[q] = min_of(static_cast<uint32_t>(args.a.table.position[row]) + 1, args.a.max_chunks * kChunk);
  queries.valid[q] = tile_row < tile.n_rows && of_group < group;
}

constexpr uint32_t kOpenForm = 1, kPackedForm = 2;

/// How many of the first keys of a split a row reads in open form: 0, the sinks, or all.
TB_DEVICE uint32_t open_keys(const turbo_device_table& t, uint32_t seq, uint32_t row_position, uint32_t split, uint32_t sinks) {
  if (reads_open(t, row_position, seq, split * kSplit + kSplit - 1, 0)) return kSplit;
  return split == 0 ? min_of(sinks, kSplit) : 0;
}

/// Forms that a row reads in a chunk.
TB_DEVICE uint32_t forms_of_chunk(const turbo_device_table& t, uint32_t seq, uint32_t n_keys, uint32_t chunk, uint32_t sinks) {
  uint32_t forms = 0;
  for (uint32_t s = chunk * kChunkSplits; s < (chunk + 1) * kChunkSplits && s * kSplit < n_keys; ++s) {
    const uint32_t open = open_keys(t, seq, n_keys - 1, s, sinks), here = min_of(kSplit, n_keys - s * kSplit);
    forms |= (open > 0 ? kOpenForm : 0) | (open < here ? kPackedForm : 0);
  }
  return forms;
}

/// One wave over the keys of a split: fast(places, open, begin, end) or slow(...) for each run of keys of one form among
/// `forms`. list and limit are shared memory of the wave.
template <uint32_t kForms, uint32_t NQ, uint32_t kStep, class Fast, class Slow>
TB_DEVICE void walk_split(const AttendArgs& args, const Tile& tile, const TileQueries<NQ>& queries, const turbo_device_kv& kv, const KvSide& side,
                          uint32_t split, uint32_t forms, uint64_t* list, uint32_t* limit, Fast fast, Slow slow) {
  const turbo_device_table& t = args.a.table;
  const uint32_t first = split * kSplit;
  if (tile.most_keys <= first) return;
  const uint32_t last = min_of(first + kSplit, tile.most_keys);
  const bool by_row = tile.by_row || (tile.tree && last > tile.committed);
  const auto head_of = [&](uint32_t slot, bool open) {
    return reinterpret_cast<uint64_t>(block_of(t, kv, tile.seq, slot, open) + tile.kv_head * (open ? side.open_head_bytes : side.head_bytes));
  };
  uint32_t open_end = kForms == 2 ? open_keys(t, tile.seq, tile.most_keys - 1, split, kv.sinks) : 0;
  if (!by_row && tile.least_keys >= first + kSplit && open_end % kStep == 0) {
    if (kForms == 2 && open_end > 0 && (forms & kOpenForm)) fast(Places<true>{head_of(first, true), nullptr, nullptr}, true, 0u, open_end);
    if (open_end < kSplit && (forms & kPackedForm)) fast(Places<true>{head_of(first, false), nullptr, nullptr}, false, open_end, kSplit);
    return;
  }
  const uint32_t n_passes = by_row ? tile.n_rows : 1;
  for (uint32_t pass = 0; pass < n_passes; ++pass) {
    const uint32_t row = tile.first_row + pass;
    const uint32_t keys = by_row ? min_of(static_cast<uint32_t>(t.position[row]) + 1, args.a.max_chunks * kChunk) : tile.most_keys;
    if (keys <= first) continue;
    const uint32_t n = min_of(kSplit, keys - first);
    if (kForms == 2 && by_row) open_end = open_keys(t, tile.seq, keys - 1, split, kv.sinks);
    sync_wave();
    for (uint32_t i = lane(); i < kSplit; i += kWave) {
      const uint32_t position = first + min_of(i, n - 1), slot = by_row ? slot_of(t, row, tile.seq, position) : position;
      list[i] = head_of(slot, kForms == 2 && min_of(i, n - 1) < open_end) | (slot % kSplit);
    }
    if (lane() < NQ) {
      const uint32_t own = queries.n_keys[lane()], seen = own > first ? min_of(own - first, kSplit) : 0;
      limit[lane()] = by_row && queries.tile_row[lane()] != pass ? 0 : seen;
    }
    sync_wave();
    const Places<false> places{0, list, limit};
    if (kForms == 2 && open_end > 0 && (forms & kOpenForm)) slow(places, true, 0u, min_of(open_end, n));
    if (open_end < n && (forms & kPackedForm)) slow(places, false, open_end, n);
  }
}

template <class K, class V, uint32_t L, uint32_t NQ>
struct AttendShared {
  static constexpr uint32_t D = 8 * L;
  TileQueries<NQ> queries;
  float query[NQ][D];
  typename K::template Prepared<L, NQ> prepared;
  typename K::Tables key_tables;
  typename V::Tables value_tables;
  float scratch[kAttendWaves][D];
  float s[kAttendWaves][kSplit * NQ];
  uint64_t list[kAttendWaves][kSplit];
  uint32_t limit[kAttendWaves][kWave];
  float parts[kAttendWaves][NQ][D];
  float most[kAttendWaves][NQ], sum[kAttendWaves][NQ];
  float state_most[NQ], state_sum[NQ], state_a[NQ], state_b[NQ];
  uint32_t forms[NQ];
  uint32_t arrived;
};

/// A head of a row into shared memory, normed and rotated where asked for; zeros behind it up to n. By one wave.
TB_DEVICE void take_head(const float* from, float* to, uint32_t d, uint32_t n, const float* norm, const turbo_device_attend& a, int32_t position,
                         bool rope) {
  for (uint32_t e = lane(); e < n; e += kWave) to[e] = e < d ? from[e] : 0.0f;
  sync_wave();
  if (norm) {
    norm_head(to, d, norm, a.eps);
    sync_wave();
  }
  if (rope && a.rope_dims) {
    rope_head(to, a.rope_dims, a.rope_style, a.rope_frequencies, a.rope_magnitude, position, lane(), kWave);
    sync_wave();
  }
}

/// Rows of the tile's sequence whose position lies in the chunk, into the cache: this block's own copy of that work, the
/// same bytes as every other block of that chunk writes. A barrier follows.
template <class K, class V, uint32_t L>
TB_DEVICE void append_chunk(const AttendArgs& given, const Tile& tile, uint32_t chunk, float* scratch, float* spare) {
  const AttendArgs& args = again(given);
  const turbo_device_attend& a = args.a;
  const turbo_device_table& t = a.table;
  const uint32_t n_live = live_rows(t), d = a.k.head_dim;
  for (uint32_t row = tile.run_begin + wave(); row < n_live; row += kAttendWaves) {
    if (static_cast<uint32_t>(t.row_seq[row]) != tile.seq) break;
    const int32_t position = t.position[row];
    if (static_cast<uint32_t>(position) / kChunk != chunk) continue;
    const uint32_t slot = static_cast<uint32_t>(t.slot[row]), in_block = slot % kSplit;
    const uint64_t at = row, head = uint64_t{tile.kv_head} * d;
    take_head(a.k_rows + at * a.k_stride + head, scratch, d, d, a.k_norm, a, position, true);
    if (args.k.center)
      for (uint32_t e = lane(); e < d; e += kWave) scratch[e] -= args.k.center[head + e];
    sync_wave();
    constexpr bool open = K::kForms == 2;
    const uint64_t bytes = open ? args.k.open_head_bytes : args.k.head_bytes;
    K::store(args.k, const_cast<uint8_t*>(block_of(t, a.k, tile.seq, slot, open)) + tile.kv_head * bytes, in_block, scratch, spare, d);
    sync_wave();
    take_head(a.v_rows + at * a.v_stride + head, scratch, d, d, nullptr, a, position, false);
    const uint64_t v_bytes = open ? args.v.open_head_bytes : args.v.head_bytes;
    V::store(args.v, const_cast<uint8_t*>(block_of(t, a.v, tile.seq, slot, open)) + tile.kv_head * v_bytes, in_block, scratch, spare, d);
    sync_wave();
  }
}

/// Scores of this wave's split to s, and the largest of each query to most. By every wave.
template <class K, uint32_t L, uint32_t NQ, class Shared>
TB_DEVICE void score_split(const AttendArgs& given, const Tile& tile, Shared& sh, uint32_t split) {
  const AttendArgs& args = again(given);
  float* const s = sh.s[wave()];
  const uint32_t d = args.a.k.head_dim;
  const bool whole = !tile.tree && !tile.by_row && tile.least_keys >= (split + 1) * kSplit;
  if (!whole) {
    sync_wave();
    for (uint32_t i = lane(); i < kSplit * NQ; i += kWave) s[i] = kNoScore;
    sync_wave();
  }
  walk_split<K::kForms, NQ, 1>(
      args, tile, sh.queries, args.a.k, args.k, split, kOpenForm | kPackedForm, sh.list[wave()], sh.limit[wave()],
      [&](const Places<true>& places, bool open, uint32_t begin, uint32_t end) {
        K::template scores<L, NQ, true>(args.k, sh, places, open, d, begin, end, args.a.scale, s);
      },
      [&](const Places<false>& places, bool open, uint32_t begin, uint32_t end) {
        K::template scores<L, NQ, false>(args.k, sh, places, open, d, begin, end, args.a.scale, s);
      });
  sync_wave();
}

template <uint32_t NQ>
TB_DEVICE void split_most(const float* s, float* most) {
  float v[NQ];
  TB_UNROLL
  for (uint32_t q = 0; q < NQ; ++q) v[q] = max_of(s[lane() * NQ + q], s[(lane() + kWave) * NQ + q]);
  reduce_scatter<16, 1>(v, MaxJoin{});
  most[reduced_index<16, 1, NQ>()] = v[0];
}

/// Scores to weights, and their sum.
template <uint32_t NQ>
TB_DEVICE void split_weights(float* s, const float (&most)[NQ], float* sum) {
  float v[NQ];
  TB_UNROLL
  for (uint32_t q = 0; q < NQ; ++q) {
    const float a = exp_of(s[lane() * NQ + q] - most[q]), b = exp_of(s[(lane() + kWave) * NQ + q] - most[q]);
    s[lane() * NQ + q] = a;
    s[(lane() + kWave) * NQ + q] = b;
    v[q] = a + b;
  }
  reduce_scatter<16, 1>(v, AddJoin{});
  sum[reduced_index<16, 1, NQ>()] = v[0];
  sync_wave();
}

/// Weighted values of the keys of one form in this wave's split to parts. By every wave.
template <class V, uint32_t L, uint32_t NQ, class Shared>
TB_DEVICE void add_split(const AttendArgs& given, const Tile& tile, Shared& sh, uint32_t split, uint32_t form) {
  const AttendArgs& args = again(given);
  constexpr uint32_t kGroups = kWave / L;
  const float* const s = sh.s[wave()];
  const uint32_t d = args.a.v.head_dim, sub = lane() % L;
  float acc[NQ][8];
  TB_UNROLL
  for (uint32_t q = 0; q < NQ; ++q)
    TB_UNROLL
    for (uint32_t e = 0; e < 8; ++e) acc[q][e] = 0.0f;
  walk_split<V::kForms, NQ, kGroups>(
      args, tile, sh.queries, args.a.v, args.v, split, form, sh.list[wave()], sh.limit[wave()],
      [&](const Places<true>& places, bool open, uint32_t begin, uint32_t end) {
        V::template add<L, NQ, true>(args.v, sh.value_tables, places, open, d, begin, end, s, acc);
      },
      [&](const Places<false>& places, bool open, uint32_t begin, uint32_t end) {
        V::template add<L, NQ, false>(args.v, sh.value_tables, places, open, d, begin, end, s, acc);
      });
  constexpr uint32_t kKept = reduced_count<16, L, 8>;
  const uint32_t from = reduced_index<16, L, 8>();
  TB_UNROLL
  for (uint32_t q = 0; q < NQ; ++q) {
    reduce_scatter<16, L>(acc[q], AddJoin{});
    if (8 * sub < d) {
      TB_UNROLL
      for (uint32_t e = 0; e < kKept; ++e)
        sh.parts[wave()][q][form == kOpenForm ? 8 * sub + from + e : V::place(sub, from + e, d)] = acc[q][e];
    }
  }
}

/// The chunk's values: this thread's elements thread() + 128 j of [NQ][8 L]. Starts and ends with barriers.
template <class V, uint32_t L, uint32_t NQ, class Shared, uint32_t N>
TB_DEVICE void chunk_values(const AttendArgs& args, const Tile& tile, Shared& sh, uint32_t split, float (&value)[N]) {
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
    add_split<V, L, NQ>(args, tile, sh, split, kPackedForm);
    sync_block();
    if constexpr (V::kFinishes) {
      TB_UNROLL
      for (uint32_t j = 0; j < N; ++j) {
        const uint32_t i = thread() + kAttendThreads * j, q = i / D, e = i % D;
        if (e < d) sh.parts[0][q][e] = summed(q, e);
      }
      sync_block();
      for (uint32_t q = wave(); q < NQ; q += kAttendWaves) V::finish(args.v, sh.parts[0][q], d, sh.scratch[wave()]);
      sync_block();
      TB_UNROLL
      for (uint32_t j = 0; j < N; ++j) {
        const uint32_t i = thread() + kAttendThreads * j, q = i / D, e = i % D;
        if (e < d) value[j] = sh.parts[0][q][e];
      }
    } else {
      TB_UNROLL
      for (uint32_t j = 0; j < N; ++j) {
        const uint32_t i = thread() + kAttendThreads * j, q = i / D, e = i % D;
        if (e < d) value[j] = summed(q, e);
      }
    }
  }
  if constexpr (V::kForms == 2) {
    if (forms & kOpenForm) {
      sync_block();
      add_split<V, L, NQ>(args, tile, sh, split, kOpenForm);
      sync_block();
      TB_UNROLL
      for (uint32_t j = 0; j < N; ++j) {
        const uint32_t i = thread() + kAttendThreads * j, q = i / D, e = i % D;
        if (e >= d) continue;
        const float open = summed(q, e);
        if (sh.forms[q] & kOpenForm) value[j] = sh.forms[q] & kPackedForm ? value[j] + open : open;
      }
    }
  }
}

/// Element e of a head of a row. With bytes wanted heads are whole tiles, so a wave holds one and comes here together.
TB_DEVICE void write_output(const AttendArgs& args, uint32_t row, uint32_t head, uint32_t d, uint32_t e, float x) {
  const uint64_t column = uint64_t{head} * d + e;
  args.a.out[row * args.a.out_stride + column] = x;
  if (args.out_q8.codes) write_q8_tile(args.out_q8, row, static_cast<uint32_t>(column / kQ8Tile), x, 1.f);
}

/// Merge the chunks of the tile's queries, whose partials all lie in memory, and write out. By the block that came last.
template <uint32_t L, uint32_t NQ, class Shared>
TB_DEVICE void merge_chunks(const AttendArgs& given, const Tile& tile, Shared& sh) {
  constexpr uint32_t D = 8 * L, kBatch = 64;
  const AttendArgs& args = again(given);
  const turbo_device_attend& a = args.a;
  const uint32_t d = a.v.head_dim, n_chunks = (tile.most_keys + kChunk - 1) / kChunk;
  float* const keep = sh.s[0];  // [NQ][kBatch]: factor of what is there
  float* const take = sh.s[1];  // of what comes
  float* const sums = sh.s[2];  // its sum, times take
  const auto partial = [&](uint32_t q, uint32_t chunk) {
    return args.partials + ((uint64_t{sh.queries.row[q]} * a.n_heads + sh.queries.head[q]) * a.max_chunks + chunk) * args.partial_stride;
  };
  float* const value = &sh.parts[0][0][0];  // what is merged so far, and its sum; by the thread that goes on with it
  float* const sum = &sh.parts[1][0][0];
  for (uint32_t i = thread(); i < NQ * D; i += kAttendThreads) value[i] = sum[i] = 0.0f;
  for (uint32_t q = thread(); q < NQ; q += kAttendThreads) sh.most[0][q] = kNoScore;
  for (uint32_t begin = 0; begin < n_chunks; begin += kBatch) {
    sync_block();
    for (uint32_t q = wave(); q < NQ; q += kAttendWaves) {
      const uint32_t own = (sh.queries.n_keys[q] + kChunk - 1) / kChunk;
      float carried = sh.most[0][q];
      for (uint32_t i = 0; i < kBatch; i += kWave) {
        const uint32_t chunk = begin + i + lane();
        const float* const p = partial(q, chunk < own ? chunk : 0);
        const float here = chunk < own ? p[0] : kNoScore, l = p[1];
        float most = here;
        TB_UNROLL
        for (uint32_t step = 1; step < kWave; step *= 2) {
          const float before = shuffle(most, lane() >= step ? lane() - step : lane());
          if (lane() >= step) most = max_of(before, most);
        }
        most = max_of(carried, most);
        const float below = shuffle(most, lane() ? lane() - 1 : 0), there = lane() ? below : carried;
        const MergeFactors f = merge_factors(there, here);
        if (chunk < own) {
          keep[q * kBatch + i + lane()] = f.a;
          take[q * kBatch + i + lane()] = f.b;
          sums[q * kBatch + i + lane()] = l;
        }
        carried = shuffle(most, kWave - 1);
      }
      if (lane() == 0) sh.most[0][q] = carried;
    }
    sync_block();
    TB_NO_UNROLL
    for (uint32_t i = thread(); i < NQ * D; i += kAttendThreads) {
      const uint32_t q = i / D, e = i % D;
      if (e >= d) continue;
      const uint32_t own = (sh.queries.n_keys[q] + kChunk - 1) / kChunk;
      const uint32_t n = own > begin ? min_of(kBatch, own - begin) : 0;
      const float* const first = partial(q, n ? begin : 0) + 4 + e;
      const float *const a_of = keep + q * kBatch, *const b_of = take + q * kBatch, *const l_of = sums + q * kBatch;
      float v = value[i], l = sum[i];
      uint32_t c = 0;
      TB_NO_UNROLL
      for (; c + 8 <= n; c += 8) {
        float next[8];
        TB_UNROLL
        for (uint32_t u = 0; u < 8; ++u) next[u] = first[uint64_t{c + u} * args.partial_stride];
        TB_UNROLL
        for (uint32_t u = 0; u < 8; ++u) {
          v = merge_into(v, a_of[c + u], next[u], b_of[c + u]);
          l = merge_into(l, a_of[c + u], l_of[c + u], b_of[c + u]);
        }
      }
      TB_NO_UNROLL
      for (; c < n; ++c) {
        v = merge_into(v, a_of[c], first[uint64_t{c} * args.partial_stride], b_of[c]);
        l = merge_into(l, a_of[c], l_of[c], b_of[c]);
      }
      value[i] = v;
      sum[i] = l;
    }
  }
  TB_NO_UNROLL
  for (uint32_t i = thread(); i < NQ * D; i += kAttendThreads) {
    const uint32_t q = i / D, e = i % D;
    if (e < d && sh.queries.valid[q]) write_output(args, sh.queries.row[q], sh.queries.head[q], d, e, value[i] / sum[i]);
  }
}

/// The kernel. Grid: (kv heads * head_tiles, loop ? 1 : max_chunks, max_rows).
template <class K, class V, uint32_t L, uint32_t NQ>
TB_DEVICE void attend_body(const AttendArgs& given) {
  const AttendArgs& args = again(given);
  constexpr uint32_t D = 8 * L, N = NQ * D / kAttendThreads;
  static_assert(NQ * D % kAttendThreads == 0 && NQ <= kWave);
  using Shared = AttendShared<K, V, L, NQ>;
  TB_SHARED(Shared, sh);
  const turbo_device_attend& a = args.a;
  const Tile tile = find_tile(args, block_z(), block_x(), K::kForms == 2);
  if (!tile.live) return;
  const uint32_t n_chunks = (tile.most_keys + kChunk - 1) / kChunk, d = a.k.head_dim;
  const uint32_t chunk_begin = args.loop ? 0 : block_y(), chunk_end = args.loop ? n_chunks : block_y() + 1;
  if (chunk_begin >= n_chunks) return;
  const bool alone = args.loop || n_chunks == 1;
  const auto partial_of = [&](uint32_t q, uint32_t chunk) {
    return args.partials + ((uint64_t{sh.queries.row[q]} * a.n_heads + sh.queries.head[q]) * a.max_chunks + chunk) * args.partial_stride;
  };

  fill_queries(args, tile, sh.queries);
  K::load_tables(args.k, sh.key_tables);
  V::load_tables(args.v, sh.value_tables);
  if (a.k_rows) append_chunk<K, V, L>(args, tile, chunk_begin, sh.scratch[wave()], sh.parts[wave()][0]);
  sync_block();
  for (uint32_t q = wave(); q < NQ; q += kAttendWaves) {
    const uint64_t row = sh.queries.row[q], head = sh.queries.head[q];
    take_head(a.q + row * a.q_stride + head * d, sh.query[q], d, D, a.q_norm, a, a.table.position[row], true);
    K::template prepare<L, NQ>(args.k, sh, q, d);
  }

  float value[N];
  TB_UNROLL
  for (uint32_t j = 0; j < N; ++j) value[j] = 0.0f;
  if (thread() < NQ) {
    sh.state_most[thread()] = kNoScore;
    sh.state_sum[thread()] = 0.0f;
  }
  for (uint32_t chunk = chunk_begin; chunk < chunk_end; ++chunk) {
    const uint32_t split = chunk * kChunkSplits + wave();
    if constexpr (V::kForms == 2) {
      sync_block();
      if (thread() < NQ) sh.forms[thread()] = forms_of_chunk(a.table, tile.seq, sh.queries.n_keys[thread()], chunk, a.v.sinks);
    }
    sync_block();
    score_split<K, L, NQ>(args, tile, sh, split);
    split_most<NQ>(sh.s[wave()], sh.most[wave()]);
    sync_block();
    float largest[NQ];
    TB_UNROLL
    for (uint32_t q = 0; q < NQ; ++q) largest[q] = max_of(max_of(max_of(sh.most[0][q], sh.most[1][q]), sh.most[2][q]), sh.most[3][q]);
    split_weights<NQ>(sh.s[wave()], largest, sh.sum[wave()]);
    float here[N];
    chunk_values<V, L, NQ>(args, tile, sh, split, here);
    if (thread() < NQ) {
      const uint32_t q = thread();
      const float m = max_of(max_of(max_of(sh.most[0][q], sh.most[1][q]), sh.most[2][q]), sh.most[3][q]);
      const float l = sh.sum[0][q] + sh.sum[1][q] + sh.sum[2][q] + sh.sum[3][q];
      const bool there = sh.queries.n_keys[q] > chunk * kChunk;
      if (!alone) {
        float* const p = partial_of(q, chunk);
        if (there && sh.queries.valid[q]) {
          p[0] = m;
          p[1] = l;
        }
      } else {
        const MergeFactors f = merge_factors(sh.state_most[q], m);
        sh.state_a[q] = there ? f.a : 1.0f;
        sh.state_b[q] = f.b;
        if (there) {
          sh.state_most[q] = f.most;
          sh.state_sum[q] = merge_into(sh.state_sum[q], f.a, l, f.b);
        }
      }
    }
    if (alone) sync_block();
    TB_UNROLL
    for (uint32_t j = 0; j < N; ++j) {
      const uint32_t i = thread() + kAttendThreads * j, q = i / D, e = i % D;
      if (e >= d || sh.queries.n_keys[q] <= chunk * kChunk) continue;
      if (alone) value[j] = merge_into(value[j], sh.state_a[q], here[j], sh.state_b[q]);
      else if (sh.queries.valid[q]) partial_of(q, chunk)[4 + e] = here[j];
    }
  }
  if (alone) {
    TB_UNROLL
    for (uint32_t j = 0; j < N; ++j) {
      const uint32_t i = thread() + kAttendThreads * j, q = i / D, e = i % D;
      if (e < d && sh.queries.valid[q])
        write_output(args, sh.queries.row[q], sh.queries.head[q], d, e, value[j] / sh.state_sum[q]);
    }
    return;
  }
  // The partials of this block are seen by all before it is counted; the last to be counted sees those of all.
  fence_device();
  sync_block();
  if (thread() == 0) {
    uint32_t* const counter = args.counters + uint64_t{tile.first_row} * grid_x() + block_x();
    sh.arrived = atomic_add(counter, 1);
    if (sh.arrived == n_chunks - 1) store_shared_word(counter, 0);
  }
  sync_block();
  if (sh.arrived != n_chunks - 1) return;
  fence_device();
  merge_chunks<L, NQ>(args, tile, sh);
}

}  // namespace turbo::gpu
