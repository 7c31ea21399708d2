// Q1_0 matrices times many rows of bytes, with the bits of matvec.hpp.
//
// A block of 4 waves computes 4 tiles of 16 outputs (two units, or a gate's and an up's) for 8 R rows; a lane one output of
// each tile for R rows, so that 16 bytes of activations from shared memory serve 16 dots and a mask of signs R rows. Groups
// pass through two buffers of shared memory; meanwhile the next group's words are on their way in registers, weights and
// scales during the first two tiles of columns, codes during the others. What is the same for all outputs of a row is
// worked out by whoever brings the row: base, and the scales times their powers of two.
#pragma once

#include <turbo/kernel/gpu/matvec.hpp>

namespace turbo::gpu::q1 {

struct alignas(16) GemmRow {
  uint8_t codes[kGroup];
  float scale[kGroupTiles];  // 2^(1 - t) s_t of q1.hpp's formula
  float minus_base, unused[3];
};

template <uint32_t R>
struct GemmBuffer {
  GemmRow rows[gemm_rows(R)];
  Words4 words[kGemmTiles * kTile];
  float weight_scale[kGemmTiles * kTile];
};

template <uint32_t R>
struct GemmShared {
  static constexpr uint32_t kStride = kGemmTiles * kTile + 16 / R;  // of a row's sums: both halves of a wave without bank conflicts
  GemmBuffer<R> buffer[2];
  float sums[gemm_rows(R) * kStride];  // of finished segments, for want of registers
  float factors[gemm_rows(R)];
};

/// inner of q1.hpp's formula: T words of signs, of one group, with R rows. half_way() is called between tiles 1 and 2.
template <uint32_t R, uint32_t T, class HalfWay>
TB_DEVICE void gemm_inner(const Words4 (&w)[T], const GemmRow* rows, float (&inner)[T][R], const HalfWay& half_way) {
  TB_UNROLL
  for (uint32_t r = 0; r < R; ++r) {
    TB_UNROLL
    for (uint32_t i = 0; i < T; ++i) inner[i][r] = rows[r].minus_base;
  }
#if defined(TB_AMD)
  TB_NO_UNROLL  // for want of registers
#else
  TB_UNROLL
#endif
  for (uint32_t t = 0; t < kGroupTiles; ++t) {
    if (t == kGroupTiles / 2) half_way();
    const uint32_t mask = 0x01010101u << t;
    Words4 low[T], high[T];
    TB_UNROLL
    for (uint32_t i = 0; i < T; ++i) {
      low[i] = {w[i].x & mask, w[i].y & mask, w[i].z & mask, w[i].w & mask};
      high[i] = {w[i].x >> 4 & mask, w[i].y >> 4 & mask, w[i].z >> 4 & mask, w[i].w >> 4 & mask};
    }
    TB_UNROLL
    for (uint32_t r = 0; r < R; ++r) {
      // Activations of two rows at a time: a compiler that loads more ahead runs out of registers.
      if (r % 2 == 0) asm volatile("" ::: "memory");
      const Words4 a = load_words(rows[r].codes + t * kQ8Tile), b = load_words(rows[r].codes + t * kQ8Tile + 16);
      const float scale = rows[r].scale[t];
      int32_t sum[T];
      TB_UNROLL
      for (uint32_t i = 0; i < T; ++i) sum[i] = dot16(low[i].x, low[i].y, low[i].z, low[i].w, a, kFloatBase);
      TB_UNROLL
      for (uint32_t i = 0; i < T; ++i) sum[i] = dot16(high[i].x, high[i].y, high[i].z, high[i].w, b, sum[i]);
      TB_UNROLL
      for (uint32_t i = 0; i < T; ++i) inner[i][r] = fmadd(scale, integer_of(sum[i]), inner[i][r]);
    }
  }
}

/// Four tiles, the block-th such, rows from first_row on.
template <uint32_t R>
TB_DEVICE void gemm(const Product& p, uint32_t block, uint32_t first_row, GemmShared<R>& shared) {
  constexpr uint32_t kRows = gemm_rows(R), kPieces = kRows * 8 / kGemmThreads, kHalfUnits = kGemmTiles / 2, kSharers = kGemmThreads / kRows;
  static_assert(kGemmTiles * kTile * 2 == kGemmThreads && kPieces * kGemmThreads == kRows * 8 && kSharers * kRows == kGemmThreads && kHalfUnits == 2);
  const uint32_t n_groups = p.n_groups, length = segment_groups(n_groups), n_tiles = n_groups * kGroupTiles;
  const bool gated = is_gated(p.fuse);
  // Unit of the first or second pair of tiles, and whether it is an up's.
  const auto unit_of = [&](uint32_t pair) { return gated ? block : block * kHalfUnits + pair; };

  // What this thread loads of each group: pieces of activations, half a word of signs, a weight scale (two threads the
  // same one), a row's scales (a few threads the same ones).
  const uint32_t n_live = live_for_x(p);
  const uint32_t loader = thread() / 2, part = thread() % 2, pair = loader / kUnit;
  const UnitPlanes planes = planes_of(p, min_of(unit_of(pair), p.n_units - 1), pair);
  const uint32_t place = loader / kTile % 2 * n_groups * kTile + loader % kTile;
  const Words2* const signs = reinterpret_cast<const Words2*>(planes.signs) + place * 2 + part;
  const uint16_t* const weight_scales = reinterpret_cast<const uint16_t*>(planes.scales) + place;
  const uint32_t scale_row = thread() / kSharers;
  // Places in 16 bytes: half as many registers as addresses.
  const Words4 *const codes = reinterpret_cast<const Words4*>(p.codes), *const scales = reinterpret_cast<const Words4*>(p.scales);
  const uint32_t scale_place = row_of_x(p, first_row + scale_row, n_live) * n_groups * 2;
  uint32_t pieces[kPieces];
  TB_UNROLL
  for (uint32_t i = 0; i < kPieces; ++i) {
    const uint32_t piece = thread() + i * kGemmThreads;
    pieces[i] = row_of_x(p, first_row + piece / 8, n_live) * n_groups * 8 + piece % 8;
  }
  Words4 coming[kPieces], coming_scales[2];
  Words2 coming_signs;
  uint16_t coming_weight_scale;
  const auto load_codes = [&](uint32_t group) {
    TB_UNROLL
    for (uint32_t i = 0; i < kPieces; ++i) coming[i] = load_words(codes + (pieces[i] + group * 8));
  };
  const auto load_weights = [&](uint32_t group) {
    const Words2& from = signs[group * kTile * 2];
    coming_signs = {from.x, from.y};
    coming_weight_scale = weight_scales[group * kTile];
    TB_UNROLL
    for (uint32_t i = 0; i < 2; ++i) coming_scales[i] = load_words(scales + (scale_place + group * 2 + i));
  };
  const auto put_codes = [&](GemmBuffer<R>& buffer) {
    TB_UNROLL
    for (uint32_t i = 0; i < kPieces; ++i) {
      const uint32_t piece = thread() + i * kGemmThreads;
      store_words(buffer.rows[piece / 8].codes + piece % 8 * 16, coming[i]);
    }
  };
  const auto put_weights = [&](GemmBuffer<R>& buffer) {
    reinterpret_cast<Words2*>(buffer.words)[thread()] = coming_signs;
    buffer.weight_scale[loader] = half_to_float(coming_weight_scale);
    const Words4 &first = coming_scales[0], &second = coming_scales[1];
    const float s[kGroupTiles] = {from_bits(first.x), from_bits(first.z), from_bits(second.x), from_bits(second.z)};
    const float m[kGroupTiles] = {from_bits(first.y), from_bits(first.w), from_bits(second.y), from_bits(second.w)};
    float base = 0;
    TB_UNROLL
    for (uint32_t t = 0; t < kGroupTiles; ++t) base = fmadd(s[t], m[t], base);
    if (thread() % kSharers == 0) {
      GemmRow& to = buffer.rows[scale_row];
      store_words(to.scale, {bits(s[0] * 2.f), bits(s[1]), bits(s[2] * 0.5f), bits(s[3] * 0.25f)});
      to.minus_base = -base;
    }
  };

  const uint32_t output = lane() % kTile, lane_row = (2 * wave() + lane() / kTile) * R;
  constexpr uint32_t kStride = GemmShared<R>::kStride;
  float* const my_sums = shared.sums + lane_row * kStride + output;
  float acc[kGemmTiles][R];
  TB_UNROLL
  for (uint32_t t = 0; t < kGemmTiles; ++t) {
    TB_UNROLL
    for (uint32_t r = 0; r < R; ++r) acc[t][r] = my_sums[r * kStride + t * kTile] = 0;
  }
  load_weights(0);
  load_codes(0);
  if (p.squares) {  // while the first group is on its way
    TB_NO_UNROLL
    for (uint32_t r = wave(); r < kRows; r += kGemmWaves) {
      const float factor = q8_factor(q8_part(p.squares + uint64_t{row_of_x(p, first_row + r, n_live)} * n_tiles, n_tiles), n_tiles, p.eps);
      if (lane() == 0) shared.factors[r] = factor;
    }
  }
  put_weights(shared.buffer[0]);
  put_codes(shared.buffer[0]);
  sync_block();
  TB_NO_UNROLL
  for (uint32_t group = 0; group < n_groups; ++group) {
    const uint32_t next = min_of(group + 1, n_groups - 1);  // the last group again: no branch
    const GemmBuffer<R>& now = shared.buffer[group % 2];
    GemmBuffer<R>& then = shared.buffer[(group + 1) % 2];
    load_weights(next);
    Words4 words[kGemmTiles];
    TB_UNROLL
    for (uint32_t t = 0; t < kGemmTiles; ++t) words[t] = load_words(&now.words[t * kTile + output]);
    float inner[kGemmTiles][R];
    gemm_inner<R, kGemmTiles>(words, now.rows + lane_row, inner, [&] {
      put_weights(then);
      load_codes(next);
    });
    float d[kGemmTiles];
    TB_UNROLL
    for (uint32_t t = 0; t < kGemmTiles; ++t) d[t] = now.weight_scale[t * kTile + output];
    if (length == 1) {  // a segment is its group: acc is the sum of segments
      TB_UNROLL
      for (uint32_t t = 0; t < kGemmTiles; ++t) {
        TB_UNROLL
        for (uint32_t r = 0; r < R; ++r) acc[t][r] += fmadd(d[t], inner[t][r], 0.f);
      }
    } else {
      TB_UNROLL
      for (uint32_t t = 0; t < kGemmTiles; ++t) {
        TB_UNROLL
        for (uint32_t r = 0; r < R; ++r) acc[t][r] = fmadd(d[t], inner[t][r], acc[t][r]);
      }
    }
    if (group + 1 == n_groups || (length > 1 && (group + 1) % length == 0)) {  // a count would cost the register that is not there
      TB_UNROLL
      for (uint32_t t = 0; t < kGemmTiles; ++t) {
        TB_UNROLL
        for (uint32_t r = 0; r < R; ++r) {
          my_sums[r * kStride + t * kTile] += acc[t][r];
          acc[t][r] = 0;
        }
      }
    }
    put_codes(then);
    sync_block();
  }

  // A wave finishes rows of a unit, a few side by side, so that stores are long and the end of an output is written once.
  // What the next such job needs is on its way meanwhile.
  constexpr uint32_t kBatch = R < 4 ? R : 4, kBatches = kRows / kGemmWaves / kBatch;
  const uint32_t n_rows = min_of(kRows, p.max_rows - first_row), n_jobs = kBatches * (gated ? 1 : kHalfUnits);
  const auto row_of = [&](uint32_t job, uint32_t k) { return wave() + (job % kBatches * kBatch + k) * kGemmWaves; };
  const auto early_for = [&](uint32_t job, Early (&early)[kBatch]) {
    const uint32_t unit = unit_of(job / kBatches);
    TB_UNROLL
    for (uint32_t k = 0; k < kBatch; ++k)
      early[k] = job < n_jobs && unit < p.n_units ? early_of(p, place_of(p, unit, 0), first_row + row_of(job, k)) : Early{0.f, 1.f};
  };
  Early next[kBatch];
  early_for(0, next);
  TB_NO_UNROLL
  for (uint32_t job = 0; job < n_jobs; ++job) {
    Early early[kBatch];
    TB_UNROLL
    for (uint32_t k = 0; k < kBatch; ++k) early[k] = next[k];
    early_for(job + 1, next);
    const uint32_t i = job / kBatches, unit = unit_of(i);
    if (unit >= p.n_units || row_of(job, 0) >= n_rows) continue;
    const UnitPlace at = place_of(p, unit, 0);
    const Matrix& matrix = p.matrix[at.matrix];
    const uint32_t o = at.unit * kUnit + lane();
    const bool there = o < matrix.rows;
    float y[kBatch];
    TB_UNROLL
    for (uint32_t k = 0; k < kBatch; ++k) {
      const uint32_t r = row_of(job, k);
      const float* const from = shared.sums + r * kStride + i * kUnit + lane();
      const float factor = p.squares ? shared.factors[r] : 1.f;
      const float product = p.squares ? from[0] * factor : from[0];
      const float up = gated ? p.squares ? from[kUnit] * factor : from[kUnit] : 0.f;
      y[k] = outcome_of(p, matrix, o, there, product, up, early[k]);
      if (r < n_rows && there) matrix.out[(first_row + r) * matrix.out_stride + o] = y[k];
    }
    if (!p.out_q8.codes || at.matrix != 0) continue;
    Q8Value values[kBatch];
    q8_values(y, early[0].norm, values);
    TB_UNROLL
    for (uint32_t k = 0; k < kBatch; ++k)
      if (row_of(job, k) < n_rows) store_q8_tile(p.out_q8, first_row + row_of(job, k), at.unit, values[k]);
  }
}

}  // namespace turbo::gpu::q1
