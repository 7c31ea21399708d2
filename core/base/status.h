// Status and Result<T>: how every fallible call in core answers.
//
// A Status says WHAT failed, WHY, and WHAT TO DO (the hint, may be empty). Codes equal the
// ABI's (turbo/abi/base.h), so a plugin's refusal passes through unchanged. Nothing in core
// throws across a folder's public face.
#pragma once

#include <fmt/format.h>

#include <cassert>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace turbo {

enum class Code : int32_t {
  ok = 0,
  invalid_argument = 1,
  unsupported = 2,
  not_found = 3,
  resource_exhausted = 4,
  corrupt_input = 5,
  cancelled = 6,
  device_lost = 7,
  internal = 8,
};

/// Lower-case name of a code, as it appears in JSON errors ("corrupt_input").
const char* code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message, std::string hint = {})
      : code_(code), message_(std::move(message)), hint_(std::move(hint)) {}

  static Status ok() { return {}; }

  bool is_ok() const { return code_ == Code::ok; }
  explicit operator bool() const { return is_ok(); }
  Code code() const { return code_; }
  /// "WHAT: WHY", one line, no trailing full stop.
  const std::string& message() const { return message_; }
  /// "WHAT TO DO", may be empty.
  const std::string& hint() const { return hint_; }

  /// The same failure with "prefix: " before its message.
  Status with_context(const std::string& prefix) const {
    return is_ok() ? *this : Status(code_, prefix + ": " + message_, hint_);
  }
  Status with_hint(std::string hint) const { return is_ok() ? *this : Status(code_, message_, std::move(hint)); }

 private:
  Code code_ = Code::ok;
  std::string message_;
  std::string hint_;
};

/// error(Code::corrupt_input, "file {}: {} bytes left", name, n)
template <typename... Args>
Status error(Code code, fmt::format_string<Args...> text, Args&&... args) {
  return Status(code, fmt::format(text, std::forward<Args>(args)...));
}

/// Either a value or a failed Status. Reading the value of a failed Result is a programming error.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {
    assert(!std::get<1>(state_).is_ok());
  }

  bool is_ok() const { return state_.index() == 0; }
  explicit operator bool() const { return is_ok(); }
  Status status() const { return is_ok() ? Status::ok() : std::get<1>(state_); }

  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Status> state_;
};

#define TURBO_CONCAT_(a, b) a##b
#define TURBO_CONCAT(a, b) TURBO_CONCAT_(a, b)

/// Return from the enclosing function when a Status expression failed.
#define TURBO_RETURN_IF_ERROR(expr)                     \
  do {                                                  \
    if (::turbo::Status turbo_status_ = (expr); !turbo_status_.is_ok()) return turbo_status_; \
  } while (0)

/// TURBO_ASSIGN(auto x, f()): bind the value or return the failure.
#define TURBO_ASSIGN(declaration, expr) TURBO_ASSIGN_IMPL(TURBO_CONCAT(turbo_result_, __LINE__), declaration, expr)
#define TURBO_ASSIGN_IMPL(tmp, declaration, expr) \
  auto tmp = (expr);                              \
  if (!tmp.is_ok()) return tmp.status();          \
  declaration = std::move(tmp).value()

}  // namespace turbo
