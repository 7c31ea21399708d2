// Kernels of the Q1_0 format: rows to bytes, few rows, many rows.
#include <turbo/kernel/gpu/gemm.hpp>

using namespace turbo::gpu;
using turbo::gpu::q1::Prepare;
using turbo::gpu::q1::Product;

// Rows of blocks beyond the live ones have nothing to do; the first row of blocks does not wait to know.
#define TURBO_Q1_MATVEC(name, R)                                                                      \
  TB_KERNEL_EARLY(name, Product, q1::kMatvecThreads, 8, 1) {                                          \
    TB_DYNAMIC_SHARED(uint8_t, shared);                                                               \
    let_next_begin();                                                                                 \
    if (block_y()) wait_for_previous();                                                               \
    if (block_y() && block_y() * R >= *args.n_rows) return;                                           \
    q1::matvec<R>(args, block_x(), grid_x(), block_y() * R, shared, [] { wait_for_previous(); });     \
  }

TURBO_Q1_MATVEC(q1_matvec_1, 1)
TURBO_Q1_MATVEC(q1_matvec_2, 2)
TURBO_Q1_MATVEC(q1_matvec_4, 4)

TB_KERNEL_EARLY(q1_gemm, Product, q1::kGemmThreads, 7, 4) {
  let_next_begin();
  wait_for_previous();
  TB_SHARED(q1::GemmShared, shared);
  const uint32_t first_row = block_y() * q1::kGemmRows;
  if (first_row >= *args.n_rows) return;
  q1::gemm(args, block_x(), first_row, shared);
}

TB_KERNEL(q1_prepare, Prepare, q1::kPrepareThreads) {
  if (block_x() < *args.n_rows) q1::prepare_row(args, block_x());
}
