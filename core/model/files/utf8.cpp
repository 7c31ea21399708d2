#include "model/files/utf8.h"

#include <fmt/format.h>

#include <cstdint>

namespace turbo::model {
namespace {

/// Length of the well-formed sequence at the head of `text`, 0 when it is ill-formed.
size_t sequence_length(std::string_view text) {
  const auto byte = [&](size_t i) { return uint8_t(text[i]); };
  const auto follows = [&](size_t i, uint8_t low = 0x80, uint8_t high = 0xBF) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xC2) return 0;
  if (first < 0xE0) return follows(1) ? 2 : 0;
  if (first < 0xF0) {
    const uint8_t low = first == 0xE0 ? 0xA0 : 0x80, high = first == 0xED ? 0x9F : 0xBF;
    return follows(1, low, high) && follows(2) ? 3 : 0;
  }
  if (first < 0xF5) {
    const uint8_t low = first == 0xF0 ? 0x90 : 0x80, high = first == 0xF4 ? 0x8F : 0xBF;
    return follows(1, low, high) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = sequence_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string printable(std::string_view text, size_t limit) {
  std::string out;
  while (!text.empty()) {
    if (out.size() >= limit) return out + "...";
    const size_t length = sequence_length(text);
    const uint8_t first = uint8_t(text[0]);
    if (length == 0 || (length == 1 && (first < 0x20 || first == 0x7F))) {
      out += fmt::format("\\x{:02x}", first);
      text.remove_prefix(1);
    } else {
      out.append(text.substr(0, length));
      text.remove_prefix(length);
    }
  }
  return out;
}

}  // namespace turbo::model
