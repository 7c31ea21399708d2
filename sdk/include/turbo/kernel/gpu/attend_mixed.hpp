// What lies between scores and accumulate of two codecs that no fused kernel exists for: scores of chunks to weights, and
// chunks merged. Bodies for the pack's kernels; the bits are those of a fused kernel (attend_order.hpp).
//
// The caller takes chunks in windows [chunk_begin, chunk_begin + n_chunks), rising from 0:
//   K: scores -> soft_chunk_body -> V: accumulate -> merge_window_body; the last window divides.
#pragma once

#include <turbo/kernel/gpu/attend_order.hpp>
#include <turbo/kernel/gpu/table.hpp>

namespace turbo::gpu {

struct MixedArgs {
  turbo_device_table table;
  uint32_t n_heads, head_dim, chunk_begin, n_chunks, max_chunks;
  float* scores;  // [row][head][score_stride]; become weights
  uint64_t score_stride;
  float* partials;  // [row][head][n_chunks][partial_stride]: max, sum, values
  uint64_t partial_stride;
  float* state;  // [row][head][head_dim + 2]: max, sum, values so far; unused where one window holds all chunks
  float* out;
  uint64_t out_stride;
};

TB_DEVICE uint32_t keys_of_row(const turbo_device_table& t, uint32_t row, uint32_t max_chunks) {
  return min_of(static_cast<uint32_t>(t.position[row]) + 1, max_chunks * kChunk);
}

/// Grid: (n_heads, n_chunks, max_rows), 128 threads.
TB_DEVICE void soft_chunk_body(const MixedArgs& args) {
  using Four = float[kChunkSplits];
  TB_SHARED(Four, most);
  TB_SHARED(Four, sum);
  const uint32_t row = block_z(), chunk = args.chunk_begin + block_y();
  if (row >= live_rows(args.table)) return;
  const uint32_t keys = keys_of_row(args.table, row, args.max_chunks), first = chunk * kChunk + wave() * kSplit;
  if (chunk * kChunk >= keys) return;
  const uint64_t at = uint64_t{row} * args.n_heads + block_x();
  float* const s = args.scores + at * args.score_stride + block_y() * kChunk + wave() * kSplit;
  const bool a_there = first + lane() < keys, b_there = first + kWave + lane() < keys;
  const float a = a_there ? s[lane()] : kNoScore, b = b_there ? s[lane() + kWave] : kNoScore;
  const float m = wave_max(max_of(a, b));
  if (lane() == 0) most[wave()] = m;
  sync_block();
  const float largest = max_of(max_of(max_of(most[0], most[1]), most[2]), most[3]);
  const float wa = exp_of(a - largest), wb = exp_of(b - largest);
  if (a_there) s[lane()] = wa;
  if (b_there) s[lane() + kWave] = wb;
  const float l = wave_sum(wa + wb);
  if (lane() == 0) sum[wave()] = l;
  sync_block();
  if (thread() == 0) {
    float* const p = args.partials + (at * args.n_chunks + block_y()) * args.partial_stride;
    p[0] = largest;
    p[1] = sum[0] + sum[1] + sum[2] + sum[3];
  }
}

/// Grid: (n_heads, max_rows), 128 threads.
TB_DEVICE void merge_window_body(const MixedArgs& args) {
  const uint32_t row = block_y();
  if (row >= live_rows(args.table)) return;
  const uint32_t all = (keys_of_row(args.table, row, args.max_chunks) + kChunk - 1) / kChunk;
  if (all <= args.chunk_begin) return;
  const uint32_t n = min_of(args.n_chunks, all - args.chunk_begin);
  const uint64_t at = uint64_t{row} * args.n_heads + block_x();
  const float* const partials = args.partials + at * args.n_chunks * args.partial_stride;
  float* const state = args.state + at * (args.head_dim + 2);
  const bool first = args.chunk_begin == 0, last = args.chunk_begin + n == all;
  float most = kNoScore, sum = 0.0f;
  if (!first) {
    most = state[0];
    sum = state[1];
  }
  sync_block();
  for (uint32_t e = thread(); e < args.head_dim; e += threads()) {
    float m = most, l = sum, v = first ? 0.0f : state[2 + e];
    for (uint32_t c = 0; c < n; ++c) {
      const float* const p = partials + c * args.partial_stride;
      const MergeFactors f = merge_factors(m, p[0]);
      v = merge_into(v, f.a, p[2 + e], f.b);
      l = merge_into(l, f.a, p[1], f.b);
      m = f.most;
    }
    if (last) {
      args.out[row * args.out_stride + uint64_t{block_x()} * args.head_dim + e] = v / l;
    } else {
      state[2 + e] = v;
      if (e == 0) {
        state[0] = m;
        state[1] = l;
      }
    }
  }
}

}  // namespace turbo::gpu
