// A chain of drafts on the host: the definitions that the device's kernels (turbo/kernel/gpu/chain.hpp) must reproduce
// entry by entry, and the way without a device.
//
// Requests i of B, places j of W (0 the root, the rest drafts), flat row r = i * W + j. The target's row j says what
// should stand at place j + 1.
#pragma once

#include <cstdint>
#include <cstring>

namespace turbo::chain_ops {

struct RowMax {
  uint32_t index = 0;
  bool nan = false;
};

/// Lowest index of the greatest value. Both zeros are equal, NaN reads as -1e30; a row of nothing gives 0.
inline RowMax row_argmax(const float* x, uint64_t n) {
  RowMax best;
  float most = 0;
  for (uint64_t i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, 4);
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    best.nan |= nan;
    const float value = nan ? -1e30f : x[i];
    if (i == 0 || value > most) {
      most = value;
      best.index = static_cast<uint32_t>(i);
    }
  }
  return best;
}

/// Writes every entry of every output.
inline void verify(const int64_t* candidates, const int32_t* target, uint32_t n_requests, uint32_t width, int32_t* predict,
                   int32_t* accept_index, int32_t* num_correct, int32_t* accept_lens) {
  for (uint32_t i = 0; i < n_requests; ++i) {
    const uint64_t base = uint64_t{i} * width;
    uint32_t correct = 0;
    while (correct + 1 < width && candidates[base + correct + 1] == target[base + correct]) ++correct;
    for (uint32_t j = 0; j < width; ++j) {
      predict[base + j] = j <= correct ? target[base + j] : 0;
      accept_index[base + j] = j <= correct ? static_cast<int32_t>(base + j) : -1;
    }
    num_correct[i] = static_cast<int32_t>(correct);
    accept_lens[i] = static_cast<int32_t>(correct) + 1;
  }
}

}  // namespace turbo::chain_ops
