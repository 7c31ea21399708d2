// Kernels of the Q1_0 format beside the product: rows of the matrix as floats, and the product with f32 activations.
#include <turbo/kernel/gpu/matvec.hpp>

using namespace turbo::gpu;
using turbo::gpu::q1::Gather;
using turbo::gpu::q1::Product;

// A wave writes a group: lane l the four weights 4l .. 4l + 3.
TB_KERNEL(q1_gather, Gather, q1::kGatherThreads) {
  const uint32_t r = block_x();
  if (r >= *args.n_rows) return;
  // An id is a token of the vocabulary; whatever it is, the address is valid.
  const uint32_t id = static_cast<uint32_t>(args.ids[r]), row = id < args.rows ? id : 0;
  for (uint32_t g = wave(); g < args.n_groups; g += threads() / kWave) {
    const uint64_t at = q1::word_of(row, g, args.n_groups);
    const uint8_t byte = args.signs[at * 16 + lane() / 2];
    const float scale = half_to_float(*reinterpret_cast<const uint16_t*>(args.scales + at * 2));
    float* const dst = args.dst + r * args.dst_stride + g * q1::kGroup + lane() * 4;
    TB_UNROLL
    for (uint32_t k = 0; k < 4; ++k) dst[k] = byte >> (lane() % 2 * 4 + k) & 1 ? scale : -scale;
  }
}

// A wave computes one output of one row: lane l takes weights l, l + 32, ... in rising order, then the wave's tree.
TB_KERNEL(q1_exact, Product, q1::kPrepareThreads) {
  const q1::Matrix& matrix = args.matrix[0];
  const uint32_t n_waves = threads() / kWave, o = block_x() * n_waves + wave(), r = block_y();
  if (o >= matrix.rows || r >= *args.n_rows) return;
  const float* const x = args.x + r * args.x_stride;
  float acc = 0;
  for (uint32_t g = 0; g < args.n_groups; ++g) {
    const uint64_t at = q1::word_of(o, g, args.n_groups);
    const uint32_t* const words = reinterpret_cast<const uint32_t*>(matrix.signs + at * 16);
    const float scale = half_to_float(*reinterpret_cast<const uint16_t*>(matrix.scales + at * 2));
    TB_UNROLL
    for (uint32_t v = 0; v < 4; ++v)
      acc = fmadd(words[v] >> lane() & 1 ? scale : -scale, x[g * q1::kGroup + v * 32 + lane()], acc);
  }
  acc = wave_sum(acc);
  if (lane() == 0) q1::finish(args, 0, r, o, acc, 0.f, q1::residual_of(args, r, o));
}
