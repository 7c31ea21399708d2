#include "text/bpe/char_class.h"

#include <utf8proc.h>

#include <array>
#include <memory>

#include "text/utf8.h"

namespace turbo::text {
namespace {

constexpr CharClass o = CharClass::other, l = CharClass::letter, d = CharClass::number, s = CharClass::space,
                    n = CharClass::newline;

// The White_Space property; utf8proc has categories only.
bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

CharClass look_up(char32_t c) {
  if (c == '\r' || c == '\n') return CharClass::newline;
  if (is_white_space(c)) return CharClass::space;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return CharClass::letter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return CharClass::number;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return CharClass::mark;
    default: return CharClass::other;
  }
}

// The basic plane as one flat table: nearly all text lives there, and filling it takes under a millisecond.
using BasicPlane = std::array<CharClass, 0x10000>;

const BasicPlane& basic_plane() {
  static const std::unique_ptr<const BasicPlane> table = [] {
    auto classes = std::make_unique<BasicPlane>();
    for (char32_t c = 0; c < classes->size(); ++c) (*classes)[c] = look_up(c);
    return classes;
  }();
  return *table;
}

}  // namespace

const CharClass ascii_class[128] = {
    o, o, o, o, o, o, o, o, o, s, n, s, s, n, o, o, o, o, o, o, o, o, o, o, o, o, o, o, o, o, o, o,
    s, o, o, o, o, o, o, o, o, o, o, o, o, o, o, o, d, d, d, d, d, d, d, d, d, d, o, o, o, o, o, o,
    o, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, o, o, o, o, o,
    o, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, o, o, o, o, o,
};

CharClass class_of_code_point(char32_t code_point) {
  return code_point < 0x10000 ? basic_plane()[code_point] : look_up(code_point);
}

CharStep char_beyond_ascii(std::string_view text, size_t at) {
  const Utf8Step step = decode_utf8(text, at);
  if (!step.valid) return {CharClass::other, 1};
  return {class_of_code_point(step.code_point), step.length};
}

}  // namespace turbo::text
