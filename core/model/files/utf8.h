// Text from files: validity, and a form that is safe to print in messages.
#pragma once

#include <string>
#include <string_view>

namespace turbo::model {

/// Well-formed UTF-8 (no overlong forms, no surrogates, nothing over U+10FFFF).
bool is_utf8(std::string_view text);

/// `text` for a one-line message: control characters and ill-formed bytes as \xNN, cut after about `limit` bytes with
/// "...".
std::string printable(std::string_view text, size_t limit = 80);

}  // namespace turbo::model
