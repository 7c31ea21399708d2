// Bounded, strict JSON for configuration files of unknown origin.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace turbo::model {

/// One JSON object. Refuses what the JSON library lets pass: duplicate keys, NUL bytes and what follows them, text that
/// is not UTF-8; and caps nesting and the number of values (model/files/limits.h). `name` heads every message.
Result<nlohmann::json> parse_strict_json(std::string_view text, const std::string& name);

}  // namespace turbo::model
