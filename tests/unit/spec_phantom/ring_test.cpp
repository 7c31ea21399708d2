#include <gtest/gtest.h>
#include <turbo/draft/ring.hpp>

#include <chrono>
#include <thread>

using turbo::draft::DraftRing;
using turbo::draft::RingMeta;

namespace {

using Ring = DraftRing<std::vector<uint64_t>>;

const auto any = [](const RingMeta&) { return true; };

Ring::Slot* write(Ring& ring, uint64_t job) {
  Ring::Slot* slot = ring.begin_write();
  if (!slot) return nullptr;
  slot->meta.job = job;
  slot->payload.assign(8, job);
  ring.publish(slot);
  return slot;
}

}  // namespace

TEST(DraftRing, HasOneToFourBuffers) {
  for (const uint32_t bad : {0u, 5u}) EXPECT_THROW(Ring ring(bad), turbo::Failure);
  for (uint32_t n = 1; n <= 4; ++n) {
    Ring ring(n);
    for (uint64_t job = 1; job <= n; ++job) ASSERT_NE(write(ring, job), nullptr);
    // As many are ready as there are buffers, newest first.
    for (uint64_t job = n; job >= 1; --job) {
      Ring::Slot* slot = ring.take(any);
      ASSERT_NE(slot, nullptr) << n;
      EXPECT_EQ(slot->meta.job, job);
      ring.release(slot);
    }
    EXPECT_EQ(ring.take(any), nullptr);
  }
}

TEST(DraftRing, FullItOverwritesTheOldestReadySlotAndNeverOneBeingRead) {
  Ring ring(2);
  write(ring, 1);
  write(ring, 2);
  Ring::Slot* reading = ring.take([](const RingMeta& meta) { return meta.job == 1; });
  ASSERT_NE(reading, nullptr);
  ASSERT_NE(write(ring, 3), nullptr) << "over job 2";
  EXPECT_EQ(reading->payload, std::vector<uint64_t>(8, 1)) << "what is read stays";
  Ring::Slot* three = ring.take(any);
  ASSERT_NE(three, nullptr);
  EXPECT_EQ(three->meta.job, 3u);
  EXPECT_EQ(write(ring, 4), nullptr) << "all are being read";
  ring.put_back(three);
  ASSERT_NE(write(ring, 4), nullptr);
  ring.release(reading);
  Ring::Slot* four = ring.take(any);
  ASSERT_NE(four, nullptr);
  EXPECT_EQ(four->meta.job, 4u);
  ring.release(four);
  EXPECT_EQ(ring.take(any), nullptr) << "job 3 was overwritten";
}

TEST(DraftRing, TakesTheNewestThatMatches) {
  Ring ring(4);
  for (uint64_t job = 1; job <= 4; ++job) write(ring, job % 3);  // 1 2 0 1
  Ring::Slot* slot = ring.take([](const RingMeta& meta) { return meta.job == 1; });
  ASSERT_NE(slot, nullptr);
  ring.release(slot);
  slot = ring.take([](const RingMeta& meta) { return meta.job == 1; });
  ASSERT_NE(slot, nullptr) << "the older one, past two that do not match";
  ring.release(slot);
  EXPECT_EQ(ring.take([](const RingMeta& meta) { return meta.job == 1; }), nullptr);
  slot = ring.take(any);
  ASSERT_NE(slot, nullptr) << "what did not match is still there";
  EXPECT_EQ(slot->meta.job, 0u) << "in its order";
}

TEST(DraftRing, NothingOfBeforeAnInvalidationIsTaken) {
  Ring ring(3);
  write(ring, 1);
  Ring::Slot* under_way = ring.begin_write();
  under_way->meta.job = 2;
  ring.invalidate();
  ring.publish(under_way);
  EXPECT_EQ(ring.take(any), nullptr);
  write(ring, 3);
  Ring::Slot* slot = ring.take(any);
  ASSERT_NE(slot, nullptr);
  EXPECT_EQ(slot->meta.job, 3u);
}

TEST(DraftRing, AnAbandonedSlotIsFree) {
  Ring ring(1);
  ring.abandon(ring.begin_write());
  EXPECT_EQ(ring.take(any), nullptr);
  EXPECT_NE(write(ring, 1), nullptr);
}

// Producer and consumer at different speeds: no torn slot, none of another job, none twice, none older after a newer.
class RingStress : public testing::TestWithParam<std::tuple<uint32_t, int, int>> {};

TEST_P(RingStress, NoTornSlotAndNoStaleJob) {
  const auto [n, producer_work, consumer_work] = GetParam();
  Ring ring(n);
  std::atomic<uint64_t> job{1};
  std::atomic<bool> done{false};
  const auto spin = [](int rounds) {
    for (int i = 0; i < rounds; ++i) asm volatile("" ::: "memory");
  };
  std::thread producer([&] {
    uint64_t value = 1, published = 0;
    while (!done.load(std::memory_order_relaxed)) {
      Ring::Slot* slot = ring.begin_write();
      if (!slot) {
        std::this_thread::yield();
        continue;
      }
      value = value * 6364136223846793005u + 1442695040888963407u;
      slot->meta.job = job.load(std::memory_order_relaxed);
      slot->meta.roots.assign(3, static_cast<int32_t>(value));
      const uint64_t length = 1 + value % 60;
      slot->payload.clear();
      uint64_t sum = slot->meta.job;
      for (uint64_t i = 0; i < length; ++i) {
        slot->payload.push_back(value + i);
        sum += value + i;
      }
      slot->payload.push_back(sum);
      spin(producer_work);
      ring.publish(slot);
      if (++published % 4 == 0) std::this_thread::yield();  // with one buffer, a moment in which it is not being rewritten
    }
  });
  uint64_t taken = 0, torn = 0, stale = 0;
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  while (seconds() < 0.05 || (taken < 100 && seconds() < 20)) {
    const uint64_t wanted = job.load(std::memory_order_relaxed);
    Ring::Slot* slot = ring.take([&](const RingMeta& meta) { return meta.job == wanted; });
    if (slot) {
      ++taken;
      uint64_t sum = slot->meta.job;
      for (size_t i = 0; i + 1 < slot->payload.size(); ++i) sum += slot->payload[i];
      torn += sum != slot->payload.back() || slot->meta.roots != std::vector<int32_t>(3, static_cast<int32_t>(slot->payload[0]));
      stale += slot->meta.job != wanted;
      spin(consumer_work);
      ring.release(slot);
      if (taken % 8 == 0) job.fetch_add(1, std::memory_order_relaxed);
      if (taken % 50 == 0) ring.invalidate();
    } else {
      std::this_thread::yield();
    }
  }
  done = true;
  producer.join();
  EXPECT_EQ(torn, 0u);
  EXPECT_EQ(stale, 0u);
  EXPECT_GE(taken, 100u);
}

INSTANTIATE_TEST_SUITE_P(Speeds, RingStress,
                         testing::Combine(testing::Values(1u, 2u, 3u, 4u), testing::Values(0, 400), testing::Values(0, 400)));
