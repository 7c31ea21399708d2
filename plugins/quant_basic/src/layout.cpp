#include "layout.h"

namespace turbo::basic {

void repack_rows(uint32_t type, const uint8_t* source, uint64_t rows, uint64_t cols, uint64_t row_begin,
                 uint64_t row_end, uint8_t* packed) {
  const turbo_matrix matrix = {sizeof(turbo_matrix), type, rows, cols, packed, 0};
  const uint64_t n_groups = cols / kGroup, code_bytes = group_code_bytes(type);
  const uint64_t block_bytes = 2 + code_bytes / kTile;
  for (uint64_t tile = row_begin / kTile; tile * kTile < row_end; ++tile) {
    const uint64_t first = tile * kTile, n = smaller(kTile, rows - first);
    for (uint64_t group = 0; group < n_groups; ++group) {
      const Group g = tile_group(&matrix, tile, group);
      uint8_t *codes = const_cast<uint8_t*>(g.codes), *scales = const_cast<uint8_t*>(g.scales);
      if (n < kTile) {
        memset(codes, 0, code_bytes);
        memset(scales, 0, kGroupScaleBytes);
      }
      for (uint64_t r = 0; r < n; ++r) {
        const uint8_t* in = source + ((first + r) * n_groups + group) * block_bytes;
        memcpy(scales + 2 * r, in, 2);
        for (uint64_t i = 0; i < code_bytes / 64; ++i) memcpy(codes + 64 * i + 4 * r, in + 2 + 4 * i, 4);
      }
    }
  }
}

void decode_rows(const turbo_matrix& matrix, uint64_t row_begin, uint64_t row_end, float* dst) {
  for (uint64_t row = row_begin; row < row_end; ++row) {
    if (!is_packed(matrix.type)) {
      const uint8_t* in = float_row(&matrix, row);
      for (uint64_t j = 0; j < matrix.cols; ++j) *dst++ = float_weight(matrix.type, in, j);
      continue;
    }
    for (uint64_t group = 0; group < matrix.cols / kGroup; ++group) {
      const Group g = tile_group(&matrix, row / kTile, group);
      const float scale = load_scale(g, row % kTile);
      int8_t w[kGroup];
      group_integers(matrix.type, g, row % kTile, w);
      for (uint64_t j = 0; j < kGroup; ++j) *dst++ = (float)w[j] * scale;
    }
  }
}

}  // namespace turbo::basic
