// The form of log lines on stderr: text, or one JSON object a line. Any thread.
#pragma once

#include <spdlog/spdlog.h>

#include <string>
#include <string_view>
#include <utility>

namespace turbo {

enum class LogFormat { text, json };

/// For the default logger. Text in messages is escaped: a line of log is one line, and JSON stays JSON, whatever a
/// client, file or plugin put into it.
void set_log_format(LogFormat format);

/// What marks the request id at the front of a message.
std::string log_tag(std::string_view request_id);

/// A line about one request: "ID: MESSAGE", or JSON with a "request_id".
template <typename... Args>
void log_request(spdlog::level::level_enum level, std::string_view request_id, fmt::format_string<Args...> format, Args&&... args) {
  if (!spdlog::should_log(level)) return;
  spdlog::log(level, "{}{}", log_tag(request_id), fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace turbo
