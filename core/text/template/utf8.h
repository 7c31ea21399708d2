// Code-point views of UTF-8 text, with Python's ideas of white space, letters and case. Pure functions.
//
// A byte that does not start or continue a valid sequence counts as one code point, so any byte string is usable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace turbo::text::jinja {

/// One decoded code point; an invalid byte decodes to U+FFFD of length 1.
struct CodePoint {
  uint32_t value;
  size_t bytes;
};

CodePoint decode_at(std::string_view text, size_t byte_pos);
void append_utf8(std::string& out, uint32_t code_point);
size_t count_code_points(std::string_view text);
/// Byte offset of code point `index`; text.size() when past the end.
size_t byte_offset(std::string_view text, size_t index);

bool is_space(uint32_t c);        ///< str.isspace
bool is_alpha(uint32_t c);        ///< str.isalpha
bool is_digit(uint32_t c);        ///< str.isdigit, decimal digits and superscripts
bool is_numeric(uint32_t c);      ///< numeric half of str.isalnum
bool is_word(uint32_t c);         ///< \w
bool is_printable(uint32_t c);    ///< what repr() leaves unescaped
bool is_upper(uint32_t c);
bool is_lower(uint32_t c);
uint32_t to_upper(uint32_t c);
uint32_t to_lower(uint32_t c);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string title(std::string_view text);        ///< str.title: a letter after a non-letter is upper case
std::string capitalize(std::string_view text);   ///< first upper, rest lower

/// Strip white space (or, when `chars` is not null, those code points) from either side.
std::string_view strip(std::string_view text, const std::string_view* chars, bool left, bool right);

}  // namespace turbo::text::jinja
