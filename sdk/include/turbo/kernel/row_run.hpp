// Consecutive rows of plain elements, as the kernels of row_tiles.inl read them. A plain struct: files compiled with ISA
// flags include it.
#pragma once

#include <stdint.h>

namespace turbo::kernel {

struct RowRun {
  const uint8_t* rows;  // first row of the run, one head
  uint64_t pitch;       // bytes between rows
  uint64_t n_rows, head_dim;
  uint64_t n_queries;
  const uint8_t* ahead;    // rows of another block to fetch meanwhile, or null
  const uint16_t* scales;  // of the run's rows, where elements are scaled; else null
};

}  // namespace turbo::kernel
