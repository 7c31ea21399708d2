// Cuts a template into text and tag tokens, applying Jinja's white-space rules (trim_blocks and lstrip_blocks on).
// Pure; throws TemplateError on malformed input.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace turbo::text::jinja {

enum class TokenType : uint8_t {
  data,             ///< text between tags
  expression_begin, expression_end,
  block_begin, block_end,
  name, string, integer, real, op, end,
};

struct Token {
  TokenType type;
  int line;
  std::string text;        ///< data, name, decoded string, or operator spelling
  int64_t integer = 0;
  double real = 0;

  bool is_op(std::string_view spelling) const { return type == TokenType::op && text == spelling; }
  bool is_name(std::string_view spelling) const { return type == TokenType::name && text == spelling; }
};

/// All tokens of the template, ending in one of type `end`.
std::vector<Token> tokenize(std::string_view source);

/// "'endif'", "end of block", ... for messages.
std::string describe(const Token& token);

}  // namespace turbo::text::jinja
