// Q1_0 matrices times many rows of bytes, with the bits of matvec.hpp.
//
// A block of 4 waves computes 4 tiles of 16 outputs (two units, or a gate's and an up's) for 32 rows; a lane one output of
// each tile for 4 rows, so that 16 bytes of activations from shared memory serve 16 dots. Groups pass through two buffers
// of shared memory; the next group's words are on their way in registers meanwhile.
#pragma once

#include <turbo/kernel/gpu/matvec.hpp>

namespace turbo::gpu::q1 {

struct GemmBuffer {
  uint8_t groups[kGemmRows * kSharedGroupBytes];
  Words4 words[kGemmTiles * kTile];
  float weight_scale[kGemmTiles * kTile];
};

constexpr uint32_t kGemmSumStride = kGemmTiles * kTile + 16;  // floats of a row's sums
struct GemmShared {
  GemmBuffer buffer[2];
  float sums[kGemmRows * kGemmSumStride];  // of finished segments, for want of registers
};

/// Four tiles, the block-th such, rows from first_row on.
TB_DEVICE void gemm(const Product& p, uint32_t block, uint32_t first_row, GemmShared& shared) {
  constexpr uint32_t kPieces = kGemmRows * 8 / kGemmThreads, kScales = kGemmRows * kGroupTiles / kGemmThreads, kHalfUnits = kGemmTiles / 2;
  static_assert(kGemmTiles * kTile * 2 == kGemmThreads && kScales * kGemmThreads == kGemmRows * kGroupTiles && kHalfUnits == 2);
  const uint32_t n_groups = p.n_groups, length = segment_groups(n_groups);
  const bool gated = is_gated(p.fuse);
  // Unit of the first or second pair of tiles, and whether it is an up's.
  const auto unit_of = [&](uint32_t pair) { return gated ? block : block * kHalfUnits + pair; };

  // What this thread loads of each group: pieces of activations, half a word of signs, a weight scale (two threads the
  // same one), a scale of the activations.
  const uint32_t n_live = live_for_x(p);
  const uint32_t loader = thread() / 2, part = thread() % 2, pair = loader / kUnit;
  const UnitPlanes planes = planes_of(p, min_of(unit_of(pair), p.n_units - 1), pair);
  const uint32_t place = loader / kTile % 2 * n_groups * kTile + loader % kTile;
  const Words2* const signs = reinterpret_cast<const Words2*>(planes.signs) + place * 2 + part;
  const uint16_t* const weight_scales = reinterpret_cast<const uint16_t*>(planes.scales) + place;
  const uint32_t scale_row = thread() / kGroupTiles, scale_tile = thread() % kGroupTiles;
  const Q8Scale* scales[kScales];
  TB_UNROLL
  for (uint32_t i = 0; i < kScales; ++i)
    scales[i] = p.scales + uint64_t{row_of_x(p, first_row + scale_row + i * (kGemmThreads / kGroupTiles), n_live)} * n_groups * kGroupTiles + scale_tile;
  const int8_t* pieces[kPieces];
  TB_UNROLL
  for (uint32_t i = 0; i < kPieces; ++i) {
    const uint32_t piece = thread() + i * kGemmThreads;
    pieces[i] = p.codes + uint64_t{row_of_x(p, first_row + piece / 8, n_live)} * n_groups * kGroup + piece % 8 * 16;
  }
  Words4 coming[kPieces];
  Words2 coming_signs;
  uint16_t coming_weight_scale;
  Words2 coming_scale[kScales];
  const auto load = [&](uint32_t group) {
    TB_UNROLL
    for (uint32_t i = 0; i < kPieces; ++i) coming[i] = load_words(pieces[i] + group * kGroup);
    const Words2& from = signs[group * kTile * 2];
    coming_signs = {from.x, from.y};
    coming_weight_scale = weight_scales[group * kTile];
    TB_UNROLL
    for (uint32_t i = 0; i < kScales; ++i) {
      const Words2& scale = *reinterpret_cast<const Words2*>(scales[i] + group * kGroupTiles);
      coming_scale[i] = {scale.x, scale.y};
    }
  };
  const auto put = [&](GemmBuffer& buffer) {
    TB_UNROLL
    for (uint32_t i = 0; i < kPieces; ++i) {
      const uint32_t piece = thread() + i * kGemmThreads;
      store_words(buffer.groups + piece / 8 * kSharedGroupBytes + piece % 8 * 16, coming[i]);
    }
    reinterpret_cast<Words2*>(buffer.words)[thread()] = coming_signs;
    buffer.weight_scale[loader] = half_to_float(coming_weight_scale);
    TB_UNROLL
    for (uint32_t i = 0; i < kScales; ++i)
      *reinterpret_cast<Words2*>(buffer.groups + (scale_row + i * (kGemmThreads / kGroupTiles)) * kSharedGroupBytes + kGroup +
                                 scale_tile * sizeof(Q8Scale)) = coming_scale[i];
  };

  const uint32_t output = lane() % kTile, lane_row = (2 * wave() + lane() / kTile) * kGemmLaneRows;
  float* const my_sums = shared.sums + lane_row * kGemmSumStride + output;
  float acc[kGemmTiles][kGemmLaneRows];
  TB_UNROLL
  for (uint32_t t = 0; t < kGemmTiles; ++t) {
    TB_UNROLL
    for (uint32_t r = 0; r < kGemmLaneRows; ++r) acc[t][r] = my_sums[r * kGemmSumStride + t * kTile] = 0;
  }
  load(0);
  put(shared.buffer[0]);
  sync_block();
  uint32_t in_segment = 0;
  TB_NO_UNROLL
  for (uint32_t group = 0; group < n_groups; ++group) {
    load(min_of(group + 1, n_groups - 1));  // the last group again: no branch
    const GemmBuffer& now = shared.buffer[group % 2];
    Words4 words[kGemmTiles];
    TB_UNROLL
    for (uint32_t t = 0; t < kGemmTiles; ++t) words[t] = load_words(&now.words[t * kTile + output]);
    float inner[kGemmTiles][kGemmLaneRows];
    group_inner<kGemmLaneRows, kGemmTiles>(words, now.groups + lane_row * kSharedGroupBytes, kSharedGroupBytes, inner);
    const bool single = length == 1;  // a segment is its group: acc is the sum of segments
    TB_UNROLL
    for (uint32_t t = 0; t < kGemmTiles; ++t) {
      const float d = now.weight_scale[t * kTile + output];
      TB_UNROLL
      for (uint32_t r = 0; r < kGemmLaneRows; ++r) {
        const float next = fmadd(d, inner[t][r], single ? 0.f : acc[t][r]);
        acc[t][r] = single ? acc[t][r] + next : next;
      }
    }
    if (group + 1 == n_groups || (++in_segment == length && !single)) {
      in_segment = 0;
      TB_UNROLL
      for (uint32_t t = 0; t < kGemmTiles; ++t) {
        TB_UNROLL
        for (uint32_t r = 0; r < kGemmLaneRows; ++r) {
          my_sums[r * kGemmSumStride + t * kTile] += acc[t][r];
          acc[t][r] = 0;
        }
      }
    }
    put(shared.buffer[(group + 1) % 2]);
    sync_block();
  }
  // A wave finishes a row of a unit, so that stores are long and the end of an output is written once. What the next such
  // job needs is on its way meanwhile.
  const uint32_t n_rows = min_of(kGemmRows, p.max_rows - first_row), n_tiles = n_groups * kGroupTiles, per_row = gated ? 1 : kHalfUnits;
  const uint32_t n_jobs = (n_rows + kGemmWaves - 1 - wave()) / kGemmWaves * per_row;
  const auto row_of = [&](uint32_t job) { return wave() + job / per_row * kGemmWaves; };
  const auto early_for = [&](uint32_t job) {
    const uint32_t unit = unit_of(job % per_row);
    return job < n_jobs && unit < p.n_units ? early_of(p, place_of(p, unit, 0), first_row + row_of(job)) : Early{0.f, 1.f};
  };
  Early next = early_for(0);
  float factor = 0;
  TB_NO_UNROLL
  for (uint32_t job = 0; job < n_jobs; ++job) {
    const uint32_t r = row_of(job), i = job % per_row, unit = unit_of(i);
    const Early early = next;
    next = early_for(job + 1);
    if (p.squares && i == 0) factor = q8_factor(q8_part(p.squares + uint64_t{row_of_x(p, first_row + r, n_live)} * n_tiles, n_tiles), n_tiles, p.eps);
    if (unit >= p.n_units) continue;
    const float* const from = shared.sums + r * kGemmSumStride + i * kUnit + lane();
    const float y = p.squares ? from[0] * factor : from[0];
    const float up = gated ? p.squares ? from[kUnit] * factor : from[kUnit] : 0.f;
    finish(p, place_of(p, unit, 0), first_row + r, y, up, early, MemoryIo{});
  }
}

}  // namespace turbo::gpu::q1
