// Source rows into the packed form, and rows of the packed form back into floats. Plain code, any thread.
#pragma once

#include "kernels.h"

namespace turbo::q1 {

/// Rows [row_begin, row_end) of the source, row_begin at the start of a tile. Disjoint tiles may run at once.
void repack_rows(Layout layout, const uint8_t* source, uint64_t rows, uint64_t cols, uint64_t row_begin,
                 uint64_t row_end, uint8_t* packed);

/// dst[i][0..cols) = +-s of row row_begin + i, exactly.
void decode_rows(Layout layout, const turbo_matrix& matrix, uint64_t row_begin, uint64_t row_end, float* dst);

}  // namespace turbo::q1
