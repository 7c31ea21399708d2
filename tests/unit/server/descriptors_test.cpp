// As many connections as the process may open; run in a child, whose limits can be lowered.
#include "server/descriptors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace turbo::server {
namespace {

struct Outcome {
  uint32_t affordable = 0;
  rlim_t soft = 0;
};

Outcome with_limits(rlim_t soft, rlim_t hard, uint32_t wanted) {
  int pipe_ends[2];
  EXPECT_EQ(::pipe(pipe_ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    rlimit limit{soft, hard};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    Outcome outcome;
    outcome.affordable = affordable_connections(wanted);
    ::getrlimit(RLIMIT_NOFILE, &limit);
    outcome.soft = limit.rlim_cur;
    ::_exit(::write(pipe_ends[1], &outcome, sizeof outcome) == sizeof outcome ? 0 : 1);
  }
  Outcome outcome;
  EXPECT_EQ(::read(pipe_ends[0], &outcome, sizeof outcome), static_cast<ssize_t>(sizeof outcome));
  int status = 1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
  return outcome;
}

}  // namespace

TEST(Descriptors, TheLimitIsRaisedAsFarAsNeeded) {
  const Outcome outcome = with_limits(256, 4096, 1024);
  EXPECT_EQ(outcome.affordable, 1024u);
  EXPECT_GE(outcome.soft, 1024u);
  EXPECT_LT(outcome.soft, 4096u);
}

TEST(Descriptors, FewerConnectionsWhereItCannotBe) {
  const Outcome outcome = with_limits(256, 512, 1024);
  EXPECT_EQ(outcome.soft, 512u);
  EXPECT_LT(outcome.affordable, 512u);
  EXPECT_GT(outcome.affordable, 400u);
  EXPECT_EQ(with_limits(40, 40, 1024).affordable, 20u);
}

TEST(Descriptors, AHighLimitIsLeftAlone) {
  const Outcome outcome = with_limits(2000, 4096, 100);
  EXPECT_EQ(outcome.affordable, 100u);
  EXPECT_EQ(outcome.soft, 2000u);
}

}  // namespace turbo::server
