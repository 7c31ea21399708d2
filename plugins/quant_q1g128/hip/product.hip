// Kernels of the Q1_0 format: rows prepared, few rows, many rows.
#include <turbo/kernel/gpu/gemm.hpp>

using namespace turbo::gpu;
using turbo::gpu::q1::Product;

// Rows of blocks beyond the live ones have nothing to do; the first row of blocks does not wait to know.
#define TURBO_Q1_MATVEC(name, R)                                                             \
  TB_KERNEL(name, Product, q1::kMatvecThreads) {                                             \
    TB_DYNAMIC_SHARED(uint8_t, shared);                                                      \
    if (block_y() && block_y() * R >= *args.n_rows) return;                                  \
    q1::matvec<R>(args, block_x(), grid_x(), block_y() * R, shared);                         \
  }

TURBO_Q1_MATVEC(q1_matvec_1, 1)
TURBO_Q1_MATVEC(q1_matvec_2, 2)
TURBO_Q1_MATVEC(q1_matvec_4, 4)
TURBO_Q1_MATVEC(q1_matvec_8, 8)

TB_KERNEL(q1_gemm, Product, q1::kGemmThreads) {
  using Buffers = q1::GemmBuffer[2];
  TB_SHARED(Buffers, shared);
  if (block_y() * q1::kGemmRows >= *args.n_rows) return;
  q1::gemm(args, block_x(), block_y() * q1::kGemmRows, shared);
}

TB_KERNEL(q1_prepare, Product, q1::kPrepareThreads) {
  using Slots = float[kNormWaves];
  TB_SHARED(Slots, slots);
  if (block_x() >= *args.n_rows) return;
  q1::prepare_row(args, block_x(), slots);
}
