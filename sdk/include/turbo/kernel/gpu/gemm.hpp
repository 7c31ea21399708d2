// Q1_0 matrices times many prepared rows, with the bits of matvec.hpp.
//
// A block of 4 waves computes 4 tiles of 16 outputs for 8 * LANE_ROWS rows; a lane one output of each tile for LANE_ROWS
// rows, so that 16 bytes of activations from shared memory serve 16 dots. 8 rows a lane share the masks of signs best; 4
// fit in 128 registers. Groups pass through two buffers of shared memory; the next
// group's words are on their way in registers meanwhile.
#pragma once

#include <turbo/kernel/gpu/matvec.hpp>

namespace turbo::gpu::q1 {

template <uint32_t ROWS>
struct GemmBuffer {
  uint8_t planes[ROWS * kSharedGroupBytes];
  Words4 words[kGemmTiles * kTile];
  GroupScale scales[ROWS];
  float weight_scale[kGemmTiles * kTile];
};

constexpr uint32_t kGemmSumStride = kGemmTiles * kTile + 16;  // floats of a row's sums
/// 4 rows a lane keep the sums of finished segments here, for want of registers; 8 write them over the buffers at the end.
template <uint32_t LANE_ROWS>
struct GemmShared {
  GemmBuffer<gemm_rows(LANE_ROWS)> buffer[2];
  float sums[LANE_ROWS <= 4 ? gemm_rows(LANE_ROWS) * kGemmSumStride : 1];
};

/// Four tiles, the block-th such, rows from first_row on.
template <uint32_t LANE_ROWS>
TB_DEVICE void gemm(const Product& p, uint32_t block, uint32_t first_row, GemmShared<LANE_ROWS>& shared) {
  constexpr uint32_t kRows = gemm_rows(LANE_ROWS), kPieces = kRows * 8 / kGemmThreads;
  static_assert(kGemmTiles * kTile * 2 == kGemmThreads && kRows * 2 <= kGemmThreads && kGemmThreads % (kRows * 2) == 0);
  const uint32_t n_groups = p.n_groups, length = segment_groups(n_groups), last_row = p.max_rows - 1;
  const bool gated = is_gated(p.fuse);
  const auto unit_of = [&](uint32_t tile) { return gated ? block * (kGemmTiles / 2) + tile / 2 : block * kGemmTiles + tile; };

  // What this thread loads of each group: pieces of activations, half a word of signs, a weight scale (two threads the
  // same one), half a scale of the activations (perhaps the same as another).
  const uint32_t loader = thread() / 2, part = thread() % 2, scale_row = loader % kRows;
  const TilePlanes tile = planes_of(p, min_of(unit_of(loader / kTile), p.n_units - 1), loader / kTile & 1);
  const Words2* const signs = reinterpret_cast<const Words2*>(tile.signs) + loader % kTile * 2 + part;
  const uint16_t* const weight_scales = reinterpret_cast<const uint16_t*>(tile.scales) + loader % kTile;
  const uint32_t* const scales = reinterpret_cast<const uint32_t*>(p.scales + uint64_t{min_of(first_row + scale_row, last_row)} * n_groups) + part;
  const uint8_t* pieces[kPieces];
  TB_UNROLL
  for (uint32_t i = 0; i < kPieces; ++i) {
    const uint32_t piece = thread() + i * kGemmThreads;
    pieces[i] = p.planes + uint64_t{min_of(first_row + piece / 8, last_row)} * n_groups * kGroupBytes + piece % 8 * 16;
  }
  Words4 coming[kPieces];
  Words2 coming_signs;
  uint16_t coming_weight_scale;
  uint32_t coming_scale;
  const auto load = [&](uint32_t group) {
    TB_UNROLL
    for (uint32_t i = 0; i < kPieces; ++i) coming[i] = load_words(pieces[i] + group * kGroupBytes);
    const Words2& from = signs[group * kTile * 2];
    coming_signs = {from.x, from.y};
    coming_weight_scale = weight_scales[group * kTile];
    coming_scale = scales[group * 2];
  };
  const auto put = [&](GemmBuffer<kRows>& buffer) {
    TB_UNROLL
    for (uint32_t i = 0; i < kPieces; ++i) {
      const uint32_t piece = thread() + i * kGemmThreads;
      store_words(buffer.planes + piece / 8 * kSharedGroupBytes + piece % 8 * 16, coming[i]);
    }
    reinterpret_cast<Words2*>(buffer.words)[thread()] = coming_signs;
    buffer.weight_scale[loader] = half_to_float(coming_weight_scale);
    reinterpret_cast<uint32_t*>(buffer.scales)[scale_row * 2 + part] = coming_scale;
  };

  const uint32_t output = lane() % kTile, lane_row = (2 * wave() + lane() / kTile) * LANE_ROWS;
  constexpr bool kSharedSums = LANE_ROWS <= 4;
  static_assert(kSharedSums || kRows * kGemmSumStride * sizeof(float) <= sizeof shared.buffer);
  float* const sums = kSharedSums ? shared.sums : reinterpret_cast<float*>(shared.buffer);
  float* const my_sums = sums + lane_row * kGemmSumStride + output;
  float total[kGemmTiles][LANE_ROWS], acc[kGemmTiles][LANE_ROWS];
  TB_UNROLL
  for (uint32_t t = 0; t < kGemmTiles; ++t) {
    TB_UNROLL
    for (uint32_t r = 0; r < LANE_ROWS; ++r) {
      total[t][r] = acc[t][r] = 0;
      if (kSharedSums) my_sums[r * kGemmSumStride + t * kTile] = 0;
    }
  }
  load(0);
  put(shared.buffer[0]);
  sync_block();
  uint32_t in_segment = 0;
  TB_NO_UNROLL
  for (uint32_t group = 0; group < n_groups; ++group) {
    load(min_of(group + 1, n_groups - 1));  // the last group again: no branch
    const GemmBuffer<kRows>& now = shared.buffer[group % 2];
    Words4 words[kGemmTiles];
    TB_UNROLL
    for (uint32_t t = 0; t < kGemmTiles; ++t) words[t] = load_words(&now.words[t * kTile + output]);
    int32_t sum[kGemmTiles][LANE_ROWS];
    group_dot<LANE_ROWS, kGemmTiles>(words, now.planes + lane_row * kSharedGroupBytes, kSharedGroupBytes, sum);
    TB_UNROLL
    for (uint32_t r = 0; r < LANE_ROWS; ++r) {
      asm volatile("" ::: "memory");  // not all scales at once
      const GroupScale a = now.scales[lane_row + r];
      TB_UNROLL
      for (uint32_t t = 0; t < kGemmTiles; ++t)
        acc[t][r] = add_group(now.weight_scale[t * kTile + output], a, sum[t][r], acc[t][r]);
    }
    if (++in_segment == length || group + 1 == n_groups) {
      in_segment = 0;
      TB_UNROLL
      for (uint32_t t = 0; t < kGemmTiles; ++t) {
        TB_UNROLL
        for (uint32_t r = 0; r < LANE_ROWS; ++r) {
          if (kSharedSums)
            my_sums[r * kGemmSumStride + t * kTile] += acc[t][r];
          else
            total[t][r] += acc[t][r];
          acc[t][r] = 0;
        }
      }
    }
    put(shared.buffer[(group + 1) % 2]);
    sync_block();
  }
  // Through shared memory, so that stores are long and the end of an output is written out once, not for each register.
  if (!kSharedSums) {
    TB_UNROLL
    for (uint32_t t = 0; t < kGemmTiles; ++t) {
      TB_UNROLL
      for (uint32_t r = 0; r < LANE_ROWS; ++r) my_sums[r * kGemmSumStride + t * kTile] = total[t][r];
    }
    sync_block();
  }
  const uint32_t per_row = gated ? kGemmTiles / 2 * kTile : kGemmTiles * kTile;
  const uint32_t n_rows = min_of(kRows, p.max_rows - first_row);
  for (uint32_t i = thread(); i < n_rows * per_row; i += kGemmThreads) {
    const uint32_t r = i / per_row, column = i % per_row;
    const uint32_t tile = gated ? column / kTile * 2 : column / kTile, unit = unit_of(tile);
    if (unit >= p.n_units) continue;
    const TilePlace at = place_of(p, unit, 0);
    const uint32_t o = at.tile * kTile + column % kTile;
    if (o >= p.matrix[at.matrix].rows) continue;
    const float* const from = sums + r * kGemmSumStride + tile * kTile + column % kTile;
    finish(p, at.matrix, first_row + r, o, from[0], gated ? from[kTile] : 0.f, residual_of(p, first_row + r, o));
  }
}

}  // namespace turbo::gpu::q1
