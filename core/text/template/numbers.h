// Numbers read from text, as Python's int() and float() do.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace turbo::text::jinja {

std::optional<int64_t> parse_integer(std::string_view text, int64_t base);
std::optional<double> parse_real(std::string_view text);
/// round(value, digits), halves to even on the exact binary value.
double round_half_even(double value, int64_t digits);

}  // namespace turbo::text::jinja
