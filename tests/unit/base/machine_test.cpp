// What this process takes of the machine.
#include "base/machine.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

namespace turbo {

TEST(Machine, ThePeakCanBeCountedAnew) {
  constexpr size_t kBytes = 96 << 20;
  void* block = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(block, MAP_FAILED);
  std::memset(block, 1, kBytes);
  const uint64_t with_block = peak_rss_bytes();
  ASSERT_GT(with_block, kBytes);
  munmap(block, kBytes);
  EXPECT_GT(peak_rss_bytes(), with_block - (4u << 20)) << "the system counts in batches";
  reset_peak_rss();
  EXPECT_LT(peak_rss_bytes(), with_block - kBytes / 2);
  EXPECT_GT(peak_rss_bytes(), 0u);
}

}  // namespace turbo
