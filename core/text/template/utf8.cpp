#include "text/template/utf8.h"

#include <utf8proc.h>

namespace turbo::text::jinja {

CodePoint decode_at(std::string_view text, size_t byte_pos) {
  unsigned char first = static_cast<unsigned char>(text[byte_pos]);
  if (first < 0x80) return {first, 1};
  utf8proc_int32_t value = 0;
  utf8proc_ssize_t bytes = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + byte_pos,
                                            static_cast<utf8proc_ssize_t>(text.size() - byte_pos), &value);
  if (bytes <= 0) return {0xFFFD, 1};
  return {static_cast<uint32_t>(value), static_cast<size_t>(bytes)};
}

void append_utf8(std::string& out, uint32_t code_point) {
  utf8proc_uint8_t buffer[4];
  if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point < 0xE000)) code_point = 0xFFFD;
  auto bytes = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), buffer);
  out.append(reinterpret_cast<const char*>(buffer), static_cast<size_t>(bytes));
}

size_t count_code_points(std::string_view text) {
  size_t count = 0;
  while (count < text.size() && static_cast<unsigned char>(text[count]) < 0x80) ++count;   // most text ends here
  for (size_t pos = count; pos < text.size(); pos += decode_at(text, pos).bytes) ++count;
  return count;
}

size_t byte_offset(std::string_view text, size_t index) {
  size_t pos = 0;
  while (index > 0 && pos < text.size()) {
    pos += decode_at(text, pos).bytes;
    --index;
  }
  return pos;
}

namespace {

utf8proc_category_t category(uint32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool is_cased(uint32_t c) { return is_upper(c) || is_lower(c) || category(c) == UTF8PROC_CATEGORY_LT; }

template <typename Map>
std::string map_code_points(std::string_view text, Map map) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    CodePoint cp = decode_at(text, pos);
    bool valid = cp.bytes > 1 || cp.value < 0x80;
    if (valid) {
      append_utf8(out, map(cp.value));
    } else {
      out.push_back(text[pos]);
    }
    pos += cp.bytes;
  }
  return out;
}

}  // namespace

bool is_space(uint32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
  if (c == 0x85) return true;
  auto cat = category(c);
  return cat == UTF8PROC_CATEGORY_ZS || cat == UTF8PROC_CATEGORY_ZL || cat == UTF8PROC_CATEGORY_ZP;
}

bool is_alpha(uint32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  auto cat = category(c);
  return cat >= UTF8PROC_CATEGORY_LU && cat <= UTF8PROC_CATEGORY_LO;
}

bool is_digit(uint32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  return category(c) == UTF8PROC_CATEGORY_ND || c == 0xB2 || c == 0xB3 || c == 0xB9 || (c >= 0x2070 && c <= 0x2089);
}

bool is_numeric(uint32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  auto cat = category(c);
  return cat == UTF8PROC_CATEGORY_ND || cat == UTF8PROC_CATEGORY_NL || cat == UTF8PROC_CATEGORY_NO;
}

bool is_word(uint32_t c) { return c == '_' || is_alpha(c) || is_numeric(c); }

bool is_printable(uint32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7F;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

bool is_upper(uint32_t c) {
  return c < 0x80 ? c >= 'A' && c <= 'Z' : utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0;
}
bool is_lower(uint32_t c) {
  return c < 0x80 ? c >= 'a' && c <= 'z' : utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0;
}
uint32_t to_upper(uint32_t c) {
  if (c < 0x80) return is_lower(c) ? c - 32 : c;
  return static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}
uint32_t to_lower(uint32_t c) {
  if (c < 0x80) return is_upper(c) ? c + 32 : c;
  return static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

std::string upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  // One common letter grows when upper-cased; the rest of the special table does not occur in prompts.
  for (size_t pos = 0; pos < text.size();) {
    CodePoint cp = decode_at(text, pos);
    if (cp.value == 0xDF) {
      out += "SS";
    } else if (cp.bytes == 1 && cp.value >= 0x80) {
      out.push_back(text[pos]);
    } else {
      append_utf8(out, to_upper(cp.value));
    }
    pos += cp.bytes;
  }
  return out;
}

std::string lower(std::string_view text) {
  return map_code_points(text, [](uint32_t c) { return to_lower(c); });
}

std::string title(std::string_view text) {
  bool inside_word = false;
  return map_code_points(text, [&](uint32_t c) {
    uint32_t mapped = inside_word ? to_lower(c) : to_upper(c);
    inside_word = is_cased(c);
    return mapped;
  });
}

std::string capitalize(std::string_view text) {
  bool first = true;
  return map_code_points(text, [&](uint32_t c) {
    uint32_t mapped = first ? to_upper(c) : to_lower(c);
    first = false;
    return mapped;
  });
}

std::string_view strip(std::string_view text, const std::string_view* chars, bool left, bool right) {
  auto strippable = [&](size_t pos, const CodePoint& cp) {
    if (!chars) return is_space(cp.value);
    return chars->find(text.substr(pos, cp.bytes)) != std::string_view::npos;
  };
  size_t begin = 0;
  if (left) {
    while (begin < text.size()) {
      CodePoint cp = decode_at(text, begin);
      if (!strippable(begin, cp)) break;
      begin += cp.bytes;
    }
  }
  size_t end = text.size();
  while (right && end > begin) {
    size_t start = end - 1;
    while (start > begin && end - start < 4 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    CodePoint cp = decode_at(text, start);
    if (start + cp.bytes != end) start = end - 1, cp = {0xFFFD, 1};
    if (!strippable(start, cp)) break;
    end = start;
  }
  return text.substr(begin, end - begin);
}

}  // namespace turbo::text::jinja
