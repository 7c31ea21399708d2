// The child writes one JSON object a line to descriptor 3: {"at":"load"}, {"at":"query"}, {"components":n},
// {"probing":i}, {"probed":i,"bad":".."} and {"end":true}, or {"refused":"..","hint":"..","misbehaved":bool}. The
// parent gives each line a time limit, so what the child was doing when it stopped talking is known.
#include "loader/probe_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "loader/host.h"
#include "loader/library.h"
#include "loader/probe_watch.h"
#include "loader/text.h"

namespace turbo::loader {
using nlohmann::json;
namespace {

constexpr int report_fd = 3;
constexpr size_t max_report_bytes = 64 << 10;
constexpr int lost_report_status = 113;     // of a child that can no longer report
constexpr uint32_t max_bad_components = 4;  // then the library as a whole is not worth more time

std::atomic<bool> child_announced{false};

void send(const json& line) {
  const std::string text = line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t n = ::write(report_fd, text.data() + sent, text.size() - sent);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) _exit(lost_report_status);
    sent += static_cast<size_t>(n);
  }
}

// What one child did before it ended.
struct Run {
  std::string stage = "start";
  std::optional<uint32_t> probing;
  std::optional<uint32_t> n_components;
  std::map<uint32_t, std::string> bad;
  std::optional<Status> refused;
  bool misbehaved = false;  // the refusal is the library's own doing
  bool ended = false;
  std::string failure;  // how it died, or what it wrote; empty when it ended well
  bool timed_out = false;
};

void read_line(Run& run, std::string_view text) {
  const json line = json::parse(text, nullptr, false);
  const auto number = [&](const char* key) { return line.contains(key) && line[key].is_number_unsigned(); };
  const auto words = [&](const char* key) { return line.contains(key) && line[key].is_string(); };
  if (!line.is_object()) {
    run.failure = "wrote garbage to the host";
  } else if (words("at")) {
    run.stage = clean_text(line["at"].get<std::string>(), 32);
  } else if (number("components")) {
    run.n_components = line["components"].get<uint32_t>();
  } else if (number("probing")) {
    run.stage = "probe";
    run.probing = line["probing"].get<uint32_t>();
  } else if (number("probed")) {
    if (words("bad")) run.bad[line["probed"].get<uint32_t>()] = clean_text(line["bad"].get<std::string>());
  } else if (words("refused")) {
    run.refused = Status(Code::unsupported, clean_text(line["refused"].get<std::string>(), 2048),
                         words("hint") ? clean_text(line["hint"].get<std::string>()) : std::string());
    run.misbehaved = line.value("misbehaved", json()) == true;
  } else if (line.contains("end")) {
    run.ended = true;
  } else {
    run.failure = "wrote garbage to the host";
  }
}

// Reads lines until the child has said its last one or closes the pipe (which a process that the plugin started may
// hold open for long), says something wrong, or is silent for too long.
void listen(int fd, Run& run, std::chrono::milliseconds limit) {
  using clock = std::chrono::steady_clock;
  std::string pending;
  size_t total = 0;
  auto deadline = clock::now() + limit;
  while (run.failure.empty() && !run.ended && !run.refused) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - clock::now()).count();
    pollfd waiting{fd, POLLIN, 0};
    const int ready = left > 0 ? ::poll(&waiting, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      run.failure = fmt::format("did not answer within {} ms", limit.count());
      run.timed_out = true;
      return;
    }
    char chunk[4096];
    const ssize_t got = ::read(fd, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    pending.append(chunk, static_cast<size_t>(got));
    total += static_cast<size_t>(got);
    if (total > max_report_bytes) run.failure = "wrote garbage to the host";
    for (size_t end; run.failure.empty() && (end = pending.find('\n')) != std::string::npos;) {
      read_line(run, std::string_view(pending).substr(0, end));
      pending.erase(0, end + 1);
      deadline = clock::now() + limit;
    }
  }
}

std::string describe_end(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("crashed with signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  if (WEXITSTATUS(status) == lost_report_status) return "closed descriptors that are not its own";
  return fmt::format("ended the process with status {}", WEXITSTATUS(status));
}

// Only async-signal-safe calls: the parent may have had threads.
[[noreturn]] void become_child(int pipe_fd, const char* executable, char* const* arguments) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);  // a child that hangs does not outlive turbo
  const int null_fd = ::open("/dev/null", O_RDWR);
  if (null_fd >= 0) {
    ::dup2(null_fd, 0);
    ::dup2(null_fd, 1);
    ::dup2(null_fd, 2);
  }
  if (pipe_fd == report_fd)
    ::fcntl(pipe_fd, F_SETFD, 0);
  else
    ::dup2(pipe_fd, report_fd);
  ::syscall(SYS_close_range, 4u, ~0u, 0u);  // absent on old kernels: the child then merely inherits more
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  ::execv(executable, arguments);
  _exit(127);
}

Result<Run> run_child(const std::filesystem::path& library, uint32_t tier_hint, uint32_t first,
                      const ProbeSettings& settings) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return error(Code::resource_exhausted, "cannot start a probe process: {}", std::strerror(errno));
  std::vector<std::string> words{"turbo", probe_child_flag, library.string(), std::to_string(first),
                                 std::to_string(tier_hint)};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const std::string executable = settings.executable.string();
  const pid_t child = ::fork();
  if (child == 0) become_child(ends[1], executable.c_str(), arguments.data());
  ::close(ends[1]);
  if (child < 0) {
    ::close(ends[0]);
    return error(Code::resource_exhausted, "cannot start a probe process: {}", std::strerror(errno));
  }
  Run run;
  listen(ends[0], run, settings.step_limit);
  ::close(ends[0]);
  // Whatever the child left running goes with it. A child that reported its end may still be on its way out.
  if (!run.ended && !run.refused && !run.failure.empty()) ::kill(child, SIGKILL);
  int status = 0;
  siginfo_t gone{};
  for (int waited_ms = 0;
       ::waitid(P_PID, static_cast<id_t>(child), &gone, WEXITED | WNOHANG | WNOWAIT) == 0 && gone.si_pid == 0;
       waited_ms += 5) {
    if (waited_ms >= settings.step_limit.count()) ::kill(child, SIGKILL);
    ::poll(nullptr, 0, 5);
  }
  ::kill(-child, SIGKILL);
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!run.ended && !run.refused && run.failure.empty()) run.failure = describe_end(status);
  if (run.stage == "start" && !run.refused && !run.ended)
    return error(Code::internal, "cannot start a probe process: {} {}", settings.executable.string(), run.failure);
  return run;
}

uint32_t parse_number(const char* text) { return static_cast<uint32_t>(std::strtoul(text, nullptr, 10)); }

}  // namespace

bool can_start_probe_child() { return child_announced; }

std::optional<int> run_if_probe_child(int argc, char** argv) {
  child_announced = true;
  if (argc < 2 || std::strcmp(argv[1], probe_child_flag) != 0) return std::nullopt;
  return probe_child_main(argc, argv);
}

int probe_child_main(int argc, char** argv) {
  if (argc != 5 || ::fcntl(report_fd, F_GETFD) < 0) return 2;
  ::fcntl(report_fd, F_SETFD, FD_CLOEXEC);
  ::signal(SIGPIPE, SIG_IGN);
  ProcessWatch watch;
  const Result<PluginView> plugin = open_library(argv[2], parse_number(argv[4]), [](const char* stage) {
    send({{"at", stage}});
  });
  if (!plugin) {
    send({{"refused", plugin.status().message()}, {"hint", plugin.status().hint()}});
    _exit(0);
  }
  if (const std::string deed = watch.misdeed(); !deed.empty()) {
    send({{"refused", fmt::format("{}: its initialiser or turbo_plugin_query {}", clean_text(argv[2], 1024), deed)},
          {"hint", ""},
          {"misbehaved", true}});
    _exit(0);
  }
  const auto n = static_cast<uint32_t>(plugin->components.size());
  send({{"components", n}});
  for (uint32_t i = parse_number(argv[3]); i < n; ++i) {
    send({{"probing", i}});
    ComponentHost host({.label = "probe"});
    const ProbeOutcome outcome = probe_here(*plugin->components[i], host.host(), nullptr);
    json line{{"probed", i}};
    const std::string deed = watch.misdeed();
    if (outcome.misbehaved)
      line["bad"] = outcome.reason;
    else if (!deed.empty())
      line["bad"] = "its probe " + deed;
    send(line);
  }
  send({{"end", true}});
  _exit(0);  // no static destructors of the plugin
}

Result<ChildReport> run_probe_children(const std::filesystem::path& library, uint32_t tier_hint,
                                       const ProbeSettings& settings) {
  ChildReport report;
  Verdict& verdict = report.verdict;
  for (uint32_t first = 0;;) {
    Result<Run> ran = run_child(library, tier_hint, first, settings);
    // A busy machine can make an honest child late; one that hangs does so twice.
    if (ran && ran->timed_out) ran = run_child(library, tier_hint, first, settings);
    TURBO_ASSIGN(const Run run, std::move(ran));
    verdict.bad.insert(run.bad.begin(), run.bad.end());
    if (run.refused) {
      verdict.refusal = run.refused->message();
      verdict.hint = run.refused->hint();
      report.mendable = !run.misbehaved;
      return report;
    }
    if (run.failure.empty()) return report;
    if (!run.probing) {
      verdict.refusal = fmt::format("{}: its {} {}", clean_text(library.string(), 1024),
                                    run.stage == "load" ? "initialiser" : "turbo_plugin_query", run.failure);
      return report;
    }
    verdict.bad[*run.probing] = fmt::format("its probe {}", run.failure);
    first = *run.probing + 1;
    if (verdict.bad.size() >= max_bad_components) {
      verdict.refusal =
          fmt::format("{}: {} of its components fail in probe; the first: {}", clean_text(library.string(), 1024),
                      verdict.bad.size(), verdict.bad.begin()->second);
      return report;
    }
    if (!run.n_components || first >= *run.n_components) return report;
  }
}

}  // namespace turbo::loader
