// Kernel tables of the block codecs q8 and q4: one per ISA, all with the same bits. [team] Pure functions on the
// given ranges.
//
// A row of d elements is cut into blocks of 32 (the last one may be shorter); each has integer codes and one binary16
// scale. One head of a cache block holds codes, then scales as [row block][64 rows].
//   keys    [group of 16 rows][unit][row of the group][4 bytes]: a load of 64 bytes gives the same places of 16 keys,
//           so every key has a lane of its own and no sum runs across lanes. A unit is 4 int8 (q8) or 8 nibbles (q4:
//           low halves the first four elements, high halves the next four).
//   values  [64 rows][code bytes]; q8: int8; q4: per block of n, low halves elements 0..n/2, high halves the rest.
// Nibbles count from 8: 0..15 stands for -8..7.
//
// Score: per row block an exact integer dot with the query's own int8 codes, then one fused multiply-add of it with
// the product of both scales, blocks rising. Values: one fused multiply-add of weight * scale and code per element.
#pragma once

#include <cstdint>

namespace turbo::kv_float {

constexpr uint32_t kRowBlock = 32;
static inline uint64_t row_blocks(uint64_t head_dim) { return (head_dim + kRowBlock - 1) / kRowBlock; }

struct BlockRun {
  const uint8_t* head;   // codes and scales of one head
  const uint8_t* ahead;  // the same of another block, to fetch meanwhile, or null
  uint64_t scales;       // offset of the scales
  uint64_t row_begin, n_rows, head_dim, n_queries;
};

// A query as keys are multiplied with it, in one array of floats: [row blocks] scales; [row blocks] int32, what turns
// dots with unsigned codes into those with signed ones (-128 or -8 times the sum of the query's codes); [head_dim] int8
// codes.
struct BlockKernels {
  void (*scores)(const BlockRun& run, const float* queries, uint64_t query_stride, float* scores, uint64_t score_stride);
  void (*accumulate)(const BlockRun& run, const float* weights, uint64_t weight_stride, float* out, uint64_t out_stride);
};

const BlockKernels& scalar_block_kernels(uint32_t bits);  // 8 or 4
const BlockKernels& avx2_block_kernels(uint32_t bits);    // the scalar table where not compiled in
const BlockKernels& avx512_block_kernels(uint32_t bits);  // same

}  // namespace turbo::kv_float
