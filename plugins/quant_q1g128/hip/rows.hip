// Kernels of the Q1_0 format beside the product: rows of the matrix as floats, and the product with f32 activations.
#include <turbo/kernel/gpu/q1.hpp>
#include <turbo/kernel/gpu/q8.hpp>

using namespace turbo::gpu;
using turbo::gpu::q1::Exact;
using turbo::gpu::q1::Gather;

// A wave writes 32 columns, a lane one of them.
TB_KERNEL(q1_gather, Gather, q1::kGatherThreads) {
  const uint32_t r = block_x(), n_tiles = args.n_groups * q1::kGroupTiles;
  if (r >= *args.n_rows) return;
  // An id is a token of the vocabulary; whatever it is, the address is valid.
  const uint32_t id = static_cast<uint32_t>(args.ids[r]), row = id < args.rows ? id : 0;
  for (uint32_t tile = wave(); tile < n_tiles; tile += threads() / kWave) {
    const uint32_t column = tile * kQ8Tile + lane();
    const uint64_t at = q1::word_of(row, tile / q1::kGroupTiles, args.n_groups);
    const q1::SignPlace place = q1::sign_place(column % q1::kGroup);
    const float scale = half_to_float(*reinterpret_cast<const uint16_t*>(args.scales + at * 2));
    const float x = args.signs[at * 16 + place.byte] >> place.bit & 1 ? scale : -scale;
    args.dst[r * args.dst_stride + column] = x;
    if (args.out_q8.codes) write_q8_tile(args.out_q8, r, tile, x, args.out_norm ? args.out_norm[column] : 1.f);
  }
}

// A wave computes one output of one row: lane l takes weights l, l + 32, ... in rising order, then the wave's tree.
TB_KERNEL(q1_exact, Exact, q1::kPrepareThreads) {
  const q1::Matrix& matrix = args.matrix;
  const uint32_t n_waves = threads() / kWave, o = block_x() * n_waves + wave(), r = block_y();
  if (o >= matrix.rows || r >= *args.n_rows) return;
  const float* const x = args.x + (args.x_rows ? static_cast<uint32_t>(args.x_rows[r]) : r) * args.x_stride;
  float acc = 0;
  for (uint32_t g = 0; g < args.n_groups; ++g) {
    const uint64_t at = q1::word_of(o, g, args.n_groups);
    const float scale = half_to_float(*reinterpret_cast<const uint16_t*>(matrix.scales + at * 2));
    TB_UNROLL
    for (uint32_t t = 0; t < q1::kGroupTiles; ++t) {
      const q1::SignPlace place = q1::sign_place(t * kWave + lane());
      acc = fmadd(matrix.signs[at * 16 + place.byte] >> place.bit & 1 ? scale : -scale, x[g * q1::kGroup + t * kWave + lane()], acc);
    }
  }
  acc = wave_sum(acc);
  if (lane() != 0) return;
  if (matrix.bias) acc += matrix.bias[o];
  matrix.out[r * matrix.out_stride + o] = acc;
}
