// JSON given by the caller, as template values.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "text/template/value.h"

namespace turbo::text::jinja {

Value value_of(Heap& heap, const nlohmann::ordered_json& json, size_t depth = 0);

}  // namespace turbo::text::jinja
