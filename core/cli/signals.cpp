#include "cli/signals.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

namespace turbo::cli {
namespace {

constexpr int kStop = SIGUSR2;  // sent by the destructor to its own thread

sigset_t watched() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, kStop);
  return set;
}

}  // namespace

void hold_signals() {
  const sigset_t set = watched();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

SignalWatch::SignalWatch(std::function<void(int, int)> on_signal) : on_signal_(std::move(on_signal)) {
  hold_signals();
  thread_ = std::thread([this] {
    const sigset_t set = watched();
    int count = 0;
    for (int signal = 0; sigwait(&set, &signal) == 0 && signal != kStop;) on_signal_(signal, ++count);
  });
}

SignalWatch::~SignalWatch() {
  pthread_kill(thread_.native_handle(), kStop);
  thread_.join();
}

EndOnSignal::EndOnSignal(const OutputStyle& style)
    : watch_([style](int, int count) {
        if (style.json && !claim_result() && count == 1) return;
        if (isatty(STDERR_FILENO)) print_note("\r\033[K");
        print_error(Status(Code::cancelled, "interrupted before there was a result"), style);
        _exit(kInterrupted);
      }) {}

}  // namespace turbo::cli
