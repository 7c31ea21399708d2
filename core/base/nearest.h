// Nearest-name suggestions for misspelt options, keys, codecs and routes.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace turbo {

/// The candidate with the smallest edit distance to `name`, or empty when none is close enough to be meant
/// (distance over max(2, length / 3)). Case-insensitive; '-' and '_' count as equal.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

}  // namespace turbo
