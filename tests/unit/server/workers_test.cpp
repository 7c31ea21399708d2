// Which jobs run together.
#include "server/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace turbo::server {
namespace {

TEST(Workers, OneHugeJobAtATimeAndOthersGoOn) {
  std::atomic<int> n_huge{0}, n_most{0}, n_huge_done{0}, n_large_done{0};
  std::atomic<bool> go_on{false};
  Workers workers(4, 100);
  for (int i = 0; i < 6; ++i)
    ASSERT_TRUE(workers.submit(Workers::Size::huge, [&] {
      n_most = std::max(n_most.load(), ++n_huge);
      while (!go_on) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      --n_huge;
      ++n_huge_done;
    }));
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(workers.submit(Workers::Size::large, [&] { ++n_large_done; }));
  for (int i = 0; i < 1000 && n_large_done < 6; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(n_large_done, 6);
  EXPECT_EQ(n_huge_done, 0);
  go_on = true;
  for (int i = 0; i < 1000 && n_huge_done < 6; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(n_huge_done, 6);
  EXPECT_EQ(n_most, 1);
}

}  // namespace
}  // namespace turbo::server
