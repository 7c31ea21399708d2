#include "layout.h"

namespace turbo::q1 {

void repack_rows(Layout layout, const uint8_t* source, uint64_t rows, uint64_t cols, uint64_t row_begin,
                 uint64_t row_end, uint8_t* packed) {
  const uint64_t n_blocks = cols / kBlock, row_bytes = n_blocks * kBlockBytes;
  for (uint64_t tile = row_begin / kTile; tile * kTile < row_end; ++tile) {
    const uint64_t first = tile * kTile, n = rows - first < kTile ? rows - first : kTile;
    for (uint64_t block = 0; block < n_blocks; ++block) {
      uint8_t* out = packed + (tile * n_blocks + block) * kTileBlockBytes;
      if (n < kTile) memset(out, 0, kTileBlockBytes);
      for (uint64_t r = 0; r < n; ++r) {
        const uint8_t* in = source + (first + r) * row_bytes + block * kBlockBytes;
        memcpy(out + kTileSignBytes + 2 * r, in, 2);
        if (layout == Layout::words) {
          const uint64_t slot = word_slot(r);
          for (uint64_t i = 0; i < 8; ++i) memcpy(out + i * 64 + 2 * slot, in + 2 + 2 * i, 2);
        } else {
          const uint64_t slot = byte_slot(r);
          for (uint64_t i = 0; i < 16; ++i) out[i * 32 + slot] = in[2 + i];
        }
      }
    }
  }
}

void decode_rows(Layout layout, const turbo_matrix& matrix, uint64_t row_begin, uint64_t row_end, float* dst) {
  const uint64_t n_blocks = matrix.cols / kBlock;
  for (uint64_t row = row_begin; row < row_end; ++row) {
    const uint64_t r = row % kTile, slot = layout == Layout::words ? word_slot(r) : byte_slot(r);
    for (uint64_t block = 0; block < n_blocks; ++block) {
      const uint8_t* in = tile_block(&matrix, row / kTile, block);
      const float value[2] = {-load_scale(in, r), load_scale(in, r)};
      for (uint64_t i = 0; i < 16; ++i) {
        const uint8_t bits = layout == Layout::words ? in[i / 2 * 64 + 2 * slot + i % 2] : in[i * 32 + slot];
        for (int k = 0; k < 8; ++k) *dst++ = value[bits >> k & 1];
      }
    }
  }
}

}  // namespace turbo::q1
