// Which kernel computes a product, and with what grid. All of it is speed: every choice gives the same bits. Measured
// constants are here and nowhere else.
#pragma once

#include <turbo/kernel/gpu/q1_layout.hpp>

#include <algorithm>

namespace turbo::q1 {

namespace layout = gpu::q1;

enum Kernel : uint32_t { matvec_1, matvec_2, matvec_4, gemm_2, gemm_4, prepare, gather, exact };

constexpr uint32_t kMostSharedBytes = 112 * 1024;  // of a block: two fit where a compute unit has more than what all offer
constexpr uint32_t kFewRows = 16, kSomeRows = 64;   // see choose

struct Choice {
  Kernel kernel;
  uint32_t grid_x, grid_y, threads, shared_bytes;
};

/// A matrix product by 2 or 4 rows a lane. n_units: of outputs, gated of pairs of them.
inline Choice gemm_choice(uint32_t lane_rows, uint32_t max_rows, uint32_t n_units, bool gated) {
  const uint32_t rows = layout::gemm_rows(lane_rows);
  return {lane_rows == 2 ? gemm_2 : gemm_4, gated ? n_units : (n_units + 1) / 2, (max_rows + rows - 1) / rows, layout::kGemmThreads, 0};
}
/// Whether each compute unit has two blocks and a half: enough to hide what they wait for.
inline bool fills(const Choice& choice, uint32_t compute_units) { return 2 * uint64_t{choice.grid_x} * choice.grid_y > 5 * uint64_t{compute_units}; }
/// More rows a lane cost fewer instructions a dot, as long as the device is full.
inline Choice choose_gemm(uint32_t max_rows, uint32_t n_units, bool gated, uint32_t compute_units) {
  const Choice four = gemm_choice(4, max_rows, n_units, gated);
  return fills(four, compute_units) ? four : gemm_choice(2, max_rows, n_units, gated);
}

inline Choice choose(uint32_t max_rows, uint32_t n_groups, uint32_t n_units, bool gated, bool normed, uint32_t compute_units, uint32_t max_shared_bytes) {
  const uint32_t shared = std::min(max_shared_bytes, kMostSharedBytes);
  const Choice product = choose_gemm(max_rows, n_units, gated, compute_units);
  // Passes of the kernels below read all weights again, but go on with few blocks.
  if (max_rows > kSomeRows ? max_rows > 4 * kSomeRows || uint64_t{product.grid_x} * product.grid_y >= compute_units
                           : max_rows > kFewRows && fills(product, compute_units))
    return product;
  // Fewer rows a block, in several passes, where the device has room for these blocks too.
  uint32_t rows = max_rows > 1 ? 2 : 1;
  while (rows < 4 && rows < max_rows && uint64_t{n_units} * ((max_rows + rows - 1) / rows) > compute_units) rows *= 2;
  while (rows > 1 && layout::matvec_shared_bytes(rows, n_groups, 1) > shared) rows /= 2;
  if (layout::matvec_shared_bytes(rows, n_groups, 1) > shared) return product;
  const uint32_t passes = (max_rows + rows - 1) / rows;
  // Two blocks of one team on a compute unit, if each then has one unit; else as many blocks as give each the same number
  // of units, near enough. The second team helps with the row's bytes even where it has no unit.
  const bool two = passes == 1 && layout::most_teams(n_groups) > 1 && n_units > compute_units && n_units <= 2 * compute_units;
  // The blocks of all passes are on the device at once: begun later, a block waits for another's end with its first words.
  const uint32_t most = two ? 2 * compute_units : std::max(1u, compute_units / passes), rounds = (n_units + most - 1) / most;
  const bool pays = rows > 1 || rounds > 1 || gated || layout::segment_groups(n_groups) > 2;
  const uint32_t teams = layout::most_teams(n_groups) > 1 && !two && pays && layout::matvec_shared_bytes(rows, n_groups, 2) <= shared ? 2 : 1;
  const uint32_t spare = normed ? layout::spare_waves(rows, n_groups, teams) : 0;
  return {rows == 1 ? matvec_1 : rows == 2 ? matvec_2 : matvec_4, (n_units + rounds - 1) / rounds, passes,
          (teams * layout::team_waves(n_groups) + spare) * 32, layout::matvec_shared_bytes(rows, n_groups, teams)};
}

}  // namespace turbo::q1
