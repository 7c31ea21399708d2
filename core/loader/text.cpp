#include "loader/text.h"

#include <fmt/format.h>
#include <turbo/abi/base.h>

#include <algorithm>
#include <cstring>

namespace turbo::loader {
namespace {

// Bytes of the UTF-8 character at the start of `text`; 0 when malformed.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return 1;
  if (byte(0) < 0xC2 || byte(0) > 0xF4) return 0;
  const size_t length = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  if (text.size() < length) return 0;
  uint32_t code = byte(0) & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3F);
  }
  if (length == 3 && (code < 0x800 || (code >= 0xD800 && code <= 0xDFFF))) return 0;
  if (length == 4 && (code < 0x10000 || code > 0x10FFFF)) return 0;
  return length;
}

bool is_lower_alnum(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

}  // namespace

std::string clean_text(std::string_view text, size_t max_bytes) {
  std::string clean;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (clean.size() + std::max<size_t>(length, 1) > max_bytes) return clean + "...";
    const auto first = static_cast<unsigned char>(text[0]);
    if (length == 0 || first < 0x20 || first == 0x7F)
      clean += first == '\n' || first == '\t' ? ' ' : '?';
    else
      clean += text.substr(0, length);
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return clean;
}

std::string clean_c_text(const char* text, size_t max_bytes) {
  return text ? clean_text({text, strnlen(text, max_bytes)}, max_bytes) : std::string();
}

std::string tier_name(uint32_t tier) {
  switch (tier) {
    case TURBO_TIER_CPU: return "cpu";
    case TURBO_TIER_GENERIC: return "generic";
    case TURBO_TIER_HIP: return "hip";
    default: return fmt::format("tier {}", tier);
  }
}

std::optional<uint32_t> tier_number(std::string_view name) {
  for (uint32_t tier : {TURBO_TIER_CPU, TURBO_TIER_GENERIC, TURBO_TIER_HIP})
    if (name == tier_name(tier)) return tier;
  return std::nullopt;
}

bool is_component_name(std::string_view name, size_t max) {
  return !name.empty() && name.size() <= max &&
         std::all_of(name.begin(), name.end(), [](char c) { return is_lower_alnum(c) || c == '_'; });
}

bool is_plugin_id(std::string_view id) {
  if (id.size() > 128 || id.find('.') == std::string_view::npos) return false;
  bool part_empty = true;
  for (char c : id) {
    if (c == '.') {
      if (part_empty) return false;
      part_empty = true;
    } else {
      if (!is_lower_alnum(c) && c != '_' && c != '-') return false;
      part_empty = false;
    }
  }
  return !part_empty;
}

}  // namespace turbo::loader
