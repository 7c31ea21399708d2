// ThreadTeam alone: every member runs, barriers order what members wrote, starting and stopping leaves nothing.
#include "team.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

namespace turbo::arch_cpu {
namespace {

uint32_t threads_of_process() {
  std::ifstream file("/proc/self/status");
  std::string line;
  while (std::getline(file, line))
    if (line.rfind("Threads:", 0) == 0) return static_cast<uint32_t>(std::stoul(line.substr(8)));
  return 0;
}

// Each round every member adds its neighbour's plain (not atomic) value: a barrier that lets one slip gives another sum.
struct Relay {
  ThreadTeam& team;
  std::vector<uint64_t> now, next;
  uint32_t rounds;
  static void body(void* context, uint32_t member) {
    Relay& r = *static_cast<Relay*>(context);
    const uint32_t n = static_cast<uint32_t>(r.now.size());
    for (uint32_t round = 0; round < r.rounds; ++round) {
      r.next[member] = r.now[member] + r.now[(member + 1) % n] + 1;
      r.team.barrier();
      r.now[member] = r.next[member];
      r.team.barrier();
    }
  }
};

TEST(ThreadTeam, BarriersOrderPlainWrites) {
  for (uint32_t n = 1; n <= 4; ++n) {
    ThreadTeam team(n);
    ASSERT_EQ(team.size(), n);
    Relay relay{team, std::vector<uint64_t>(n, 1), std::vector<uint64_t>(n, 0), 20};
    for (int run = 0; run < 50; ++run) {
      std::fill(relay.now.begin(), relay.now.end(), 1);
      team.run(&Relay::body, &relay);
      for (const uint64_t x : relay.now) ASSERT_EQ(x, (uint64_t{1} << 21) - 1);
    }
  }
}

TEST(ThreadTeam, StartsAndStopsAThousandTimes) {
  const uint32_t before = threads_of_process();
  for (int i = 0; i < 1000; ++i) {
    ThreadTeam team(1 + i % 4);
    if (i % 3 == 0) {  // some never run, some stop by themselves
      std::atomic<uint32_t> seen{0};
      team.run([](void* context, uint32_t member) { *static_cast<std::atomic<uint32_t>*>(context) += 1u << member * 8; }, &seen);
      uint32_t want = 0;
      for (uint32_t member = 0; member < team.size(); ++member) want += 1u << member * 8;
      ASSERT_EQ(seen, want);
    }
    if (i % 5 == 0) team.stop();
  }
  // A joined thread may still be leaving the kernel's list.
  for (int i = 0; i < 1000 && threads_of_process() != before; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(threads_of_process(), before);
}

TEST(ThreadTeam, WorksAloneAfterStop) {
  ThreadTeam team(3);
  team.stop();
  team.stop();
  ASSERT_EQ(team.size(), 1u);
  int runs = 0;
  team.run([](void* context, uint32_t member) { *static_cast<int*>(context) += member == 0 ? 1 : 100; }, &runs);
  EXPECT_EQ(runs, 1);
}

TEST(ThreadTeam, MachineFactsAreSane) {
  EXPECT_GE(available_cpus(), 1u);
  EXPECT_LE(available_cpus(), std::thread::hardware_concurrency() + 1);
  EXPECT_FALSE(cpu_name().empty());
  EXPECT_GT(usable_memory_bytes(), uint64_t{1} << 20);
}

// Runs of changing sizes: who is left out returns to the right run, however late it looks.
TEST(ThreadTeam, RunsOfAnySizeHaveExactlyTheirMembers) {
  ThreadTeam team(4);
  for (uint32_t i = 0; i < 20000; ++i) {
    const uint32_t n = 1 + i * 7 % 5 % 4;
    std::atomic<uint32_t> seen{0};
    team.run([](void* context, uint32_t member) { *static_cast<std::atomic<uint32_t>*>(context) += 1u << member * 8; }, &seen, n);
    uint32_t want = 0;
    for (uint32_t member = 0; member < n; ++member) want += 1u << member * 8;
    ASSERT_EQ(seen, want) << i;
  }
}

constexpr uint64_t kMs = 1'000'000;

TEST(TeamSize, AMemberThatKeepsTheOthersWaitingIsLeftOutForAWhile) {
  TeamSize size(2);
  uint64_t now = 0;
  const auto run = [&](uint64_t ms, uint64_t stalled_ms) {
    const uint32_t members = size.members(now);
    now += ms * kMs;
    size.ran(now, ms * kMs, stalled_ms * kMs);
    return members;
  };
  for (int i = 0; i < 101; ++i) ASSERT_EQ(run(8, i % 2 ? 6 : 0), 2u) << "one slow run now and then is no reason";
  const auto runs_alone = [&] {
    uint32_t n = 0;
    for (; size.members(now) == 1; ++n) run(12, 0);
    return n;
  };
  for (int i = 0; i < 3; ++i) ASSERT_EQ(run(16, 9), 2u);
  EXPECT_NEAR(runs_alone(), 250 / 12, 3) << "tried again after a quarter of a second";
  EXPECT_EQ(run(16, 9), 2u);
  EXPECT_NEAR(runs_alone(), 500 / 12, 3) << "still slow: out again at once, for longer";
  for (int i = 0; i < 64; ++i) ASSERT_EQ(run(8, 0), 2u);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(run(16, 9), 2u);
  EXPECT_NEAR(runs_alone(), 250 / 12, 3) << "after a long good time the first wait is short again";
}

TEST(TeamSize, LargeTeamsShrinkAndGrowInLargeSteps) {
  TeamSize size(64);
  uint64_t now = 0;
  uint32_t runs = 0;
  for (; size.members(now) > 2; ++runs) size.ran(now += kMs, kMs, kMs);  // every run waits for somebody
  EXPECT_LT(runs, 60u);
  // The processors are free again: the team grows back without a pause between the steps that do well.
  const uint64_t begin = now;
  for (runs = 0; size.members(now) < 64; ++runs) size.ran(now += kMs, kMs, 0);
  EXPECT_LT(now - begin, 9000 * kMs);
}

TEST(TeamSize, LeavingOutMustPay) {
  TeamSize size(4);
  for (uint64_t i = 0; i < 100; ++i) {
    ASSERT_EQ(size.members(i * kMs), 4u);
    size.ran(i * kMs, 8 * kMs, 19 * kMs / 10);  // waits under a quarter: three members would not be faster
  }
  for (uint64_t i = 100; i < 103; ++i) size.ran(i * kMs, 8 * kMs, 3 * kMs);
  EXPECT_EQ(size.members(103 * kMs), 3u);
  EXPECT_EQ(TeamSize(1).members(0), 1u);
}

}  // namespace
}  // namespace turbo::arch_cpu
