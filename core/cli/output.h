// What commands print: errors, hints, JSON, progress. Main thread, and the one that hears signals.
#pragma once

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include <string>

#include "base/status.h"

namespace turbo::cli {

/// Exit codes of every command.
enum Exit : int { kOk = 0, kFailed = 1, kUsage = 2, kModel = 3, kNoTier = 4, kInterrupted = 130 };

struct OutputStyle {
  bool json = false;   // machine-readable result on stdout, errors too
  bool quiet = false;  // no progress, no notes
};

/// Text to stderr. A stderr that is closed or full changes nothing else.
template <typename... Args>
void print_note(fmt::format_string<Args...> text, Args&&... args) noexcept {
  try {
    const std::string line = fmt::format(text, std::forward<Args>(args)...);
    std::fwrite(line.data(), 1, line.size(), stderr);
  } catch (...) {
    // Nothing left to say it with.
  }
}

/// "turbo: error: WHAT: WHY", the hint, and with json the error object on stdout.
void print_error(const Status& status, const OutputStyle& style);

/// Whose object it is that goes to stdout: true for the first thread that asks, and for that one again. [any thread]
bool claim_result();

/// One JSON object on stdout; nothing when another thread has claimed the result.
void print_json(const nlohmann::ordered_json& json);

/// A bar on a terminal; otherwise plain lines at every quarter of what takes over two seconds; nothing when quiet.
class Progress {
 public:
  Progress(std::string what, const OutputStyle& style);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void update(double fraction, const std::string& note = {});

 private:
  std::string what_;
  bool shown_, terminal_;
  int last_ = -1;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace turbo::cli
