// What a block of an attention kernel works on: rows and heads, found from the step table, and where their keys lie.
//
// A block takes one kv head and one tile of queries (rows of one sequence times heads of the group). Each split of 64 keys
// is two waves': either scores its own 32 keys, and adds the values of all 64 for its own half of the elements.
#pragma once

#include <turbo/kernel/gpu/attend_order.hpp>
#include <turbo/kernel/gpu/kv_side.hpp>
#include <turbo/kernel/gpu/table.hpp>

namespace turbo::gpu {

constexpr uint32_t kSplitWaves = 2, kPartKeys = kSplit / kSplitWaves;
constexpr uint32_t kAttendWaves = kChunkSplits * kSplitWaves, kAttendThreads = kAttendWaves * kWave;
static_assert(kPartKeys == kWave && kChunk == TURBO_DEVICE_CHUNK && kSplit == TURBO_KV_BLOCK);

/// Attention's waves meet. They are the whole block, or in a step kernel (TB_STEP) the first of a larger one.
#if !defined(TB_STEP)
#define TB_ATTEND_WHOLE 1
TB_DEVICE void sync_attend() { sync_block(); }
#elif defined(TB_NVIDIA)
TB_DEVICE void sync_attend() { asm volatile("bar.sync 1, %0;" ::"n"(kAttendThreads) : "memory"); }
#else
struct PartBarrier {
  uint32_t arrived, generation;
};
TB_DEVICE PartBarrier& attend_barrier() {
  TB_SHARED(PartBarrier, barrier);
  return barrier;
}
TB_DEVICE void sync_attend() {
  PartBarrier& barrier = attend_barrier();
  fence_block();
  sync_wave();
  if (lane() == 0) {
    const uint32_t generation = load_block_word(&barrier.generation);
    if (atomic_add(&barrier.arrived, 1) == kAttendWaves - 1) {
      store_block_word(&barrier.arrived, 0);
      fence_block();
      store_block_word(&barrier.generation, generation + 1);
    } else {
      while (load_block_word(&barrier.generation) == generation) pause();
    }
  }
  sync_wave();
  fence_block();
}
#endif

/// Of n numbers of a block, dealt over its threads.
template <uint32_t N>
constexpr uint32_t per_thread = (N + kAttendThreads - 1) / kAttendThreads;

/// What is the same in all lanes of a wave, told to compilers that have scalar registers for it.
#if defined(TB_AMD) && defined(__HIP_DEVICE_COMPILE__)
TB_DEVICE uint32_t wave_number() { return static_cast<uint32_t>(__builtin_amdgcn_readfirstlane(static_cast<int>(wave()))); }
template <class T>
TB_DEVICE T same_in_wave(const T& from) {
  struct Words { uint32_t w[sizeof(T) / 4]; };
  static_assert(sizeof(Words) == sizeof(T));
  Words words = __builtin_bit_cast(Words, from);
  TB_UNROLL
  for (uint32_t& w : words.w) w = static_cast<uint32_t>(__builtin_amdgcn_readfirstlane(static_cast<int>(w)));
  return __builtin_bit_cast(T, words);
}
#else
TB_DEVICE uint32_t wave_number() { return wave(); }
template <class T>
TB_DEVICE const T& same_in_wave(const T& from) { return from; }
#endif

/// The wave's split of a chunk, and which of its waves this is.
TB_DEVICE uint32_t wave_split() { return wave_number() / kSplitWaves; }
TB_DEVICE uint32_t wave_part() { return wave_number() % kSplitWaves; }

/// Keys of a chunk that a wave scores: [begin, begin + n) of a split.
struct WaveKeys {
  uint32_t split, begin, n;
};
TB_DEVICE WaveKeys wave_keys() { return {wave_split(), wave_part() * kPartKeys, kPartKeys}; }
/// Of a chunk whose keys lie in its first two splits: half as many, so that all waves have some.
constexpr uint32_t kShortChunk = kChunk / 2, kShortKeys = kPartKeys / 2;
TB_DEVICE WaveKeys wave_keys_of_short() {
  const uint32_t w = wave_number();
  return {w / kSplitWaves % 2, (w / 4 * kSplitWaves + wave_part()) * kShortKeys, kShortKeys};
}
/// Whether this wave's split lies beyond such a chunk.
TB_DEVICE bool beyond_short() { return wave_split() >= 2; }

/// What a lane holds at a time: registers of keys, steps of values in one batch, batches, queries
/// that a key is scored for. Few registers: for many queries, for keys
/// that are taken row by row, and where the compiler spills.
template <uint32_t L>
constexpr uint32_t kFewRegisters = L == 32 ? 32 : 16;
#if defined(TB_AMD)
template <uint32_t L, uint32_t NQ>
constexpr uint32_t kKeyRegisters = kFewRegisters<L>;
constexpr uint32_t kValueSteps = 8;
template <uint32_t NQ>
constexpr uint32_t kValueBatches = 1;
template <uint32_t NQ>
constexpr uint32_t kQueriesAtOnce = NQ == 4 ? 4 : NQ == 8 ? 1 : NQ;
#else
template <uint32_t L, uint32_t NQ>
constexpr uint32_t kKeyRegisters = NQ <= 4 ? 32 : kFewRegisters<L>;
constexpr uint32_t kValueSteps = 8;
template <uint32_t NQ>
constexpr uint32_t kValueBatches = NQ <= 4 ? 2 : 1;
template <uint32_t NQ>
constexpr uint32_t kQueriesAtOnce = NQ < 4 ? NQ : 4;
#endif

/// A lane's four elements of a value are number value_index() of the head.
template <uint32_t L>
TB_DEVICE uint32_t value_index() { return wave_part() * L + lane() % L; }

/// The kernel's argument struct, loaded anew: what is used late does not lie in scalar registers from the start, of which a
/// large kernel has too few. Step kernels, whose stages have theirs in shared memory, are not built for AMD.
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
  const uint8_t* const p = reinterpret_cast<const uint8_t*>(address);
#if defined(TB_NVIDIA)
  __builtin_assume(__isGlobal(p));
#endif
  return p;
#endif
}

/// Where the keys of a split lie: head and row of key i.
template <bool kFast>
struct Places {
  uint64_t base;         // kFast: head of the block; keys are its rows
  const uint64_t* list;  // else, shared: head | row
  const uint32_t* limit; // shared: query q sees keys below limit[q]; not read where all see all
  TB_DEVICE const uint8_t* head(uint32_t i) const { return device_address(kFast ? base : list[i] & ~uint64_t{63}); }
  TB_DEVICE uint32_t row(uint32_t i) const { return kFast ? i : static_cast<uint32_t>(list[i] & 63); }
};

/// Rows and heads of a block; the same in all threads, but for position.
struct Tile {
  uint32_t first_row, n_rows, seq, kv_head, head_tile;
  uint32_t committed, least_keys, most_keys;
  uint32_t run_begin;  // first row of the sequence
  int32_t position;    // of row first_row + lane; of the first row beyond n_rows
  bool live, tree, by_row, all_open;
};

template <uint32_t NQ>
struct TileQueries {
  uint32_t row[NQ], head[NQ], tile_row[NQ], n_keys[NQ], valid[NQ];
};

// Divisions of the grid, which are long, are left out where they divide by 1 or give 0.
TB_DEVICE uint32_t kv_head_of(const AttendArgs& args, uint32_t block) { return args.head_tiles == 1 ? block : block / args.head_tiles; }
/// Row of the tile and head of query q, which may be more than there are.
TB_DEVICE uint32_t row_of_query(const AttendArgs& args, uint32_t q) { return q < args.tile_heads ? 0 : q / args.tile_heads; }
TB_DEVICE uint32_t head_of_query(const AttendArgs& args, uint32_t kv_head, uint32_t head_tile, uint32_t q) {
  const uint32_t of_tile = q - row_of_query(args, q) * args.tile_heads;
  return kv_head * args.group + min_of(head_tile * args.tile_heads + of_tile, args.group - 1);
}

/// First row of the run of rows of one sequence that `row` belongs to.
TB_DEVICE uint32_t begin_of_run(const turbo_device_table& t, uint32_t row, int32_t row_seq) {
  // Rows before it, nearest first: 32, which mostly hold another sequence's, then 256 whose loads are all on their way.
  const auto others = [&](uint32_t begin, int32_t seq) { return ~ballot(lane() < begin && seq == row_seq); };
  const auto run = [](uint32_t breaks) { return static_cast<uint32_t>(__builtin_ffs(static_cast<int>(breaks))) - 1; };
  const auto seq_before = [&](uint32_t begin) { return t.row_seq[lane() < begin ? begin - 1 - lane() : 0]; };
  if (const uint32_t breaks = others(row, seq_before(row))) return row - run(breaks);
  constexpr uint32_t kLoads = 8;
  for (uint32_t begin = row - kWave;;) {
    int32_t seq[kLoads];
    TB_UNROLL
    for (uint32_t i = 0; i < kLoads; ++i) seq[i] = seq_before(begin > i * kWave ? begin - i * kWave : 0);
    TB_UNROLL
    for (uint32_t i = 0; i < kLoads; ++i) {
      if (const uint32_t breaks = others(begin, seq[i])) return begin - run(breaks);
      begin -= kWave;
    }
  }
}

/// The tile whose first row is `row`; live is false for rows that begin none. By all waves alike. What it may need of the
/// table is requested at once, also of rows that turn out to be padding.
TB_DEVICE Tile find_tile(const AttendArgs& args, uint32_t row, uint32_t block, bool two_forms) {
  const turbo_device_table& t = args.a.table;
  Tile tile{};
  tile.first_row = row;
  tile.kv_head = kv_head_of(args, block);
  tile.head_tile = block - tile.kv_head * args.head_tiles;
  tile.run_begin = row;
  const uint32_t mine = min_of(row + lane(), args.a.max_rows - 1);
  const uint32_t n_live = live_rows(t);
  tile.all_open = two_forms && open_uncommitted(t);
  const int32_t row_seq = t.row_seq[row], seq_mine = t.row_seq[mine];
  const int32_t own = t.position[mine], length = t.path_length[mine];
  // All of it takes part in what the wave does together, so none of it is put off until it is known to be needed.
  const bool same = lane() == 0 || (lane() < args.tile_rows && row + lane() < n_live && seq_mine == row_seq);
  const uint32_t others = ~ballot(same);
  tile.n_rows = others ? static_cast<uint32_t>(__builtin_ffs(static_cast<int>(others))) - 1 : kWave;
  tile.tree = ballot(lane() < tile.n_rows && length > 0) != 0;
  const int32_t first = shuffle(own, 0);
  tile.position = lane() < tile.n_rows ? own : first;
  if (row >= n_live) return tile;
  tile.seq = static_cast<uint32_t>(row_seq);
  tile.committed = static_cast<uint32_t>(t.committed[row_seq]);
  if (args.a.same_sequence && row > 0) {
    tile.run_begin = begin_of_run(t, row, row_seq);
    if ((row - tile.run_begin) % args.tile_rows != 0) return tile;
  }
  uint32_t most = static_cast<uint32_t>(tile.position) + 1, least = most;
  if (tile.n_rows > 1) {
    TB_UNROLL
    for (uint32_t m = kWave / 2; m; m >>= 1) {
      const uint32_t a = shuffle_xor(most, m), b = shuffle_xor(least, m);
      most = a > most ? a : most;
      least = b < least ? b : least;
    }
  }
  tile.live = true;
  tile.most_keys = min_of(most, args.a.max_chunks * kChunk);
  tile.least_keys = min_of(least, args.a.max_chunks * kChunk);
  tile.by_row = two_forms && !tile.all_open && (most - 1) / kSplit != (least - 1) / kSplit;
  return tile;
}

/// By all waves; a barrier follows.
template <uint32_t NQ>
TB_DEVICE void fill_queries(const AttendArgs& args, const Tile& tile, TileQueries<NQ>& queries) {
  static_assert(NQ <= kWave);
  if (wave() != kAttendWaves - 2) return;
  const uint32_t q = min_of(lane(), NQ - 1), tile_row = row_of_query(args, q), held_row = min_of(tile_row, tile.n_rows - 1);
  const int32_t position = shuffle(tile.position, held_row);
  if (lane() >= NQ) return;
  queries.row[q] = tile.first_row + held_row;
  queries.head[q] = head_of_query(args, tile.kv_head, tile.head_tile, q);
  queries.tile_row[q] = held_row;
  queries.n_keys[q] = min_of(static_cast<uint32_t>(position) + 1, args.a.max_chunks * kChunk);
  queries.valid[q] = tile_row < tile.n_rows && tile.head_tile * args.tile_heads + q - tile_row * args.tile_heads < args.group;
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

/// A split whose keys lie in order in one block, for all queries of the tile that see them.
struct Straight {
  bool is;     // else row by row, see walk_rows
  bool whole;  // every query sees every key
  uint32_t n;  // keys that some query sees
  uint32_t open_end[2];         // by side: keys below are read in open form
  int32_t open_id, packed_id;   // of the block in each form; of those that are read
  TB_DEVICE Places<true> places(const turbo_device_kv& kv, const KvSide& side, uint32_t kv_head, bool open, const uint32_t* limit) const {
    const int32_t id = open ? open_id : packed_id;
    const uint8_t* const block = (open ? kv.open_base : kv.base) + static_cast<uint64_t>(id < 0 ? 0 : id) * (open ? kv.open_stride : kv.stride);
    return {reinterpret_cast<uint64_t>(block) + kv_head * (open ? side.open_head_bytes : side.head_bytes), nullptr, limit};
  }
};

template <uint32_t kForms>
TB_DEVICE Straight straight_split(const AttendArgs& args, const Tile& tile, uint32_t split) {
  const turbo_device_table& t = args.a.table;
  const uint32_t first = split * kSplit;
  Straight s{};
  s.n = tile.most_keys > first ? min_of(tile.most_keys - first, kSplit) : 0;
  s.is = !tile.by_row && !(tile.tree && first + s.n > tile.committed);
  s.whole = tile.least_keys >= first + kSplit;
  if (s.n == 0 || !s.is) return s;
  const uint64_t at = uint64_t{tile.seq} * t.block_capacity + split;
  if constexpr (kForms == 2) {
    const bool all = split == (tile.most_keys - 1) / kSplit || (tile.all_open && split >= tile.committed / kSplit);
    TB_UNROLL
    for (uint32_t side = 0; side < 2; ++side)
      s.open_end[side] = all ? s.n : split == 0 ? min_of((side ? args.a.v : args.a.k).sinks, s.n) : 0;
    const uint32_t least = min_of(s.open_end[0], s.open_end[1]);
    if (s.open_end[0] + s.open_end[1] > 0) s.open_id = t.open_table[at];
    if (least < s.n) s.packed_id = t.block_table[at];
  } else {
    s.packed_id = t.block_table[at];
  }
  return s;
}

/// One wave over the keys [begin, end) of a split that is not straight: take(places, open, begin, end) for each run of keys
/// of one form among `forms`. list and limit are shared memory of the wave.
template <uint32_t kForms, uint32_t NQ, class Take>
TB_DEVICE void walk_rows(const AttendArgs& args, const Tile& tile, const TileQueries<NQ>& queries, const turbo_device_kv& kv, const KvSide& side,
                         uint32_t split, uint32_t forms, uint32_t begin, uint32_t end, uint64_t* list, uint32_t* limit, Take take) {
  const turbo_device_table& t = args.a.table;
  const uint32_t first = split * kSplit;
  const auto head_of = [&](uint32_t slot, bool open) {
    return reinterpret_cast<uint64_t>(block_of(t, kv, tile.seq, slot, open) + tile.kv_head * (open ? side.open_head_bytes : side.head_bytes));
  };
  TB_NO_UNROLL
  for (uint32_t pass = 0; pass < tile.n_rows; ++pass) {
    const uint32_t row = tile.first_row + pass;
    const uint32_t keys = min_of(static_cast<uint32_t>(t.position[row]) + 1, args.a.max_chunks * kChunk);
    if (keys <= first + begin) continue;
    const uint32_t n = min_of(end, keys - first);
    const uint32_t open_end = kForms == 2 ? open_keys(t, tile.seq, keys - 1, split, kv.sinks) : 0;
    sync_wave();
    for (uint32_t i = lane(); i < kSplit; i += kWave) {
      const uint32_t key = min_of(i, n - 1), slot = slot_of(t, row, tile.seq, first + key);
      list[i] = head_of(slot, kForms == 2 && key < open_end) | (slot % kSplit);
    }
    if (lane() < NQ) {
      const uint32_t own = queries.n_keys[lane()], seen = own > first ? min_of(own - first, kSplit) : 0;
      limit[lane()] = queries.tile_row[lane()] != pass ? 0 : seen;
    }
    sync_wave();
    const Places<false> places{0, list, limit};
    if (kForms == 2 && open_end > begin && (forms & kOpenForm)) take(places, true, begin, min_of(open_end, n));
    const uint32_t from = kForms == 2 && open_end > begin ? open_end : begin;
    if (from < n && (forms & kPackedForm)) take(places, false, from, n);
  }
}

}  // namespace turbo::gpu
