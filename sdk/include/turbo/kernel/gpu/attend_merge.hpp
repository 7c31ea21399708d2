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
/// Many chunks at a time: first each chunk's two factors, then every thread its elements, some chunks ahead of itself.
template <uint32_t L, uint32_t NQ, class Shared, class Rows>
TB_DEVICE void merge_chunks(const AttendArgs& given, const Tile& tile, Shared& sh, const Rows& rows) {
  constexpr uint32_t D = 8 * L, kBatch = 2 * D < kChunk ? 2 * D : kChunk, N = per_thread<NQ * D>, H = N > 2 ? 4 : N > 1 ? 8 : 16;
  constexpr uint32_t kGroups = kBatch / kWave, kOwn = NQ * kGroups / kAttendWaves;
  static_assert(NQ * kGroups % kAttendWaves == 0 && kBatch % (2 * H) == 0);
  const AttendArgs& args = again(given);
  const uint32_t d = args.a.v.head_dim, n_chunks = (tile.most_keys + kChunk - 1) / kChunk;
  float* const keep = &sh.parts[0][0][0];  // [NQ][kBatch]: factor of what is there
  float* const take = &sh.parts[2][0][0];  // of what comes
  float* const sums = &sh.s[0][0];         // its sum
  float* const carried = &sh.query[0][0];  // [NQ]: largest score so far
  const auto own_chunks = [&](uint32_t q) { return (sh.queries.n_keys[q] + kChunk - 1) / kChunk; };
  float value[N], sum[N], near[H], far[H];
  TB_UNROLL
  for (uint32_t j = 0; j < N; ++j) value[j] = sum[j] = 0.0f;
  sync_attend();
  if (thread() < NQ) carried[thread()] = kNoScore;
  TB_NO_UNROLL
  for (uint32_t begin = 0; begin < n_chunks; begin += kBatch) {
    const auto request = [&](uint32_t i, uint32_t c, float (&to)[H]) {
      const uint32_t q = min_of(i / D, NQ - 1), e = min_of(i % D, d - 1), own = own_chunks(q), n = own > begin ? own - begin : 1;
      const float* const first = partial_of(args, sh.queries, q, own > begin ? begin : 0) + 4 + e;
      TB_UNROLL
      for (uint32_t u = 0; u < H; ++u) to[u] = first[uint64_t{min_of(c + u, n - 1)} * args.partial_stride];
    };
    if constexpr (N == 1) request(thread(), 0, near);
    sync_attend();
    // Largest score up to each chunk of 32, by a wave each; those before are joined below.
    float here[kOwn];
    TB_UNROLL
    for (uint32_t n = 0; n < kOwn; ++n) {
      const uint32_t i = wave() + n * kAttendWaves, q = i / kGroups, at = i % kGroups * kWave + lane();
      const bool there = begin + at < own_chunks(q);
      const float* const p = partial_of(args, sh.queries, q, there ? begin + at : 0);
      const float own = p[0], l = p[1];
      here[n] = there ? own : kNoScore;
      sums[q * kBatch + at] = l;
      float most = here[n];
      TB_UNROLL
      for (uint32_t step = 1; step < kWave; step *= 2) {
        const float before = shuffle(most, lane() >= step ? lane() - step : lane());
        if (lane() >= step) most = max_of(before, most);
      }
      take[q * kBatch + at] = most;
    }
    sync_attend();
    MergeFactors factors[kOwn];
    TB_UNROLL
    for (uint32_t n = 0; n < kOwn; ++n) {
      const uint32_t i = wave() + n * kAttendWaves, q = i / kGroups, at = i % kGroups * kWave + lane();
      float before = carried[q];
      TB_NO_UNROLL
      for (uint32_t g = kWave - 1; g < i % kGroups * kWave; g += kWave) before = max_of(before, take[q * kBatch + g]);
      if (lane() > 0) before = max_of(before, take[q * kBatch + at - 1]);
      factors[n] = merge_factors(before, here[n]);
    }
    sync_attend();
    TB_UNROLL
    for (uint32_t n = 0; n < kOwn; ++n) {
      const uint32_t i = wave() + n * kAttendWaves, q = i / kGroups, at = i % kGroups * kWave + lane();
      keep[q * kBatch + at] = factors[n].a;
      take[q * kBatch + at] = factors[n].b;
      if (at == kBatch - 1) carried[q] = factors[n].most;
    }
    sync_attend();
    TB_UNROLL
    for (uint32_t j = 0; j < N; ++j) {
      const uint32_t i = thread() + kAttendThreads * j, q = i / D;
      if (q >= NQ) continue;
      const uint32_t own = own_chunks(q), n = own > begin ? min_of(kBatch, own - begin) : 0;
      const float *const a_of = keep + q * kBatch, *const b_of = take + q * kBatch, *const l_of = sums + q * kBatch;
      const bool sums_too = i % D < kWave;  // a wave a query
      const auto join = [&](uint32_t c, uint32_t end, const float (&next)[H]) {
        TB_UNROLL
        for (uint32_t u = 0; u < H; ++u)
          if (u < end) value[j] = merge_into(value[j], a_of[c + u], next[u], b_of[c + u]);
        if (!sums_too) return;
        TB_UNROLL
        for (uint32_t u = 0; u < H; ++u)
          if (u < end) sum[j] = merge_into(sum[j], a_of[c + u], l_of[c + u], b_of[c + u]);
      };
      if constexpr (N > 1) request(i, 0, near);
      uint32_t c = 0;
      TB_NO_UNROLL
      for (; c + 2 * H <= n; c += 2 * H) {
        request(i, c + H, far);
        join(c, H, near);
        request(i, c + 2 * H, near);
        join(c + H, H, far);
      }
      if (c == n) continue;
      request(i, c + H, far);
      join(c, n - c, near);
      if (n > c + H) join(c + H, n - c - H, far);
    }
  }
  sync_attend();
  TB_UNROLL
  for (uint32_t j = 0; j < N; ++j) {
    const uint32_t i = thread() + kAttendThreads * j;
    if (i / D < NQ && i % D == 0) carried[i / D] = sum[j];
  }
  sync_attend();
  TB_UNROLL
  for (uint32_t j = 0; j < N; ++j) {
    const uint32_t i = thread() + kAttendThreads * j, q = i / D, e = i % D;
    if (q < NQ && e < d && sh.queries.valid[q]) rows.output(args, sh.queries.row[q], sh.queries.head[q], d, e, value[j] / carried[q]);
  }
}

}  // namespace turbo::gpu
