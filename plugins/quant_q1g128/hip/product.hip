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

#define TURBO_Q1_GEMM(name, LANE_ROWS)                                        \
  TB_KERNEL(name, Product, q1::kGemmThreads) {                                \
    using Shared = q1::GemmShared<LANE_ROWS>;                                 \
    TB_SHARED(Shared, shared);                                                \
    const uint32_t first_row = block_y() * q1::gemm_rows(LANE_ROWS);          \
    if (first_row >= *args.n_rows) return;                                    \
    q1::gemm<LANE_ROWS>(args, block_x(), first_row, shared);                  \
  }

TURBO_Q1_GEMM(q1_gemm_4, 4)
#if !defined(TB_AMD)  // more registers than some compilers give
TURBO_Q1_GEMM(q1_gemm_8, 8)
#endif

TB_KERNEL(q1_prepare, Product, q1::kPrepareThreads) {
  using Slots = float[kNormWaves];
  TB_SHARED(Slots, slots);
  if (block_x() >= *args.n_rows) return;
  q1::prepare_row(args, block_x(), slots);
}
