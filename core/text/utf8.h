// UTF-8 at the edges of the text layer: strict decoding of one code point, and replacement of what is not UTF-8.
// Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace turbo::text {

struct Utf8Step {
  char32_t code_point = 0;  ///< U+FFFD when not valid
  /// Bytes to step over, at least 1. For an invalid sequence: its maximal subpart, the unit that one U+FFFD replaces.
  uint32_t length = 1;
  bool valid = false;
  /// Not valid, but only because the text ended: more bytes could complete it.
  bool cut_short = false;
};

/// Decode the code point that starts at text[at]; at < text.size(). Strict: no surrogates, no overlong forms.
Utf8Step decode_utf8(std::string_view text, size_t at);

/// Append a code point (a valid scalar value) to out.
void append_utf8(std::string& out, char32_t code_point);

/// Append text to out with each maximal invalid subpart replaced by U+FFFD; returns the number of bytes consumed.
/// A tail that more bytes could complete is left unconsumed, unless `last` says that none will come.
size_t append_sanitized(std::string& out, std::string_view text, bool last);

/// The whole text with each maximal invalid subpart replaced by U+FFFD.
std::string sanitize_utf8(std::string_view text);

}  // namespace turbo::text
