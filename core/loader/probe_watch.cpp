#include "loader/probe_watch.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/status.h"
#include "loader/text.h"

namespace turbo::loader {
namespace {

std::optional<struct stat> facts_of(int fd) {
  struct stat facts {};
  return ::fstat(fd, &facts) == 0 ? std::optional(facts) : std::nullopt;
}

bool same(const std::optional<struct stat>& a, const std::optional<struct stat>& b) {
  return a && b ? a->st_dev == b->st_dev && a->st_ino == b->st_ino : !a == !b;
}

// Ends the children of this process, and theirs as they come to this process in turn. Best effort: needs /proc.
void end_children() {
  namespace fs = std::filesystem;
  for (int round = 0; round < 50; ++round) {
    std::error_code failed;
    for (fs::directory_iterator it("/proc/self/task", failed), end; !failed && it != end; it.increment(failed)) {
      std::ifstream children(it->path() / "children");
      for (pid_t pid; children >> pid;) ::kill(pid, SIGKILL);
    }
    int status = 0;
    while (::waitpid(-1, &status, WNOHANG) > 0) {
    }
    if (::waitpid(-1, &status, WNOHANG) < 0) return;
    ::usleep(2000);
  }
}

}  // namespace

ProcessWatch::ProcessWatch() : own_pid_(::getpid()), folder_fd_(::open(".", O_PATH | O_DIRECTORY | O_CLOEXEC)) {
  // Orphans of a plugin become children of this process instead of slipping away.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  take_over();
}

void ProcessWatch::take_over() {
  if (const int null_fd = ::open("/dev/null", O_RDWR | O_CLOEXEC); null_fd >= 0) {
    for (const int fd : {0, 2})
      if (null_fd != fd) ::dup2(null_fd, fd);
    if (null_fd > 2) ::close(null_fd);
  }
  // Neither end blocks: a plugin that prints without end loses what does not fit.
  if (int ends[2]; ::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0) {
    ::dup2(ends[1], 1);
    if (ends[1] != 1) ::close(ends[1]);
    printed_fd_ = ends[0];
  }
  for (int fd = 0; fd < 3; ++fd) standard_[static_cast<size_t>(fd)] = facts_of(fd);
}

std::string ProcessWatch::printed() {
  std::fflush(stdout);
  std::string text;
  char chunk[4096];
  for (ssize_t got; printed_fd_ >= 0 && (got = ::read(printed_fd_, chunk, sizeof chunk)) != 0;) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) break;
    if (text.size() < 256) text.append(chunk, static_cast<size_t>(got));
  }
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return clean_text(text, 80);
}

std::string ProcessWatch::misdeed() {
  if (::getpid() != own_pid_) ::_exit(0);
  std::string deed;
  const auto add = [&](const std::string& what) { deed += (deed.empty() ? "" : " and ") + what; };
  bool replaced = false;
  for (int fd = 0; fd < 3; ++fd) replaced |= !same(standard_[static_cast<size_t>(fd)], facts_of(fd));
  if (replaced) add("closed or replaced standard input, output or error");
  // Only looked at when the stream is still the one that was given out.
  if (const std::string text = replaced ? std::string() : printed(); !text.empty())
    add(fmt::format("printed to standard output: '{}'", text));
  struct stat now {};
  if (const auto folder = facts_of(folder_fd_); folder && ::stat(".", &now) == 0 && !same(folder, now)) {
    add("changed the working directory");
    if (::fchdir(folder_fd_) != 0) add("to where there is no way back");
  }
  int status = 0;
  if (const pid_t left = ::waitpid(-1, &status, WNOHANG); left >= 0) {
    add("left a process behind");
    end_children();
  }
  if (replaced) {
    if (printed_fd_ >= 0) ::close(printed_fd_);
    printed_fd_ = -1;
    take_over();
  }
  return deed;
}

}  // namespace turbo::loader
