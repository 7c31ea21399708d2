// SIGINT and SIGTERM as calls on a thread of their own, so that handlers may lock and wait.
#pragma once

#include <functional>
#include <thread>

#include "cli/output.h"

namespace turbo::cli {

/// SIGINT and SIGTERM wait from here on until a SignalWatch begins. First thing of the program, so that a signal right
/// after its start is answered like a later one.
void hold_signals();

/// Must exist before any other thread starts (threads inherit the blocked mask). Calls on_signal(signal, count) for
/// each one, count from 1, until destroyed.
class SignalWatch {
 public:
  explicit SignalWatch(std::function<void(int signal, int count)> on_signal);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

 private:
  std::function<void(int, int)> on_signal_;
  std::thread thread_;
};

/// While it lives, either signal ends the program at once with exit code 130 and, with --json, one error object: for
/// commands whose result comes at the end. A result that is being printed is left to finish, unless asked twice.
class EndOnSignal {
 public:
  explicit EndOnSignal(const OutputStyle& style);

 private:
  SignalWatch watch_;
};

}  // namespace turbo::cli
