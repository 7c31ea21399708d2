// Kernels of the Q1_0 format: rows to bytes, few rows, many rows.
#include <turbo/kernel/gpu/gemm.hpp>

using namespace turbo::gpu;
using turbo::gpu::q1::Prepare;
using turbo::gpu::q1::Product;

namespace {
template <uint32_t R>
TB_DEVICE void matvec_block(const Product& p, uint8_t* shared) {
  const uint32_t n_teams = threads() / kWave >= 2 * q1::team_waves(p.n_groups) ? 2 : 1;
  q1::matvec<R, q1::items_of(R)>(p, {block_x(), grid_x(), n_teams, q1::matvec_shape(p.n_groups, p.n_units, grid_x())}, block_y() * R, shared, q1::MemoryIo{});
}
}  // namespace

#define TURBO_Q1_MATVEC(name, R)                                                                      \
  TB_KERNEL_EARLY(name, Product, q1::kMatvecThreads, 8, 1) {                                          \
    TB_DYNAMIC_SHARED(uint8_t, shared);                                                               \
    let_next_begin();                                                                                 \
    matvec_block<R>(args, shared);                                                                    \
  }

TURBO_Q1_MATVEC(q1_matvec_1, 1)
TURBO_Q1_MATVEC(q1_matvec_2, 2)
TURBO_Q1_MATVEC(q1_matvec_4, 4)

#define TURBO_Q1_GEMM(name, R, WAVES, BLOCKS)                              \
  TB_KERNEL_EARLY(name, Product, q1::kGemmThreads, WAVES, BLOCKS) {         \
    let_next_begin();                                                       \
    wait_for_previous();                                                    \
    TB_SHARED(q1::GemmShared<R>, shared);                                   \
    const uint32_t first_row = block_y() * q1::gemm_rows(R);                \
    if (first_row >= *args.n_rows) return;                                  \
    q1::gemm<R>(args, block_x(), first_row, shared);                        \
  }

TURBO_Q1_GEMM(q1_gemm_2, 2, 8, 4)
TURBO_Q1_GEMM(q1_gemm_4, 4, 6, 3)

TB_KERNEL(q1_prepare, Prepare, q1::kPrepareThreads) {
  if (block_x() < *args.n_rows) q1::prepare_row(args, block_x());
}
