#include "text/bpe/byte_alphabet.h"

#include "text/utf8.h"

namespace turbo::text {
namespace {

constexpr size_t n_spelling_points = 256 + 68;

struct Alphabet {
  std::array<char32_t, 256> spelling;
  std::array<int16_t, n_spelling_points> byte_of;  // -1: spells nothing
};

bool spells_itself(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
}

const Alphabet& alphabet() {
  static const Alphabet instance = [] {
    Alphabet a;
    a.byte_of.fill(-1);
    char32_t next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      a.spelling[byte] = spells_itself(byte) ? static_cast<char32_t>(byte) : next++;
      a.byte_of[a.spelling[byte]] = static_cast<int16_t>(byte);
    }
    return a;
  }();
  return instance;
}

}  // namespace

const std::array<char32_t, 256>& byte_spelling() { return alphabet().spelling; }

std::optional<std::string> bytes_of_spelling(std::string_view spelled) {
  const Alphabet& a = alphabet();
  std::string bytes;
  bytes.reserve(spelled.size());
  for (size_t at = 0; at < spelled.size();) {
    const Utf8Step step = decode_utf8(spelled, at);
    if (!step.valid || step.code_point >= n_spelling_points || a.byte_of[step.code_point] < 0) return std::nullopt;
    bytes += static_cast<char>(a.byte_of[step.code_point]);
    at += step.length;
  }
  return bytes;
}

std::string spelling_of_bytes(std::string_view bytes) {
  std::string spelled;
  for (const char byte : bytes) append_utf8(spelled, alphabet().spelling[static_cast<uint8_t>(byte)]);
  return spelled;
}

}  // namespace turbo::text
