// The pack's own kernels: row-wise ops, the step table's copy, and attention's softmax and merge when keys and values are
// of codecs that do not share a kernel. Plain forms: what a format or codec fuses never comes here.
#include <turbo/kernel/gpu/activation.hpp>
#include <turbo/kernel/gpu/attend_mixed.hpp>
#include <turbo/kernel/gpu/norm.hpp>
#include <turbo/kernel/gpu/rope.hpp>
#include <turbo/kernel/gpu/table.hpp>

#include "args.h"

using namespace turbo::gpu;
using namespace turbo::arch_rdna2;

// A wave for each group of a row when groups are short, else the block for one.
TB_KERNEL(rdna2_norm, NormArgs, 256) {
  const uint32_t row = block_y();
  if (row >= *args.n_rows) return;
  using Slots = float[kNormWaves];
  TB_SHARED(Slots, slots);
  const uint32_t group = args.groups == 1 ? 0 : block_x() * (kThreads / kWave) + wave();
  const bool live = group < args.groups;
  const uint64_t at = static_cast<uint64_t>(live ? group : 0) * args.width;
  const float* const x = args.x + row * args.x_stride + at;
  float* const out = args.out + row * args.out_stride + at;
  const bool whole = args.groups == 1;
  float sum = 0;
  if (whole) sum = block_square_sum(x, args.width, slots);
  else sum = wave_square_sum([x](uint32_t i) { return x[i]; }, args.width);
  const float scale = norm_scale(sum, args.width, args.eps);
  if (!live) return;
  const uint32_t first = whole ? thread() : lane(), step = whole ? kThreads : kWave;
  for (uint32_t i = first; i < args.width; i += step) out[i] = normed(x[i], scale, args.weight[i]);
}

TB_KERNEL(rdna2_rope, RopeArgs, 256) {
  const uint32_t row = block_y();
  if (row >= *args.n_rows) return;
  const uint32_t head = block_x() * (kThreads / kWave) + wave();
  if (head >= args.n_heads) return;
  rope_head(args.x + row * args.stride + static_cast<uint64_t>(head) * args.head_dim, args.dims, args.style, args.frequencies, args.magnitude,
            args.position[row], lane(), kWave);
}

TB_DEVICE float combined(uint32_t kind, float a, float b) {
  if (kind == kAdd) return a + b;
  if (kind == kSilu) return silu_mul(a, b);
  if (kind == kGelu) return gelu_mul(a, b);
  return a;
}

TB_KERNEL(rdna2_element, ElementArgs, 256) {
  const uint32_t row = block_y();
  if (row >= *args.n_rows) return;
  const uint64_t i = static_cast<uint64_t>(block_x()) * kThreads + thread();
  if (i >= args.width) return;
  const uint64_t source = args.rows ? static_cast<uint64_t>(args.rows[row]) : row;
  const bool from_a = args.kind != kConcat || i < args.a_width;
  const float a = args.a[source * args.a_stride + (from_a ? i : 0)];
  float b = 0;
  if (args.kind != kCopy) b = args.b[row * args.b_stride + (args.kind != kConcat ? i : from_a ? 0 : i - args.a_width)];
  args.out[row * args.out_stride + i] = from_a ? combined(args.kind, a, b) : b;
}

// Higher values first, then lower ids; NaN counts as -infinity. A key that grows with the rank: order-preserving bits of
// the value above, the id's complement below; 0 is no candidate.
TB_DEVICE uint64_t rank_of(float value, uint32_t id) {
  const float v = value == value ? (value == 0 ? 0.f : value) : -INFINITY;
  const uint32_t word = bits(v), key = word & 0x80000000u ? ~word : word | 0x80000000u;
  return static_cast<uint64_t>(key) << 32 | (0xffffffffu - id);
}

TB_KERNEL(rdna2_top_k, TopKArgs, 256) {
  const uint32_t row = block_x();
  if (row >= *args.n_rows) return;
  using Slots = uint64_t[kThreads / kWave];
  TB_SHARED(Slots, slots);
  const float* const x = args.x + row * args.x_stride;
  uint64_t below = ~uint64_t{0};
  for (uint32_t place = 0; place < args.k; ++place) {
    uint64_t best = 0;
    for (uint32_t i = thread(); i < args.n; i += kThreads) {
      const uint64_t rank = rank_of(x[i], i);
      if (rank < below && rank > best) best = rank;
    }
    for (uint32_t m = kWave / 2; m; m >>= 1) {
      const uint32_t high = shuffle_xor(static_cast<uint32_t>(best >> 32), m), low = shuffle_xor(static_cast<uint32_t>(best), m);
      const uint64_t other = static_cast<uint64_t>(high) << 32 | low;
      if (other > best) best = other;
    }
    sync_block();
    if (lane() == 0) slots[wave()] = best;
    sync_block();
    best = slots[0];
    for (uint32_t w = 1; w < kThreads / kWave; ++w)
      if (slots[w] > best) best = slots[w];
    below = best;
    const uint32_t id = 0xffffffffu - static_cast<uint32_t>(best);
    if (thread() == 0) {
      args.ids[row * args.ids_stride + place] = from_bits(id);
      args.values[row * args.values_stride + place] = x[id < args.n ? id : 0];
    }
  }
}

// `n` runs of `length` words, `stride` apart, from word `begin` of the table on.
struct TableRuns {
  uint64_t begin;
  uint32_t n, length, stride;
};

// The i-th of the live words, wherever it is. Host memory is far away: a step of few rows reads it twice, the head and then
// all its words at once.
TB_KERNEL(rdna2_table, TableArgs, 256) {
  const uint32_t n_rows = args.head[0], n_seqs = args.head[1], n_logit_rows = args.head[2], path = args.head[4], blocks = args.head[5];
  const uint32_t own = thread() <= kCountsTag ? args.head[thread() < kCountsTag ? thread() : kHeadTag] : 0;
  const uint64_t rows = args.rows, paths = rows * args.path, tables = static_cast<uint64_t>(args.sequences) * args.blocks;
  const uint64_t committed = 5 * rows + paths, packed = committed + args.sequences, open = packed + tables, logits = open + tables;
  const TableRuns runs[] = {{0, 5, n_rows, args.rows},
                            {5 * rows, n_rows, path, args.path},
                            {committed, 1, n_seqs, 0},
                            {packed, n_seqs, blocks, args.blocks},
                            {open, n_seqs, blocks, args.blocks},
                            {logits, 1, n_logit_rows, 0}};
  for (uint64_t word = static_cast<uint64_t>(block_x()) * kThreads + thread();; word += static_cast<uint64_t>(grid_x()) * kThreads) {
    uint64_t i = word, at = ~uint64_t{0};
    TB_UNROLL
    for (const TableRuns& run : runs) {
      const uint64_t live = static_cast<uint64_t>(run.n) * run.length;
      if (at != ~uint64_t{0}) continue;
      // A run's words are at most 2^28: division of 32 bits, which costs less.
      const uint32_t in_run = static_cast<uint32_t>(i), row = run.length ? in_run / run.length : 0;
      if (i < live) at = run.begin + static_cast<uint64_t>(row) * run.stride + (in_run - row * run.length);
      else i -= live;
    }
    if (at == ~uint64_t{0}) break;
    args.target[at] = args.source[at];
  }
  if (block_x() == 0 && thread() <= kCountsTag) args.counts[thread()] = own;
}

TB_DEVICE MixedArgs mixed(const WindowArgs& a) {
  return {a.table, a.n_heads, a.head_dim, a.chunk_begin, a.n_chunks, a.max_chunks, a.scores, a.score_stride, a.partials, a.partial_stride,
          a.state, a.out, a.out_stride};
}

TB_KERNEL(rdna2_softmax, WindowArgs, 128) { soft_chunk_body(mixed(args)); }

TB_KERNEL(rdna2_merge, WindowArgs, 128) { merge_window_body(mixed(args)); }
