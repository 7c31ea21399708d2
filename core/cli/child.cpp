#include "cli/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

extern char** environ;

namespace turbo::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> list;
  for (std::string& word : words) list.push_back(word.data());
  list.push_back(nullptr);
  return list;
}

std::vector<std::string> environment(const ChildSettings& settings) {
  std::vector<std::string> kept;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string text = *entry;
    if (!settings.keeps_variable || settings.keeps_variable(text.substr(0, text.find('=')))) kept.push_back(text);
  }
  return kept;
}

// Between fork and exec: nothing that takes a lock or memory.
[[noreturn]] void become_child(pid_t parent, int out, int err, const char* executable, char* const* words, char* const* variables) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (::getppid() != parent) _exit(127);
  const int null_fd = ::open("/dev/null", O_RDWR);
  ::dup2(null_fd, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGXFSZ, SIG_DFL);
  ::execve(executable, words, variables);
  _exit(127);
}

struct Stream {
  int fd;
  std::string* text;
};

// Until both are closed; false when the time is up.
bool collect(std::array<Stream, 2>& streams, Clock::time_point end, size_t most_bytes) {
  char buffer[1 << 16];
  while (streams[0].fd >= 0 || streams[1].fd >= 0) {
    std::array<pollfd, 2> waiting{{{streams[0].fd, POLLIN, 0}, {streams[1].fd, POLLIN, 0}}};  // negative ones are ignored
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return false;
    if (::poll(waiting.data(), waiting.size(), static_cast<int>(std::min<int64_t>(left, 1 << 30))) < 0 && errno != EINTR) return false;
    for (size_t i = 0; i < streams.size(); ++i) {
      if (streams[i].fd < 0 || waiting[i].revents == 0) continue;
      const ssize_t got = ::read(streams[i].fd, buffer, sizeof buffer);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        ::close(streams[i].fd);
        streams[i].fd = -1;
      } else if (streams[i].text->size() < most_bytes) {  // the rest is read and dropped, so that the child goes on
        streams[i].text->append(buffer, std::min(static_cast<size_t>(got), most_bytes - streams[i].text->size()));
      }
    }
  }
  return true;
}

// What closed its streams may still be on its way out.
int wait_until(pid_t child, Clock::time_point end, bool& killed) {
  for (siginfo_t gone{}; ::waitid(P_PID, static_cast<id_t>(child), &gone, WEXITED | WNOHANG | WNOWAIT) == 0 && gone.si_pid == 0;) {
    if (!killed && Clock::now() >= end) {
      ::kill(child, SIGKILL);
      killed = true;
    }
    ::poll(nullptr, 0, 5);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

ChildResult run_child(const std::vector<std::string>& words, const ChildSettings& settings) {
  ChildResult result;
  std::vector<std::string> arguments{"turbo"}, variables = environment(settings);
  arguments.insert(arguments.end(), words.begin(), words.end());
  const std::vector<char*> argv = pointers(arguments), envp = pointers(variables);
  const std::string executable = settings.executable.string();
  int out[2] = {-1, -1}, err[2] = {-1, -1};
  if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) {
    result.failure = fmt::format("could not be started: {}", std::strerror(errno));
    for (const int fd : {out[0], out[1]})
      if (fd >= 0) ::close(fd);
    return result;
  }
  const auto begin = Clock::now(), end = begin + settings.limit;
  const pid_t parent = ::getpid(), child = ::fork();
  if (child == 0) become_child(parent, out[1], err[1], executable.c_str(), argv.data(), envp.data());
  const int fork_error = errno;
  ::close(out[1]);
  ::close(err[1]);
  if (child < 0) {
    ::close(out[0]);
    ::close(err[0]);
    result.failure = fmt::format("could not be started: {}", std::strerror(fork_error));
    return result;
  }
  std::array<Stream, 2> streams{{{out[0], &result.out}, {err[0], &result.err}}};
  bool killed = !collect(streams, end, settings.most_bytes);
  for (const Stream& stream : streams)
    if (stream.fd >= 0) ::close(stream.fd);
  if (killed) ::kill(child, SIGKILL);
  const int status = wait_until(child, end, killed);
  result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (killed) result.failure = fmt::format("did not end within {} s", std::chrono::duration<double>(settings.limit).count());
  else if (WIFSIGNALED(status)) result.failure = fmt::format("ended by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  else if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  return result;
}

}  // namespace turbo::cli
