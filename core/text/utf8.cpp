#include "text/utf8.h"

namespace turbo::text {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";

// What a lead byte allows: total length and the range of the second byte. The narrowed ranges keep out overlong forms,
// surrogates and values past U+10FFFF, and give the maximal subparts of the Unicode standard, section 3.9.
struct Lead {
  uint32_t length;
  uint8_t second_low, second_high;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte < 0xF0) return {3, uint8_t(byte == 0xE0 ? 0xA0 : 0x80), uint8_t(byte == 0xED ? 0x9F : 0xBF)};
  if (byte < 0xF5) return {4, uint8_t(byte == 0xF0 ? 0x90 : 0x80), uint8_t(byte == 0xF4 ? 0x8F : 0xBF)};
  return {0, 0, 0};
}

}  // namespace

Utf8Step decode_utf8(std::string_view text, size_t at) {
  const auto first = static_cast<uint8_t>(text[at]);
  if (first < 0x80) return {first, 1, true, false};
  const Lead lead = lead_of(first);
  if (lead.length == 0) return {0xFFFD, 1, false, false};
  char32_t code_point = first & (0x7Fu >> lead.length);
  for (uint32_t i = 1; i < lead.length; ++i) {
    if (at + i >= text.size()) return {0xFFFD, i, false, true};
    const auto byte = static_cast<uint8_t>(text[at + i]);
    const uint8_t low = i == 1 ? lead.second_low : 0x80;
    const uint8_t high = i == 1 ? lead.second_high : 0xBF;
    if (byte < low || byte > high) return {0xFFFD, i, false, false};
    code_point = code_point << 6 | (byte & 0x3F);
  }
  return {code_point, lead.length, true, false};
}

void append_utf8(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
    return;
  }
  if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
  } else {
    if (c < 0x10000) {
      out += static_cast<char>(0xE0 | c >> 12);
    } else {
      out += static_cast<char>(0xF0 | c >> 18);
      out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    }
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
  }
  out += static_cast<char>(0x80 | (c & 0x3F));
}

size_t append_sanitized(std::string& out, std::string_view text, bool last) {
  size_t at = 0;
  size_t valid_from = 0;
  while (at < text.size()) {
    const Utf8Step step = decode_utf8(text, at);
    if (step.valid) {
      at += step.length;
      continue;
    }
    out.append(text, valid_from, at - valid_from);
    if (step.cut_short && !last) return at;
    out += replacement;
    at += step.length;
    valid_from = at;
  }
  out.append(text, valid_from, at - valid_from);
  return at;
}

std::string sanitize_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  append_sanitized(out, text, true);
  return out;
}

}  // namespace turbo::text
