// Which kernel computes a product, and with what grid. All of it is speed: every choice gives the same bits. Measured
// constants are here and nowhere else.
#pragma once

#include <turbo/kernel/gpu/q1_layout.hpp>

namespace turbo::q1 {

namespace layout = gpu::q1;

enum Kernel : uint32_t { matvec_1, matvec_2, matvec_4, matvec_8, gemm_4, prepare, gather, exact, gemm_8 };

constexpr uint32_t kMostSharedBytes = 64 * 1024;  // of a block; what every device offers
constexpr uint32_t kFusedGroups = 96;             // rows x groups that each block prepares anew; more: prepared once
constexpr uint32_t kMatvecRows = 32;              // more rows take the matrix product, if it fills the device
constexpr uint32_t kBlocksPerUnit = 1;            // of the matvec, for each compute unit

struct Choice {
  Kernel kernel;
  bool prepared;                 // a kernel before prepares all rows
  uint32_t grid_x, grid_y, threads, shared_bytes;
};

/// The matrix product by lane_rows (4 or 8) rows a lane.
inline Choice gemm_choice(uint32_t max_rows, uint32_t n_tiles, uint32_t lane_rows) {
  const uint32_t rows = layout::gemm_rows(lane_rows);
  return {lane_rows == 8 ? gemm_8 : gemm_4, true, (n_tiles + layout::kGemmTiles - 1) / layout::kGemmTiles, (max_rows + rows - 1) / rows,
          layout::kGemmThreads, 0};
}

/// `wide`: there is a gemm_8.
inline Choice choose(uint32_t max_rows, uint32_t n_groups, uint32_t n_tiles, uint32_t n_units, uint32_t compute_units,
                     uint32_t max_shared_bytes, bool wide) {
  const uint32_t shared = max_shared_bytes < kMostSharedBytes ? max_shared_bytes : kMostSharedBytes;
  const Choice narrow = gemm_choice(max_rows, n_tiles, 4), large = gemm_choice(max_rows, n_tiles, 8);
  const auto blocks = [](const Choice& c) { return uint64_t{c.grid_x} * c.grid_y; };
  const Choice product = wide && blocks(large) >= compute_units ? large : narrow;
  if (max_rows > 8 * kMatvecRows || (max_rows > kMatvecRows && blocks(narrow) >= compute_units)) return product;
  uint32_t rows = max_rows >= 8 ? 8 : max_rows > 2 ? (max_rows > 4 ? 8 : 4) : max_rows;
  while (rows > 1 && layout::matvec_shared_bytes(rows, n_groups) > shared) rows /= 2;
  const uint32_t bytes = layout::matvec_shared_bytes(rows, n_groups);
  if (bytes > shared) return product;
  // As many blocks as give each the same number of units, near enough.
  const uint32_t most = compute_units * kBlocksPerUnit, rounds = (n_units + most - 1) / most;
  const uint32_t passes = (max_rows + rows - 1) / rows;
  return {rows == 1 ? matvec_1 : rows == 2 ? matvec_2 : rows == 4 ? matvec_4 : matvec_8,
          passes > 1 || rows * n_groups > kFusedGroups, (n_units + rounds - 1) / rounds, passes, layout::matvec_threads(n_groups), bytes};
}

}  // namespace turbo::q1
