#include "cli/output.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

namespace turbo::cli {

void print_error(const Status& status, const OutputStyle& style) {
  print_note("turbo: error: {}\n", status.message());
  if (!status.hint().empty()) print_note("hint: {}\n", status.hint());
  if (!style.json) return;
  print_json({{"error", {{"code", code_name(status.code())}, {"message", status.message()}, {"hint", status.hint()}}}});
}

bool claim_result() {
  static std::atomic<std::thread::id> owner{};
  std::thread::id none{};
  return owner.compare_exchange_strong(none, std::this_thread::get_id()) || none == std::this_thread::get_id();
}

void print_json(const nlohmann::ordered_json& json) {
  if (!claim_result()) return;
  // Plain writes: a full disk must not throw out of an error report. The command line checks stdout at the end.
  const std::string text = json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

Progress::Progress(std::string what, const OutputStyle& style)
    : what_(std::move(what)), shown_(!style.quiet), terminal_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (shown_ && terminal_ && last_ >= 0) print_note("\r\033[K");
}

void Progress::update(double fraction, const std::string& note) {
  if (!shown_) return;
  fraction = std::clamp(fraction, 0.0, 1.0);
  const int step = static_cast<int>(fraction * (terminal_ ? 100 : 4));
  if (step == last_) return;
  last_ = step;
  if (terminal_) {
    const int filled = static_cast<int>(fraction * 30);
    print_note("\r\033[K{} [{}{}] {:3.0f}% {}", what_, std::string(filled, '#'), std::string(30 - filled, '.'), fraction * 100, note);
    std::fflush(stderr);
  } else if (step > 0 && std::chrono::steady_clock::now() - start_ > std::chrono::seconds(2)) {
    print_note("{}: {:.0f}% {}\n", what_, fraction * 100, note);
  }
}

}  // namespace turbo::cli
