// A checked vocabulary: what each id stands for, and the look-ups from bytes and spellings to ids.
// Built by one thread, then immutable.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/bpe/hash_index.h"
#include "text/bpe/merger.h"
#include "text/tokenizer.h"

namespace turbo::text {

class Vocabulary {
 public:
  static constexpr size_t max_tokens = size_t{1} << 24;
  static constexpr size_t max_merges = size_t{1} << 25;
  static constexpr size_t max_token_bytes = size_t{1} << 16;
  static constexpr size_t max_special_bytes = 1024;
  static constexpr size_t max_total_bytes = size_t{1} << 30;

  /// Checks tokens, types and merges, and fills in everything below.
  Status build(const TokenizerData& data);

  int32_t size() const { return static_cast<int32_t>(types_.size()); }
  bool contains(int32_t id) const { return id >= 0 && id < size(); }
  TokenType type(int32_t id) const { return types_[id]; }
  std::string_view bytes(int32_t id) const {
    return std::string_view(arena_).substr(offsets_[id], offsets_[id + 1] - offsets_[id]);
  }
  /// The ordinary token for exactly these bytes, or -1.
  int32_t word(std::string_view bytes) const { return words_.find(bytes); }
  /// The ordinary token that a file spells so, or -1.
  int32_t spelled(std::string_view spelling) const;
  /// The control or user-defined token with this text, or -1.
  int32_t special(std::string_view text) const { return specials_.find(text); }
  /// The token for one byte, or -1.
  int32_t byte_token(uint8_t byte) const { return byte_tokens_[byte]; }
  /// The unknown token, or -1.
  int32_t unknown() const { return unknown_; }
  const Merger& merger() const { return merger_; }
  const std::vector<int32_t>& special_ids() const { return special_ids_; }
  bool is_special_type(int32_t id) const {
    return type(id) == TokenType::control || type(id) == TokenType::user_defined;
  }

 private:
  Status add_tokens(const TokenizerData& data);
  Status index_tokens();
  Status add_merges(const TokenizerData& data);

  std::string arena_;              // all token bytes, joined
  std::vector<uint32_t> offsets_;  // size() + 1
  std::vector<TokenType> types_;
  std::vector<bool> literal_;  // ordinary, but spelled outside the byte alphabet: decodes, never comes out of text
  TextIndex words_, literals_, specials_;
  std::vector<int32_t> special_ids_;
  std::array<int32_t, 256> byte_tokens_{};
  int32_t unknown_ = -1;
  Merger merger_;
};

}  // namespace turbo::text
