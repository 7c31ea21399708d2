#include "text/bpe/vocabulary.h"

#include <algorithm>

#include "text/bpe/byte_alphabet.h"
#include "text/utf8.h"

namespace turbo::text {
namespace {

// Token texts come from a file: shortened and made printable before they go into a message.
std::string shown(std::string_view text) {
  std::string out;
  for (const char c : sanitize_utf8(text.substr(0, 48))) out += static_cast<uint8_t>(c) < 0x20 ? '.' : c;
  return text.size() > 48 ? out + "..." : out;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// A token of type byte: <0xHH> with exactly two digits, or the byte's printable spelling.
std::optional<std::string> bytes_of_byte_token(std::string_view text) {
  if (text.size() == 6 && text.starts_with("<0x") && text[5] == '>') {
    const int high = hex_digit(text[3]), low = hex_digit(text[4]);
    if (high < 0 || low < 0) return std::nullopt;
    return std::string(1, static_cast<char>(high << 4 | low));
  }
  auto bytes = bytes_of_spelling(text);
  if (!bytes || bytes->size() != 1) return std::nullopt;
  return bytes;
}

struct TokenBytes {
  std::string bytes;
  bool literal = false;
};

// What a token's text stands for.
Result<TokenBytes> bytes_of_token(std::string_view text, TokenType type, size_t id) {
  switch (type) {
    case TokenType::control:
    case TokenType::user_defined:
      if (text.size() > Vocabulary::max_special_bytes)
        return error(Code::corrupt_input, "tokenizer: special token {} has {} bytes, the limit is {}", id, text.size(),
                     Vocabulary::max_special_bytes);
      return TokenBytes{std::string(text)};
    case TokenType::unknown: return TokenBytes{std::string(text)};
    case TokenType::unused: return TokenBytes{};
    case TokenType::byte:
      if (auto bytes = bytes_of_byte_token(text)) return TokenBytes{std::move(*bytes)};
      return error(Code::corrupt_input, "tokenizer: byte token {} is \"{}\", not <0xHH>", id, shown(text));
    case TokenType::undefined:
    case TokenType::normal: break;
  }
  if (auto bytes = bytes_of_spelling(text)) return TokenBytes{std::move(*bytes)};
  return TokenBytes{std::string(text), true};
}

}  // namespace

int32_t Vocabulary::spelled(std::string_view spelling) const {
  const auto bytes = bytes_of_spelling(spelling);
  return bytes ? word(*bytes) : literals_.find(spelling);
}

Status Vocabulary::build(const TokenizerData& data) {
  TURBO_RETURN_IF_ERROR(add_tokens(data));
  TURBO_RETURN_IF_ERROR(index_tokens());
  return add_merges(data);
}

Status Vocabulary::add_tokens(const TokenizerData& data) {
  const size_t n = data.tokens.size();
  if (n == 0) return error(Code::corrupt_input, "tokenizer: the vocabulary is empty");
  if (n > max_tokens) return error(Code::corrupt_input, "tokenizer: {} tokens, the limit is {}", n, max_tokens);
  if (!data.types.empty() && data.types.size() != n)
    return error(Code::corrupt_input, "tokenizer: {} token types for {} tokens", data.types.size(), n);
  types_.reserve(n);
  offsets_.reserve(n + 1);
  offsets_.push_back(0);
  for (size_t id = 0; id < n; ++id) {
    const std::string& text = data.tokens[id];
    const int32_t type = data.types.empty() ? static_cast<int32_t>(TokenType::normal) : data.types[id];
    if (type < static_cast<int32_t>(TokenType::undefined) || type > static_cast<int32_t>(TokenType::byte))
      return error(Code::corrupt_input, "tokenizer: token {} has type {}, known are 0 to 6", id, type);
    if (text.size() > max_token_bytes)
      return error(Code::corrupt_input, "tokenizer: token {} has {} bytes, the limit is {}", id, text.size(),
                   max_token_bytes);
    types_.push_back(static_cast<TokenType>(type));
    TURBO_ASSIGN(const TokenBytes token, bytes_of_token(text, types_.back(), id));
    if (arena_.size() + token.bytes.size() > max_total_bytes)
      return error(Code::corrupt_input, "tokenizer: token texts of more than {} bytes together", max_total_bytes);
    arena_ += token.bytes;
    literal_.push_back(token.literal);
    offsets_.push_back(static_cast<uint32_t>(arena_.size()));
  }
  arena_.shrink_to_fit();
  return Status::ok();
}

Status Vocabulary::index_tokens() {
  words_.reserve(types_.size());
  literals_.reserve(static_cast<size_t>(std::count(literal_.begin(), literal_.end(), true)));
  for (int32_t id = 0; id < size(); ++id) {
    const TokenType kind = type(id);
    if (is_special_type(id) && !bytes(id).empty()) special_ids_.push_back(id);
    if (kind == TokenType::unknown && unknown_ < 0) unknown_ = id;
    if (kind != TokenType::normal && kind != TokenType::undefined && kind != TokenType::byte) continue;
    if (bytes(id).empty()) continue;
    if (literal_[id]) {
      literals_.insert(bytes(id), id);
      continue;
    }
    if (const auto other = words_.insert(bytes(id), id))
      return error(Code::corrupt_input, "tokenizer: tokens {} and {} have the same text \"{}\"", *other, id,
                   shown(bytes(id)));
  }
  specials_.reserve(special_ids_.size());
  for (const int32_t id : special_ids_) specials_.insert(bytes(id), id);  // of equal ones the first counts
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    byte_tokens_[byte] = words_.find({&c, 1});
  }
  return Status::ok();
}

Status Vocabulary::add_merges(const TokenizerData& data) {
  if (data.merges.size() > max_merges)
    return error(Code::corrupt_input, "tokenizer: {} merges, the limit is {}", data.merges.size(), max_merges);
  merger_.reserve(data.merges.size());
  // Merges may also build user-defined tokens (converters give that type to added tokens that were ordinary before),
  // but never control tokens: ordinary text must not turn into those.
  const auto find_piece = [this](std::string_view spelling) -> int32_t {
    if (const int32_t id = spelled(spelling); id >= 0) return id;
    const int32_t id = special(spelling);
    return id >= 0 && type(id) == TokenType::user_defined ? id : -1;
  };
  std::string joined;
  for (size_t rank = 0; rank < data.merges.size(); ++rank) {
    const std::string_view merge = data.merges[rank];
    const size_t space = merge.find(' ', 1);
    if (merge.empty() || space == std::string_view::npos || space + 1 == merge.size())
      return error(Code::corrupt_input, "tokenizer: merge {} is \"{}\", not two pieces with a space between", rank,
                   shown(merge));
    const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
    joined.assign(left).append(right);
    const int32_t ids[] = {find_piece(left), find_piece(right), find_piece(joined)};
    const std::string_view names[] = {left, right, joined};
    for (int i = 0; i < 3; ++i)
      if (ids[i] < 0)
        return error(Code::corrupt_input, "tokenizer: merge {} names \"{}\", which is no ordinary token", rank,
                     shown(names[i]));
    if (!merger_.add(ids[0], ids[1], ids[2]))
      return error(Code::corrupt_input, "tokenizer: merge {} (\"{}\") is there twice", rank, shown(merge));
  }
  return Status::ok();
}

}  // namespace turbo::text
