// The order in which an int8 matmul walks rows, tiles and blocks, shared by the vector kernels. Static functions only,
// as in kernels.h.
#pragma once

#include "kernels.h"

namespace turbo::q1 {

// Up to four activation rows against up to four tiles over a run of blocks; acc[r][32 w + lane] holds the running sums.
struct Pass {
  const uint8_t* weights;  // first block of the run in the first tile
  uint64_t tile_bytes;     // to the same block of the next tile
  const uint8_t* tables;   // first block of the run in the first row
  const float* scales;
  uint64_t row_bytes;  // to the next activation row
  uint64_t n_blocks;
  float* acc;
  uint64_t acc_stride;
  bool first;               // sums start at 0
  uint64_t prefetch_bytes;  // how far ahead of each weight to fetch, 0 for not at all
};

struct DriverShape {
  uint64_t block_tables;     // bytes of activation tables per block
  uint64_t blocks_per_pass;  // blocks whose tables of four rows stay in the first-level cache
  uint64_t max_tiles;        // 1, 2 or 4
  void (*run)(const Pass& pass, uint64_t n_rows, uint64_t n_tiles);
};

struct Job {
  const turbo_matmul* args;
  const DriverShape* shape;
  uint64_t n_blocks;
  bool streaming;  // weights come from memory, not from a cache
};

static inline uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

static inline uint64_t tiles_at_once(const Job& job, uint64_t left) {
  return smaller(left >= 4 ? 4 : left >= 2 ? 2 : 1, job.shape->max_tiles);
}

// Rows [row, row + n_rows) x tiles [tile, tile + n_tiles) x blocks [block, block + n), sums kept in acc.
static inline void run(const Job& job, uint64_t row, uint64_t n_rows, uint64_t tile, uint64_t n_tiles, uint64_t block,
                       uint64_t n, float* acc, uint64_t acc_stride) {
  const turbo_matmul* a = job.args;
  const uint8_t* activation = (const uint8_t*)a->activations + row * a->activation_stride;
  Pass p;
  p.weights = tile_block(a->matrix, tile, block);
  p.tile_bytes = job.n_blocks * kTileBlockBytes;
  p.tables = activation + scale_bytes(a->matrix->cols) + block * job.shape->block_tables;
  p.scales = (const float*)activation + block;
  p.row_bytes = a->activation_stride;
  p.n_blocks = n;
  p.acc = acc;
  p.acc_stride = acc_stride;
  p.first = block == 0;
  p.prefetch_bytes = row ? 0 : job.streaming ? n_tiles * p.tile_bytes : n * kTileBlockBytes;
  job.shape->run(p, n_rows, n_tiles);
}

// Few rows: the weights come from memory, so each tile group is read once, front to back.
static inline void matmul_streaming(const Job& job, uint64_t tile_begin, uint64_t tile_end) {
  const turbo_matmul* a = job.args;
  for (uint64_t tile = tile_begin; tile < tile_end;) {
    const uint64_t n_tiles = tiles_at_once(job, tile_end - tile);
    for (uint64_t row = 0; row < a->n_rows; row += 4)
      run(job, row, smaller(4, a->n_rows - row), tile, n_tiles, 0, job.n_blocks,
          a->out + row * a->out_stride + tile * kTile, a->out_stride);
    tile += n_tiles;
  }
}

// Many rows: the tables of four rows and a few blocks stay in the first-level cache while all tiles pass by.
static inline void matmul_blocked(const Job& job, uint64_t tile_begin, uint64_t tile_end) {
  const turbo_matmul* a = job.args;
  for (uint64_t block = 0; block < job.n_blocks; block += job.shape->blocks_per_pass) {
    const uint64_t n = smaller(job.shape->blocks_per_pass, job.n_blocks - block);
    for (uint64_t row = 0; row < a->n_rows; row += 4) {
      const uint64_t n_rows = smaller(4, a->n_rows - row);
      for (uint64_t tile = tile_begin; tile < tile_end;) {
        const uint64_t n_tiles = tiles_at_once(job, tile_end - tile);
        run(job, row, n_rows, tile, n_tiles, block, n, a->out + row * a->out_stride + tile * kTile, a->out_stride);
        tile += n_tiles;
      }
    }
  }
}

// The last tile of a matrix whose rows are no multiple of 32: through a buffer, so nothing past the row is written.
static inline void matmul_ragged(const Job& job, uint64_t tile) {
  const turbo_matmul* a = job.args;
  const uint64_t n_outputs = a->matrix->rows - tile * kTile;
  float acc[4 * kTile];
  for (uint64_t row = 0; row < a->n_rows; row += 4) {
    const uint64_t n_rows = smaller(4, a->n_rows - row);
    run(job, row, n_rows, tile, 1, 0, job.n_blocks, acc, kTile);
    for (uint64_t r = 0; r < n_rows; ++r)
      memcpy(a->out + (row + r) * a->out_stride + tile * kTile, acc + r * kTile, n_outputs * sizeof(float));
  }
}

static inline void drive(const turbo_matmul* args, const DriverShape& shape) {
  if (args->out_begin >= args->out_end) return;
  const Job job = {args, &shape, args->matrix->cols / kBlock, args->n_rows <= 16};
  const uint64_t tile_begin = args->out_begin / kTile, full_end = args->out_end / kTile;
  if (job.streaming)
    matmul_streaming(job, tile_begin, full_end);
  else
    matmul_blocked(job, tile_begin, full_end);
  if (args->out_end % kTile != 0) matmul_ragged(job, full_end);
}

}  // namespace turbo::q1
