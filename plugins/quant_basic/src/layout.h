// Source rows of Q8_0 and Q4_0 into the packed form, and rows of any type back into floats. Plain code, any thread.
#pragma once

#include "kernels.h"

namespace turbo::basic {

/// Rows [row_begin, row_end) of the source, row_begin at the start of a tile. Disjoint tiles may run at once.
void repack_rows(uint32_t type, const uint8_t* source, uint64_t rows, uint64_t cols, uint64_t row_begin,
                 uint64_t row_end, uint8_t* packed);

/// dst[i][0..cols) = weights of row row_begin + i as f32.
void decode_rows(const turbo_matrix& matrix, uint64_t row_begin, uint64_t row_end, float* dst);

}  // namespace turbo::basic
