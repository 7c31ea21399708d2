// The printable spelling of bytes in byte-level BPE vocabularies: bytes 33..126, 161..172 and 174..255 are written as
// the code point of the same number, the other 68 bytes, in increasing order, as U+0100, U+0101, ... Pure functions,
// any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace turbo::text {

/// The code point that spells each byte.
const std::array<char32_t, 256>& byte_spelling();

/// The bytes that a spelling stands for; empty when the text holds a character outside the alphabet.
std::optional<std::string> bytes_of_spelling(std::string_view spelled);

/// The spelling of any bytes.
std::string spelling_of_bytes(std::string_view bytes);

}  // namespace turbo::text
