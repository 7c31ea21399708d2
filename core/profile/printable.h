// How text from a profile, flag or file name is shown in messages: quoted, on one line, short, terminal-safe.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace turbo::profile {

/// 'text' with control bytes and invalid tails escaped as \xNN, cut to 80 bytes.
inline std::string printable(std::string_view text) {
  constexpr size_t longest_shown = 80;
  std::string shown = "'";
  size_t end = std::min(text.size(), longest_shown);
  while (end < text.size() && end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  for (const char c : text.substr(0, end)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F)
      shown += fmt::format("\\x{:02x}", byte);
    else
      shown += c;
  }
  return shown + (end < text.size() ? "...'" : "'");
}

}  // namespace turbo::profile
