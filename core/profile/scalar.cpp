#include "profile/scalar.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

#include "base/checked.h"
#include "base/nearest.h"
#include "profile/printable.h"

namespace turbo::profile {
namespace {

struct Unit {
  std::string_view name;
  uint64_t factor;
};

constexpr Unit byte_units[] = {{"B", 1},
                               {"KB", 1000},
                               {"MB", 1000'000},
                               {"GB", 1000'000'000},
                               {"TB", 1000'000'000'000},
                               {"KiB", 1ull << 10},
                               {"MiB", 1ull << 20},
                               {"GiB", 1ull << 30},
                               {"TiB", 1ull << 40}};
constexpr Unit time_units[] = {{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"min", 60'000}, {"h", 3'600'000}};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Digits without sign, base prefix, leading zero or separator.
bool plain_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_digit) && (text.size() == 1 || text[0] != '0');
}

std::optional<int64_t> whole_number(std::string_view text) {
  const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
  if (!plain_digits(digits)) return std::nullopt;
  int64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// 3, -0.5, 1e-3, .5: what YAML and JSON call a number, without hexadecimal, infinity, NaN or leading zeros.
std::optional<double> real_number(std::string_view text) {
  const std::string_view unsigned_text = text.starts_with('-') ? text.substr(1) : text;
  if (unsigned_text.empty() || !(is_digit(unsigned_text[0]) || unsigned_text[0] == '.')) return std::nullopt;
  if (unsigned_text.size() > 1 && unsigned_text[0] == '0' && is_digit(unsigned_text[1])) return std::nullopt;
  double value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

// "512MiB", "512 MiB" or "512" as a multiple of the smallest unit.
std::optional<uint64_t> with_unit(std::string_view text, std::span<const Unit> units) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (!plain_digits(text.substr(0, digits))) return std::nullopt;
  uint64_t number = 0;
  if (std::from_chars(text.data(), text.data() + digits, number).ec != std::errc()) return std::nullopt;
  std::string_view unit = text.substr(digits);
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  if (unit.empty()) return digits == text.size() ? std::optional(number) : std::nullopt;
  for (const Unit& known : units)
    if (known.name == unit) return checked_mul(number, known.factor);
  return std::nullopt;
}

std::string plain(double value) {
  return std::floor(value) == value && std::abs(value) < 1e15 ? fmt::format("{}", static_cast<int64_t>(value))
                                                              : fmt::format("{}", value);
}

// " from 1 to 8"; open-ended when the maximum is only the type's.
std::string range_text(const ValueRule& rule) {
  const auto shown = [&](double value) {
    if (rule.kind == KeyKind::bytes) return format_bytes(static_cast<uint64_t>(value));
    if (rule.kind == KeyKind::duration_ms) return format_duration_ms(static_cast<uint64_t>(value));
    return plain(value);
  };
  const bool open = rule.kind == KeyKind::integer && rule.maximum >= 9e15;
  if (open && rule.minimum <= -9e15) return "";
  if (rule.minimum == rule.maximum) return fmt::format(" equal to {}", shown(rule.minimum));
  if (rule.above_minimum) return fmt::format(" above {} and at most {}", shown(rule.minimum), shown(rule.maximum));
  if (open) return fmt::format(" of at least {}", shown(rule.minimum));
  return fmt::format(" from {} to {}", shown(rule.minimum), shown(rule.maximum));
}

bool in_range(const ValueRule& rule, double value) {
  return (rule.above_minimum ? value > rule.minimum : value >= rule.minimum) && value <= rule.maximum;
}

Status expected(const ValueRule& rule, const Scalar& scalar, std::string hint = {}) {
  const std::string found = scalar.is_null  ? "nothing"
                            : scalar.quoted ? "the quoted text " + printable(scalar.text)
                                            : printable(scalar.text);
  if (hint.empty()) hint = "correct the value, or leave it out for the default";
  return Status(Code::invalid_argument, fmt::format("expected {} but found {}", accepted_forms(rule), found),
                std::move(hint));
}

// What most likely went wrong with a number.
std::string number_hint(const ValueRule& rule, const Scalar& scalar) {
  const std::string& text = scalar.text;
  if (scalar.quoted) return fmt::format("write {} without quotes", printable(text));
  const std::string_view digits = std::string_view(text).substr(text.starts_with('-') ? 1 : 0);
  if (digits.size() > 1 && digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X' || digits[1] == 'o'))
    return "write the number in decimal";
  if (digits.size() > 1 && digits[0] == '0' && is_digit(digits[1])) return "remove the leading zero";
  if (rule.kind == KeyKind::integer && real_number(text)) return "write all digits, without exponent or decimal point";
  if (text.find(',') != std::string::npos || text.find('_') != std::string::npos)
    return "write digits only; the decimal sign is a point";
  return {};
}

Result<Value> read_integer(const ValueRule& rule, const Scalar& scalar) {
  const auto number = whole_number(scalar.text);
  if (!number || scalar.quoted) return expected(rule, scalar, number_hint(rule, scalar));
  if (!in_range(rule, static_cast<double>(*number))) return expected(rule, scalar);
  return Value(*number);
}

Result<Value> read_quantity(const ValueRule& rule, const Scalar& scalar) {
  const bool bytes = rule.kind == KeyKind::bytes;
  // A size needs its unit anyway, so quotes around one are harmless.
  const bool bare_number = plain_digits(scalar.text);
  const auto amount = bytes ? with_unit(scalar.text, byte_units) : with_unit(scalar.text, time_units);
  if (!amount || (scalar.quoted && bare_number)) return expected(rule, scalar, number_hint(rule, scalar));
  const bool zero = *amount == 0 && !rule.zero_word.empty();
  if (!zero && !in_range(rule, static_cast<double>(*amount))) return expected(rule, scalar);
  return Value(static_cast<int64_t>(*amount));
}

Result<Value> read_text(const ValueRule& rule, const Scalar& scalar) {
  constexpr size_t longest_text = 4096;
  if (scalar.text.size() > longest_text)
    return error(Code::invalid_argument, "expected at most {} bytes of text but found {}", longest_text,
                 scalar.text.size());
  if (scalar.text.empty() && rule.kind != KeyKind::path) return expected(rule, scalar);
  if (!rule.environment) return Value(scalar.text);
  TURBO_ASSIGN(std::string expanded, expand_environment(scalar.text));
  return Value(std::move(expanded));
}

}  // namespace

std::string format_bytes(uint64_t bytes) {
  for (size_t i = std::size(byte_units) - 1; i >= 5; --i)
    if (bytes != 0 && bytes % byte_units[i].factor == 0)
      return fmt::format("{}{}", bytes / byte_units[i].factor, byte_units[i].name);
  return fmt::format("{}", bytes);
}

std::string format_duration_ms(uint64_t milliseconds) {
  if (milliseconds != 0 && milliseconds % 3'600'000 == 0) return fmt::format("{}h", milliseconds / 3'600'000);
  if (milliseconds != 0 && milliseconds % 1000 == 0) return fmt::format("{}s", milliseconds / 1000);
  return milliseconds == 0 ? "0" : fmt::format("{}ms", milliseconds);
}

std::string accepted_forms(const ValueRule& rule) {
  std::string forms;
  switch (rule.kind) {
    case KeyKind::boolean: forms = "true or false"; break;
    case KeyKind::integer: forms = "a whole number" + range_text(rule); break;
    case KeyKind::number: forms = "a number" + range_text(rule); break;
    case KeyKind::text: forms = "text"; break;
    case KeyKind::choice: forms = fmt::format("one of {}", fmt::join(rule.choices, ", ")); break;
    case KeyKind::bytes:
      forms = "a size" + range_text(rule) + ", in bytes or with a unit (B, KB, MB, GB, TB, KiB, MiB, GiB, TiB)";
      break;
    case KeyKind::duration_ms:
      forms = "a time" + range_text(rule) + ", in milliseconds or with a unit (ms, s, m, h)";
      break;
    case KeyKind::path: forms = "a path"; break;
    case KeyKind::text_list:
      forms = rule.choices.empty()
                  ? "a list of texts such as [a, b]"
                  : fmt::format("a list of {} such as [{}]", fmt::join(rule.choices, ", "), rule.choices.front());
      break;
    case KeyKind::path_list: forms = "a list of paths such as [a, b]"; break;
    case KeyKind::text_map: forms = "a map such as { name: value }"; break;
  }
  if (!rule.zero_word.empty()) forms += fmt::format(", or {} (0)", rule.zero_word);
  return forms;
}

Result<Value> read_scalar(const ValueRule& rule, const Scalar& scalar) {
  if (scalar.is_null) {
    if (rule.optional) return Value(std::monostate{});
    return expected(rule, scalar, "give a value, or remove the line to use the default");
  }
  if (!rule.zero_word.empty() && scalar.text == rule.zero_word) return Value(int64_t{0});
  switch (rule.kind) {
    case KeyKind::boolean:
      if (!scalar.quoted && scalar.text == "true") return Value(true);
      if (!scalar.quoted && scalar.text == "false") return Value(false);
      return expected(rule, scalar, scalar.quoted ? "write it without quotes" : "");
    case KeyKind::integer: return read_integer(rule, scalar);
    case KeyKind::number: {
      const auto number = real_number(scalar.text);
      if (!number || scalar.quoted) return expected(rule, scalar, number_hint(rule, scalar));
      if (!in_range(rule, *number)) return expected(rule, scalar);
      return Value(*number);
    }
    case KeyKind::bytes:
    case KeyKind::duration_ms: return read_quantity(rule, scalar);
    case KeyKind::choice: {
      if (std::find(rule.choices.begin(), rule.choices.end(), scalar.text) != rule.choices.end())
        return Value(scalar.text);
      const std::string near = nearest_name(scalar.text, rule.choices);
      return expected(rule, scalar, near.empty() ? "" : fmt::format("did you mean '{}'?", near));
    }
    case KeyKind::text:
    case KeyKind::path: return read_text(rule, scalar);
    case KeyKind::text_list:
    case KeyKind::path_list:
    case KeyKind::text_map: break;
  }
  return expected(rule, scalar);
}

Result<std::string> expand_environment(const std::string& text) {
  std::string expanded;
  size_t pos = 0;
  if (text.starts_with("~/")) {
    const char* home = std::getenv("HOME");
    if (home == nullptr || *home == '\0')
      return Status(Code::invalid_argument, "'~' stands for $HOME, which is not set", "write the path in full");
    expanded = home;
    pos = 1;
  }
  while (pos < text.size()) {
    const size_t start = text.find("${", pos);
    if (start == std::string::npos) break;
    const size_t end = text.find('}', start);
    if (end == std::string::npos)
      return Status(Code::invalid_argument, fmt::format("expected '}}' after '${{' in {}", printable(text)));
    const std::string name = text.substr(start + 2, end - start - 2);
    const char* value = name.empty() ? nullptr : std::getenv(name.c_str());
    if (value == nullptr)
      return Status(Code::invalid_argument, fmt::format("the environment variable {} is not set", printable(name)),
                    fmt::format("set it, or write the value in place of ${{{}}}", name));
    expanded.append(text, pos, start - pos).append(value);
    pos = end + 1;
  }
  if (expanded.size() > 65536) return Status(Code::resource_exhausted, "the expanded value is longer than 64 KiB");
  return expanded.append(text, std::min(pos, text.size()));
}

}  // namespace turbo::profile
