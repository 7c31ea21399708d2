// The signal watch: each signal once, in order, with its number and count.
#include "cli/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <vector>

namespace turbo::cli {
namespace {

TEST(SignalsTest, TellWhichSignalCame) {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::pair<int, int>> seen;
  SignalWatch watch([&](int signal, int count) {
    std::lock_guard lock(mutex);
    seen.emplace_back(signal, count);
    changed.notify_all();
  });
  for (const int signal : {SIGINT, SIGTERM}) {
    std::unique_lock lock(mutex);
    const size_t before = seen.size();
    kill(getpid(), signal);
    ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(20), [&] { return seen.size() > before; }));
  }
  EXPECT_EQ(seen, (std::vector<std::pair<int, int>>{{SIGINT, 1}, {SIGTERM, 2}}));
}

}  // namespace
}  // namespace turbo::cli
