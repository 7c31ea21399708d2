// Request bodies into JSON, bounded: depth, duplicate keys (the last wins) and member counts cost no more than n log n.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace turbo::server {

using Json = nlohmann::ordered_json;

/// invalid_argument with the offset of what is wrong: syntax, invalid UTF-8, lone surrogates, numbers beyond double,
/// nesting deeper than `max_depth`.
Result<Json> parse_json(std::string_view text, int max_depth);

/// Compact, on one line; bytes that are not UTF-8 become U+FFFD.
std::string to_text(const Json& value);

}  // namespace turbo::server
