#include "text/template/numbers.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "text/template/utf8.h"

namespace turbo::text::jinja {

namespace {

// Single underscores between digits go; anything else around an underscore makes the number invalid.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out.push_back(text[i]);
    } else if (i == 0 || i + 1 == text.size() || !std::isalnum(static_cast<unsigned char>(text[i - 1])) ||
               !std::isalnum(static_cast<unsigned char>(text[i + 1]))) {
      return std::nullopt;
    }
  }
  return out;
}

}  // namespace

std::optional<int64_t> parse_integer(std::string_view text, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  text = strip(text, nullptr, true, true);
  bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  if (text.size() > 2 && text[0] == '0') {
    char marker = static_cast<char>(text[1] | 0x20);
    int64_t marked = marker == 'x' ? 16 : marker == 'o' ? 8 : marker == 'b' ? 2 : 0;
    if (marked != 0 && (base == marked || base == 0)) {
      base = marked;
      text.remove_prefix(text[2] == '_' ? 3 : 2);
    }
  }
  if (base == 0) base = 10;
  if (text.size() > 200) return std::nullopt;
  auto digits = without_underscores(text);
  if (!digits || digits->empty() || (*digits)[0] == '-') return std::nullopt;
  if (negative) digits->insert(0, 1, '-');
  int64_t value = 0;
  auto [stop, error] = std::from_chars(digits->data(), digits->data() + digits->size(), value, static_cast<int>(base));
  if (error != std::errc{} || stop != digits->data() + digits->size()) return std::nullopt;
  return value;
}

std::optional<double> parse_real(std::string_view text) {
  text = strip(text, nullptr, true, true);
  if (text.empty() || text.size() > 4096) return std::nullopt;
  auto plain = without_underscores(text);
  if (!plain) return std::nullopt;
  // strtod also takes hexadecimal and "nan(...)", which Python does not.
  if (plain->find_first_of("xXpP(") != std::string::npos || is_space(static_cast<unsigned char>((*plain)[0]))) return std::nullopt;
  char* stop = nullptr;
  double value = std::strtod(plain->c_str(), &stop);
  if (stop != plain->c_str() + plain->size()) return std::nullopt;
  return value;
}

double round_half_even(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 30) return value;
  if (digits < 0) {
    if (digits < -308) return 0.0 * value;
    double unit = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(value / unit) * unit;
  }
  char buffer[400];
  std::snprintf(buffer, sizeof(buffer), "%.*f", static_cast<int>(digits), value);
  return std::strtod(buffer, nullptr);
}

}  // namespace turbo::text::jinja
