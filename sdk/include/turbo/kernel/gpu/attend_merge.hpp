// The end of attention over several chunks: partial results in memory merged in order, and what is written out.
#pragma once

#include <turbo/kernel/gpu/attend_tile.hpp>
#include <turbo/kernel/gpu/q8.hpp>

namespace turbo::gpu {

/// Element e of a head of a row. With bytes wanted heads are whole tiles, so a wave holds one and comes here together.
TB_DEVICE void write_output(const AttendArgs& args, uint32_t row, uint32_t head, uint32_t d, uint32_t e, float x) {
  const uint64_t column = uint64_t{head} * d + e;
  args.a.out[row * args.a.out_stride + column] = x;
  if (args.out_q8.codes) write_q8_tile(args.out_q8, row, static_cast<uint32_t>(column / kQ8Tile), x, 1.f);
}

template <uint32_t NQ>
TB_DEVICE float* partial_of(const AttendArgs& args, const TileQueries<NQ>& queries, uint32_t q, uint32_t chunk) {
  return args.partials + ((uint64_t{queries.row[q]} * args.a.n_heads + queries.head[q]) * args.a.max_chunks + chunk) * args.partial_stride;
}

/// Merge the chunks of the tile's queries, whose partials all lie in memory, and write out. By the block that came last.
/// D chunks at a time: first each chunk's two factors, then every thread its elements, whose loads are under way meanwhile.
template <uint32_t L, uint32_t NQ, class Shared>
TB_DEVICE void merge_chunks(const AttendArgs& given, const Tile& tile, Shared& sh) {
  constexpr uint32_t D = 8 * L, N = per_thread<NQ * D>, kAhead = N > 2 ? 8 : N > 1 ? 16 : 32;
  const AttendArgs& args = again(given);
  const uint32_t d = args.a.v.head_dim, n_chunks = (tile.most_keys + kChunk - 1) / kChunk;
  float* const keep = &sh.parts[0][0][0];  // [NQ][D]: factor of what is there
  float* const take = &sh.parts[1][0][0];  // of what comes
  float* const sums = &sh.parts[2][0][0];  // its sum
  float* const carried = &sh.parts[3][0][0];  // [NQ]: largest score so far
  const auto own_chunks = [&](uint32_t q) { return (sh.queries.n_keys[q] + kChunk - 1) / kChunk; };
  float value[N], sum[N];
  TB_UNROLL
  for (uint32_t j = 0; j < N; ++j) value[j] = sum[j] = 0.0f;
  sync_block();
  for (uint32_t q = thread(); q < NQ; q += kAttendThreads) carried[q] = kNoScore;
  TB_NO_UNROLL
  for (uint32_t begin = 0; begin < n_chunks; begin += D) {
    sync_block();
    // Largest score up to each chunk of 32, by a wave each; those before are joined below.
    TB_NO_UNROLL
    for (uint32_t i = wave(); i < NQ * (D / kWave); i += kAttendWaves) {
      const uint32_t q = i / (D / kWave), at = i % (D / kWave) * kWave + lane(), own = own_chunks(q);
      const bool there = begin + at < own;
      const float* const p = partial_of(args, sh.queries, q, there ? begin + at : 0);
      const float here = p[0], l = p[1];
      float most = there ? here : kNoScore;
      keep[q * D + at] = most;
      sums[q * D + at] = l;
      TB_UNROLL
      for (uint32_t step = 1; step < kWave; step *= 2) {
        const float before = shuffle(most, lane() >= step ? lane() - step : lane());
        if (lane() >= step) most = max_of(before, most);
      }
      take[q * D + at] = most;
    }
    sync_block();
    constexpr uint32_t kOwn = (NQ * (D / kWave) + kAttendWaves - 1) / kAttendWaves;
    MergeFactors factors[kOwn];
    TB_UNROLL
    for (uint32_t n = 0; n < kOwn; ++n) {
      const uint32_t i = min_of(wave() + n * kAttendWaves, NQ * (D / kWave) - 1), q = i / (D / kWave), at = i % (D / kWave) * kWave + lane();
      float before = carried[q];
      for (uint32_t g = kWave - 1; g < at / kWave * kWave; g += kWave) before = max_of(before, take[q * D + g]);
      if (lane() > 0) before = max_of(before, take[q * D + at - 1]);
      factors[n] = merge_factors(before, keep[q * D + at]);
    }
    sync_block();
    TB_UNROLL
    for (uint32_t n = 0; n < kOwn; ++n) {
      const uint32_t i = wave() + n * kAttendWaves, q = i / (D / kWave), at = i % (D / kWave) * kWave + lane();
      if (i >= NQ * (D / kWave)) continue;
      keep[q * D + at] = factors[n].a;
      take[q * D + at] = factors[n].b;
      if (at == D - 1) carried[q] = factors[n].most;
    }
    sync_block();
    TB_UNROLL
    for (uint32_t j = 0; j < N; ++j) {
      const uint32_t i = thread() + kAttendThreads * j, q = i / D, e = i % D;
      if (q >= NQ || e >= d) continue;
      const uint32_t own = own_chunks(q), n = own > begin ? min_of(D, own - begin) : 0;
      const float* const first = partial_of(args, sh.queries, q, n ? begin : 0) + 4 + e;
      const float *const a_of = keep + q * D, *const b_of = take + q * D, *const l_of = sums + q * D;
      const bool sums_too = e < kWave;  // a wave a query
      float v = value[j], l = sum[j];
      uint32_t c = 0;
      TB_NO_UNROLL
      for (; c + kAhead <= n; c += kAhead) {
        float next[kAhead];
        TB_UNROLL
        for (uint32_t u = 0; u < kAhead; ++u) next[u] = first[uint64_t{c + u} * args.partial_stride];
        TB_UNROLL
        for (uint32_t u = 0; u < kAhead; ++u) v = merge_into(v, a_of[c + u], next[u], b_of[c + u]);
        if (!sums_too) continue;
        TB_UNROLL
        for (uint32_t u = 0; u < kAhead; ++u) l = merge_into(l, a_of[c + u], l_of[c + u], b_of[c + u]);
      }
      TB_NO_UNROLL
      for (; c < n; ++c) {
        v = merge_into(v, a_of[c], first[uint64_t{c} * args.partial_stride], b_of[c]);
        l = merge_into(l, a_of[c], l_of[c], b_of[c]);
      }
      value[j] = v;
      sum[j] = l;
    }
  }
  sync_block();
  TB_UNROLL
  for (uint32_t j = 0; j < N; ++j) {
    const uint32_t i = thread() + kAttendThreads * j;
    if (i / D < NQ && i % D == 0) carried[i / D] = sum[j];
  }
  sync_block();
  TB_UNROLL
  for (uint32_t j = 0; j < N; ++j) {
    const uint32_t i = thread() + kAttendThreads * j, q = i / D, e = i % D;
    if (q < NQ && e < d && sh.queries.valid[q]) write_output(args, sh.queries.row[q], sh.queries.head[q], d, e, value[j] / carried[q]);
  }
}

}  // namespace turbo::gpu
