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

}  // namespace
}  // namespace turbo::arch_cpu
