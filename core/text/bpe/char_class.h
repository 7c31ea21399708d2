// The Unicode classes that pre-tokenizers tell apart. Pure functions over tables made on first use, any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace turbo::text {

enum class CharClass : uint8_t {
  other,    ///< none of the below; also every byte that is not part of valid UTF-8
  letter,   ///< \p{L}
  number,   ///< \p{N}
  mark,     ///< \p{M}
  space,    ///< White_Space, except CR and LF
  newline,  ///< CR or LF
};

struct CharStep {
  CharClass kind;
  uint32_t length;  ///< bytes, at least 1
};

CharClass class_of_code_point(char32_t code_point);

extern const CharClass ascii_class[128];
CharStep char_beyond_ascii(std::string_view text, size_t at);

/// Class and length of the character at text[at]; at < text.size(). An invalid byte is one `other` of length 1.
inline CharStep char_at(std::string_view text, size_t at) {
  const auto byte = static_cast<uint8_t>(text[at]);
  if (byte < 0x80) return {ascii_class[byte], 1};
  return char_beyond_ascii(text, at);
}

}  // namespace turbo::text
