// Q1_0 matrices times many prepared rows, with the bits of matvec.hpp.
//
// A block of 4 waves computes 4 tiles of 16 outputs for 64 rows; a lane one output of each tile for 8 rows, so that 16
// bytes of activations from shared memory serve 16 dots. Groups pass through two buffers of shared memory; the next
// group's words are on their way in registers meanwhile.
#pragma once

#include <turbo/kernel/gpu/matvec.hpp>

namespace turbo::gpu::q1 {

struct GemmBuffer {
  uint8_t planes[kGemmRows * kSharedGroupBytes];
  Words4 words[kGemmTiles * kTile];
  GroupScale scales[kGemmRows];
  float weight_scale[kGemmTiles * kTile];
};

/// Tiles from slot 4 * block on, rows [first_row, first_row + 64). `shared` is two buffers.
TB_DEVICE void gemm(const Product& p, uint32_t block, uint32_t first_row, GemmBuffer* shared) {
  constexpr uint32_t kPieces = kGemmRows * 8 / kGemmThreads;
  static_assert(kGemmTiles * kTile * 2 == kGemmThreads && kGemmRows * 2 == kGemmThreads);
  const uint32_t n_groups = p.n_groups, length = segment_groups(n_groups), last_row = p.max_rows - 1;
  const bool gated = is_gated(p.fuse);
  const auto unit_of = [&](uint32_t tile) { return gated ? block * (kGemmTiles / 2) + tile / 2 : block * kGemmTiles + tile; };

  // What this thread loads of each group: four pieces of activations, half a word of signs, a weight scale (two threads
  // the same one), half a scale of the activations.
  const uint32_t loader = thread() / 2, part = thread() % 2;
  const TilePlanes tile = planes_of(p, min_of(unit_of(loader / kTile), p.n_units - 1), loader / kTile & 1);
  const Words2* const signs = reinterpret_cast<const Words2*>(tile.signs) + loader % kTile * 2 + part;
  const uint16_t* const weight_scales = reinterpret_cast<const uint16_t*>(tile.scales) + loader % kTile;
  const uint32_t* const scales = reinterpret_cast<const uint32_t*>(p.scales + uint64_t{min_of(first_row + loader, last_row)} * n_groups) + part;
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
    for (uint32_t i = 0; i < kPieces; ++i) {
      // By members: copied whole, the array stays in memory with some compilers.
      const Words4& from = *reinterpret_cast<const Words4*>(pieces[i] + group * kGroupBytes);
      coming[i] = {from.x, from.y, from.z, from.w};
    }
    const Words2& from = signs[group * kTile * 2];
    coming_signs = {from.x, from.y};
    coming_weight_scale = weight_scales[group * kTile];
    coming_scale = scales[group * 2];
  };
  const auto put = [&](GemmBuffer& buffer) {
    TB_UNROLL
    for (uint32_t i = 0; i < kPieces; ++i) {
      const uint32_t piece = thread() + i * kGemmThreads;
      Words4& to = *reinterpret_cast<Words4*>(buffer.planes + piece / 8 * kSharedGroupBytes + piece % 8 * 16);
      to.x = coming[i].x;
      to.y = coming[i].y;
      to.z = coming[i].z;
      to.w = coming[i].w;
    }
    reinterpret_cast<Words2*>(buffer.words)[thread()] = coming_signs;
    buffer.weight_scale[loader] = half_to_float(coming_weight_scale);
    reinterpret_cast<uint32_t*>(buffer.scales)[thread()] = coming_scale;
  };

  const uint32_t output = lane() % kTile, lane_row = (2 * wave() + lane() / kTile) * kGemmLaneRows;
  float total[kGemmTiles][kGemmLaneRows], acc[kGemmTiles][kGemmLaneRows];
  TB_UNROLL
  for (uint32_t t = 0; t < kGemmTiles; ++t) {
    TB_UNROLL
    for (uint32_t r = 0; r < kGemmLaneRows; ++r) total[t][r] = acc[t][r] = 0;
  }
  load(0);
  put(shared[0]);
  sync_block();
  uint32_t in_segment = 0;
  TB_NO_UNROLL
  for (uint32_t group = 0; group < n_groups; ++group) {
    if (group + 1 < n_groups) load(group + 1);
    const GemmBuffer& now = shared[group % 2];
    Words4 words[kGemmTiles];
    TB_UNROLL
    for (uint32_t t = 0; t < kGemmTiles; ++t) words[t] = now.words[t * kTile + output];
    int32_t sum[kGemmTiles][kGemmLaneRows];
    group_dot<kGemmLaneRows, kGemmTiles>(words, now.planes + lane_row * kSharedGroupBytes, kSharedGroupBytes, sum);
    TB_UNROLL
    for (uint32_t r = 0; r < kGemmLaneRows; ++r) {
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
        for (uint32_t r = 0; r < kGemmLaneRows; ++r) {
          total[t][r] += acc[t][r];
          acc[t][r] = 0;
        }
      }
    }
    if (group + 1 < n_groups) put(shared[(group + 1) % 2]);
    sync_block();
  }
  // Through shared memory, so that stores are long and the end of an output is written out once, not for each register.
  constexpr uint32_t kStride = kGemmTiles * kTile + 16;
  static_assert(kGemmRows * kStride * sizeof(float) <= 2 * sizeof(GemmBuffer));
  float* const sums = reinterpret_cast<float*>(shared);
  TB_UNROLL
  for (uint32_t t = 0; t < kGemmTiles; ++t) {
    TB_UNROLL
    for (uint32_t r = 0; r < kGemmLaneRows; ++r) sums[(lane_row + r) * kStride + t * kTile + output] = total[t][r];
  }
  sync_block();
  const uint32_t per_row = gated ? kGemmTiles / 2 * kTile : kGemmTiles * kTile;
  const uint32_t n_rows = min_of(kGemmRows, p.max_rows - first_row);
  for (uint32_t i = thread(); i < n_rows * per_row; i += kGemmThreads) {
    const uint32_t r = i / per_row, column = i % per_row;
    const uint32_t tile = gated ? column / kTile * 2 : column / kTile, unit = unit_of(tile);
    if (unit >= p.n_units) continue;
    const TilePlace at = place_of(p, unit, 0);
    const uint32_t o = at.tile * kTile + column % kTile;
    if (o >= p.matrix[at.matrix].rows) continue;
    const float* const from = sums + r * kStride + tile * kTile + column % kTile;
    finish(p, at.matrix, first_row + r, o, from[0], gated ? from[kTile] : 0.f, residual_of(p, first_row + r, o));
  }
}

}  // namespace turbo::gpu::q1
