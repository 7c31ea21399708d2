// What kernels know of one side (K or V) of one layer beside the pool: sizes of rows and pages, the center, tables of the
// rotation. Plain structs, shared by host code, which fills them, and kernels. Addresses are of the device.
#pragma once

#include <turbo/kernel/gpu/q8_layout.hpp>

namespace turbo::gpu {

struct KvSide {
  uint64_t head_bytes, open_head_bytes;  // of one kv head of a block; open: 0 for codecs of one form
  uint32_t pitch, open_pitch;            // bytes of a row (of its codes)
  uint32_t scales_at;                    // offset of the scales in a head, in bytes
  uint32_t n_scales, scale_bytes;        // of a row; of one
  uint32_t scale_group;                  // elements of one scale
  uint32_t rotated;                      // 1: rows are rotated before they are rounded
  // The rotation, as turbo/kernel/rotated_kv/kernels.hpp has it.
  uint32_t turn, seed, block;
  float factor;
  const float *first, *second, *mix, *mix_transposed;
  const float* center;                   // [n_kv_heads][head_dim], or null
  // Codebook: [16] levels, [16] boundaries, [16] int8 levels; rule of the scale.
  const float *level, *boundary;
  const uint32_t* level8;
  float level8_unit;
  uint32_t rule;
};

/// Rows of a step that attention's blocks append themselves, at most; a wave's lanes hold them.
constexpr uint32_t kMaxFusedAppend = 16;

/// Everything of an attention kernel. Tiles: tile_rows rows of a sequence times tile_heads query heads of one kv head.
struct AttendArgs {
  turbo_device_attend a;
  KvSide k, v;
  Q8Rows out_q8;       // codes null: none
  float* partials;     // [row][head][max_chunks][partial_stride]: max, sum, 2 unused, values
  uint32_t* counters;  // [max_rows][grid_x]; zero between launches
  uint32_t partial_stride;
  uint32_t group;      // n_heads / n_kv_heads
  uint32_t tile_rows, tile_heads, head_tiles;  // head_tiles * tile_heads >= n_heads / n_kv_heads
  uint32_t loop;       // 1: a block walks all chunks; 0: one chunk a block
  // scores and accumulate
  uint32_t chunk_begin, n_chunks;
  float* scores;       // scores: out; accumulate: weights in
  uint64_t score_stride;
  float* sums;
  uint64_t sum_stride;
};

struct AppendArgs {
  turbo_device_kv kv;
  turbo_device_table table;
  KvSide side;
  const float* rows;
  uint64_t row_stride;
  uint32_t max_rows;
  uint32_t which;         // TURBO_KV_SIDE_*
  const float* norm;      // [head_dim], or null
  float eps;
  uint32_t rope_dims, rope_style;
  float rope_magnitude;
  const float* rope_frequencies;
};

/// Layers of one side that a launch takes.
constexpr uint32_t kLaunchParts = 128;

struct PackArgs {
  turbo_device_kv kv;  // of the first part; addresses are the parts' own
  KvSide side;
  int32_t open_id, block_id;
  struct Part {
    const uint8_t* open_base;
    uint8_t* base;
  } part[kLaunchParts];
};

struct MoveArgs {
  KvSide side;
  uint64_t src, dst;  // offsets of the two blocks
  uint32_t src_row, dst_row, n_kv_heads, head_dim;
  uint8_t* base[kLaunchParts];
};

}  // namespace turbo::gpu
