#include "sched/queue.h"

#include <gtest/gtest.h>

#include <memory>

#include "sched/pace.h"

namespace turbo::sched {
namespace {

Sequence waiting_one(uint64_t id, int32_t priority = 0, uint64_t client = 0) {
  Sequence sequence;
  sequence.id = id;
  sequence.priority = priority;
  sequence.client = client;
  return sequence;
}

}  // namespace

TEST(WaitingQueue, ArrivalDecidesAmongEquals) {
  Sequence a = waiting_one(1), b = waiting_one(2);
  WaitingQueue queue;
  ClientShares shares;
  EXPECT_EQ(queue.best(shares), nullptr);
  queue.push(&b);
  queue.push(&a);
  EXPECT_EQ(queue.best(shares), &a);
  queue.take(&a);
  EXPECT_EQ(queue.best(shares), &b);
  EXPECT_TRUE(queue.remove(&b));
  EXPECT_FALSE(queue.remove(&b));
  EXPECT_TRUE(queue.empty());
}

TEST(WaitingQueue, PriorityThenWorkDoneThenTheLeastServedClient) {
  Sequence plain = waiting_one(1, 0, 7), other = waiting_one(2, 0, 8), back = waiting_one(3, 0, 7), urgent = waiting_one(4, 1, 7);
  back.preempted = true;
  WaitingQueue queue;
  ClientShares shares;
  for (const uint64_t client : {7, 7, 7, 8}) shares.join(client);
  shares.charge(7, 100);
  for (Sequence* sequence : {&plain, &other, &back, &urgent}) queue.push(sequence);
  for (Sequence* expected : {&urgent, &back, &other, &plain}) {
    ASSERT_EQ(queue.best(shares), expected) << expected->id;
    queue.take(expected);
  }
}

TEST(WaitingQueue, NobodyWaitsForEverBehindHigherPriority) {
  Sequence low = waiting_one(0, 0);
  WaitingQueue queue;
  ClientShares shares;
  queue.push(&low);
  std::vector<std::unique_ptr<Sequence>> urgent;
  for (uint64_t i = 1; i <= 9 * WaitingQueue::kAdmissionsPerRise; ++i) {
    urgent.push_back(std::make_unique<Sequence>(waiting_one(i, 200)));
    queue.push(urgent.back().get());
    Sequence* best = queue.best(shares);
    queue.take(best);
    if (best == &low) {
      EXPECT_GE(i, 8 * WaitingQueue::kAdmissionsPerRise) << "1 + 2 + 4 ... reach 200 with the eighth rise";
      return;
    }
  }
  FAIL() << "it starved";
}

TEST(ClientShares, IdlingSavesNothingUp) {
  ClientShares shares;
  shares.join(1);
  shares.charge(1, 1000);
  shares.join(2);
  EXPECT_EQ(shares.served(2), 1000u) << "a newcomer starts level";
  shares.charge(2, 500);
  shares.leave(2);
  shares.charge(1, 5000);
  shares.join(2);
  EXPECT_EQ(shares.served(2), 6000u);
}

TEST(ClientShares, WhoWasServedMoreStaysBehindAfterAShortPause) {
  ClientShares shares;
  shares.join(1);
  shares.join(2);
  shares.charge(2, 500);
  shares.leave(2);
  shares.join(2);
  EXPECT_EQ(shares.served(2), 500u);
  EXPECT_EQ(shares.served(1), 0u);
}

TEST(ClientShares, ForgetsClientsThatAreGone) {
  ClientShares shares;
  for (uint64_t client = 0; client < 10000; ++client) {
    shares.join(client);
    shares.charge(client, 1);
    shares.leave(client);
  }
  EXPECT_LE(shares.size(), 2u);
}

TEST(StepPace, FollowsWhatRowsCost) {
  StepPace pace;
  EXPECT_EQ(pace.prompt_rows(0, 0.1, 512), StepPace::kFirstGuess);
  for (int i = 0; i < 50; ++i) pace.record(64, 0.064);  // a millisecond a row
  EXPECT_EQ(pace.prompt_rows(0, 0.1, 512), 96u);
  EXPECT_EQ(pace.prompt_rows(20, 0.1, 512), 80u);
  for (int i = 0; i < 50; ++i) pace.record(64, 0.640);
  EXPECT_EQ(pace.prompt_rows(0, 0.1, 512), StepPace::kGrain) << "prompts always advance";
  EXPECT_EQ(pace.prompt_rows(0, 0.1, 10), 10u);
  for (int i = 0; i < 100; ++i) pace.record(64, 0.000064);
  EXPECT_EQ(pace.prompt_rows(0, 0.1, 512), 512u);
}

TEST(StepPace, SmallStepsSayNothing) {
  StepPace pace;
  pace.record(1, 10.0);
  EXPECT_EQ(pace.prompt_rows(0, 0.1, 512), StepPace::kFirstGuess);
}

}  // namespace turbo::sched
