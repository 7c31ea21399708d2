// Which kernel computes a product, and with what grid. All of it is speed: every choice gives the same bits. Measured
// constants are here and nowhere else.
#pragma once

#include <turbo/kernel/gpu/q1_layout.hpp>

#include <algorithm>

namespace turbo::q1 {

namespace layout = gpu::q1;

enum Kernel : uint32_t { matvec_1, matvec_2, matvec_4, matvec_8, gemm, prepare, gather, exact };

constexpr uint32_t kMostSharedBytes = 112 * 1024;  // of a block: two fit where a compute unit has more than what all offer
constexpr uint32_t kMatvecRows = 32;               // more rows take the matrix product, if it fills the device
constexpr uint32_t kBlocksPerUnit = 1;             // of the matvec, for each compute unit

struct Choice {
  Kernel kernel;
  uint32_t grid_x, grid_y, threads, shared_bytes;
};

/// n_units: of outputs, gated of pairs of them.
inline Choice choose(uint32_t max_rows, uint32_t n_groups, uint32_t n_units, bool gated, uint32_t compute_units, uint32_t max_shared_bytes) {
  const uint32_t shared = std::min(max_shared_bytes, kMostSharedBytes);
  const Choice product = {gemm, gated ? n_units : (n_units + 1) / 2, (max_rows + layout::kGemmRows - 1) / layout::kGemmRows, layout::kGemmThreads, 0};
  if (max_rows > 8 * kMatvecRows || (max_rows > kMatvecRows && uint64_t{product.grid_x} * product.grid_y >= compute_units)) return product;
  uint32_t rows = max_rows > 4 ? 8 : max_rows > 2 ? 4 : max_rows;
  while (rows > 1 && layout::matvec_shared_bytes(rows, n_groups) > shared) rows /= 2;
  const uint32_t bytes = layout::matvec_shared_bytes(rows, n_groups);
  if (bytes > shared) return product;
  // As many blocks as give each the same number of units, near enough.
  const uint32_t most = compute_units * kBlocksPerUnit, rounds = (n_units + most - 1) / most;
  return {rows == 1 ? matvec_1 : rows == 2 ? matvec_2 : rows == 4 ? matvec_4 : matvec_8, (n_units + rounds - 1) / rounds,
          (max_rows + rows - 1) / rows, layout::matvec_threads(n_groups), bytes};
}

}  // namespace turbo::q1
