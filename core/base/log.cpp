#include "base/log.h"

#include <spdlog/formatter.h>
#include <spdlog/pattern_formatter.h>

#include <memory>
#include <nlohmann/json.hpp>

namespace turbo {
namespace {

constexpr char kMark = '\x1f';  // around a request id; never in one

struct Split {
  std::string_view id, message;
};
Split split(std::string_view payload) {
  if (payload.empty() || payload.front() != kMark) return {{}, payload};
  const size_t end = payload.find(kMark, 1);
  return end == std::string_view::npos ? Split{{}, payload} : Split{payload.substr(1, end - 1), payload.substr(end + 1)};
}

class TextFormatter : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const auto [id, text] = split({message.payload.data(), message.payload.size()});
    std::string line;
    if (!id.empty()) line.append(id).append(": ");
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte < 0x20 || byte == 0x7f) fmt::format_to(std::back_inserter(line), "\\x{:02x}", byte);
      else line += c;
    }
    spdlog::details::log_msg shown = message;
    shown.payload = line;
    pattern_.format(shown, out);
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<TextFormatter>(); }

 private:
  spdlog::pattern_formatter pattern_{"%H:%M:%S.%e %^%l%$ %v"};
};

class JsonFormatter : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const auto [id, text] = split({message.payload.data(), message.payload.size()});
    spdlog::memory_buf_t time;
    time_.format(message, time);
    const auto level = spdlog::level::to_string_view(message.level);
    nlohmann::ordered_json line{{"time", std::string(time.data(), time.size())}, {"level", std::string(level.data(), level.size())}};
    if (!id.empty()) line["request_id"] = std::string(id);
    line["message"] = std::string(text);
    const std::string json = line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    out.append(json.data(), json.data() + json.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonFormatter>(); }

 private:
  spdlog::pattern_formatter time_{"%Y-%m-%dT%H:%M:%S.%e%z", spdlog::pattern_time_type::local, ""};
};

}  // namespace

void set_log_format(LogFormat format) {
  if (format == LogFormat::json) spdlog::set_formatter(std::make_unique<JsonFormatter>());
  else spdlog::set_formatter(std::make_unique<TextFormatter>());
}

std::string log_tag(std::string_view request_id) {
  std::string tag(1, kMark);
  for (const char c : request_id) tag += c == kMark ? '?' : c;
  return tag + kMark;
}

}  // namespace turbo
