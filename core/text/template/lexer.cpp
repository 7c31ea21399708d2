#include "text/template/lexer.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "text/template/utf8.h"
#include "text/template/value.h"

namespace turbo::text::jinja {

namespace {

// Line ends become \n and one trailing newline goes, as Jinja does before looking at anything.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source)), text_(source_) {}

  std::vector<Token> run() {
    while (pos_ < text_.size()) lex_data();
    add(TokenType::end);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::string message) const {
    throw TemplateError{Code::invalid_argument, std::move(message), line_};
  }

  Token& add(TokenType type, std::string text = {}) {
    tokens_.push_back({type, line_, std::move(text)});
    return tokens_.back();
  }

  bool at(std::string_view what) const { return text_.substr(pos_, what.size()) == what; }
  char peek(size_t ahead = 0) const { return pos_ + ahead < text_.size() ? text_[pos_ + ahead] : '\0'; }

  void advance(size_t bytes) {
    bytes = std::min(bytes, text_.size() - pos_);
    line_ += static_cast<int>(std::count(text_.begin() + pos_, text_.begin() + pos_ + bytes, '\n'));
    pos_ += bytes;
  }
  void skip_space() {
    while (pos_ < text_.size()) {
      CodePoint cp = decode_at(text_, pos_);
      if (!is_space(cp.value)) return;
      advance(cp.bytes);
    }
  }

  // Text up to a tag, less what the tag's sign or lstrip_blocks takes away.
  void add_data(std::string_view data, char sign, bool lstrip) {
    if (sign == '-') {
      data = strip(data, nullptr, false, true);
    } else if (sign != '+' && lstrip) {
      size_t line_start = data.rfind('\n') + 1;   // npos + 1 is 0
      if ((line_start > 0 || line_starting_) && strip(data.substr(line_start), nullptr, true, false).empty()) {
        data = data.substr(0, line_start);
      }
    }
    if (!data.empty()) add(TokenType::data, std::string(data));
  }

  size_t find_tag() const {
    for (size_t at = pos_; (at = text_.find('{', at)) != std::string_view::npos; ++at) {
      char next = at + 1 < text_.size() ? text_[at + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return text_.size();
  }

  void lex_data() {
    size_t tag = find_tag();
    std::string_view data = text_.substr(pos_, tag - pos_);
    if (tag == text_.size()) {
      add_data(data, '+', false);
      advance(data.size());
      return;
    }
    char kind = text_[tag + 1];
    char sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
    bool has_sign = sign == '-' || sign == '+';
    add_data(data, has_sign ? sign : '\0', kind != '{');
    advance(data.size());
    size_t tag_line = static_cast<size_t>(line_);
    advance(has_sign ? 3 : 2);
    line_starting_ = false;
    if (kind == '#') {
      lex_comment(static_cast<int>(tag_line));
    } else if (kind == '%' && try_raw()) {
      return;
    } else {
      add(kind == '{' ? TokenType::expression_begin : TokenType::block_begin);
      lex_tag(kind == '{');
    }
  }

  // After "%}" or "#}": one newline goes with the tag unless its sign says otherwise.
  void close_tag(char sign, bool trim_newline) {
    advance(sign ? 3 : 2);
    size_t start = pos_;
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && trim_newline && peek() == '\n') {
      advance(1);
    }
    line_starting_ = pos_ > start && text_[pos_ - 1] == '\n';
  }

  void lex_comment(int start_line) {
    size_t end = text_.find("#}", pos_);
    if (end == std::string_view::npos) {
      line_ = start_line;
      fail("comment is never closed");
    }
    char sign = end > pos_ && (text_[end - 1] == '-' || text_[end - 1] == '+') ? text_[end - 1] : '\0';
    advance(end - pos_ - (sign ? 1 : 0));
    close_tag(sign, true);
  }

  // "{% raw %}" has been opened up to its name: take everything to "{% endraw %}" as text.
  bool try_raw() {
    size_t saved_pos = pos_;
    int saved_line = line_;
    skip_space();
    if (at("raw")) {
      advance(3);
      skip_space();
      if (at("%}") || at("-%}")) {
        close_tag(peek() == '-' ? '-' : '\0', false);
        lex_raw_body(saved_line);
        return true;
      }
    }
    pos_ = saved_pos;
    line_ = saved_line;
    return false;
  }

  void lex_raw_body(int start_line) {
    size_t body = pos_;
    for (size_t open = body; (open = text_.find("{%", open)) != std::string_view::npos; open += 2) {
      size_t name = open + 2;
      char sign = name < text_.size() && (text_[name] == '-' || text_[name] == '+') ? text_[name] : '\0';
      if (sign) ++name;
      std::string_view rest = strip(text_.substr(name, std::min<size_t>(text_.size() - name, 4096)), nullptr, true, false);
      if (rest.substr(0, 6) != "endraw") continue;
      std::string_view tail = strip(rest.substr(6), nullptr, true, false);
      bool signed_end = tail.substr(0, 3) == "-%}" || tail.substr(0, 3) == "+%}";
      if (!signed_end && tail.substr(0, 2) != "%}") continue;
      add_data(text_.substr(body, open - body), sign, true);
      advance(static_cast<size_t>(tail.data() - text_.data()) - pos_);
      close_tag(signed_end ? peek() : '\0', true);
      return;
    }
    line_ = start_line;
    fail("raw block is never closed");
  }

  bool try_close(bool expression) {
    std::string_view mark = expression ? "}}" : "%}";
    char sign = peek();
    bool is_signed = (sign == '-' || (sign == '+' && !expression)) && text_.substr(pos_ + 1, 2) == mark;
    if (!is_signed && !at(mark)) return false;
    add(expression ? TokenType::expression_end : TokenType::block_end);
    close_tag(is_signed ? sign : '\0', !expression);
    return true;
  }

  void lex_tag(bool expression) {
    int start_line = line_;
    std::string brackets;   // open ones: "}}" inside a dict literal does not end the tag
    while (true) {
      skip_space();
      if (pos_ >= text_.size()) {
        line_ = start_line;
        fail(expression ? "expression is never closed" : "block tag is never closed");
      }
      if (brackets.empty() && try_close(expression)) return;
      lex_token(brackets);
    }
  }

  void lex_token(std::string& brackets) {
    char c = peek();
    CodePoint cp = decode_at(text_, pos_);
    if (is_ascii_digit(c)) return lex_number();
    if (c == '\'' || c == '"') return lex_string(c);
    if (is_word(cp.value) && (cp.bytes > 1 || cp.value < 0x80)) return lex_name();
    lex_operator(brackets);
  }

  void lex_name() {
    size_t start = pos_;
    size_t end = pos_;
    while (end < text_.size()) {
      CodePoint cp = decode_at(text_, end);
      if (!is_word(cp.value)) break;
      end += cp.bytes;
    }
    add(TokenType::name, std::string(text_.substr(start, end - start)));
    advance(end - start);
  }

  // Digits of `base` with single underscores between them, from `at`; returns the end.
  size_t scan_digits(size_t at, int base) const {
    auto digit = [&](size_t i) {
      char c = i < text_.size() ? text_[i] : '\0';
      int v = is_ascii_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : 99;
      return v < base;
    };
    while (digit(at) || (at < text_.size() && text_[at] == '_' && digit(at + 1))) ++at;
    return at;
  }

  void lex_number() {
    char marker = static_cast<char>(peek(1) | 0x20);
    int base = peek() != '0' ? 10 : marker == 'x' ? 16 : marker == 'o' ? 8 : marker == 'b' ? 2 : 10;
    size_t digits = base == 10 ? pos_ : pos_ + 2;
    size_t end = scan_digits(digits, base);
    bool real = false;
    if (base == 10) {
      bool after_dot = pos_ > 0 && text_[pos_ - 1] == '.';   // "a.0.1" holds two integers
      if (!after_dot && end < text_.size() && text_[end] == '.' && end + 1 < text_.size() && is_ascii_digit(text_[end + 1])) {
        real = true;
        end = scan_digits(end + 1, 10);
      }
      if (!after_dot && end < text_.size() && (text_[end] | 0x20) == 'e') {
        size_t exponent = end + 1;
        if (exponent < text_.size() && (text_[exponent] == '+' || text_[exponent] == '-')) ++exponent;
        if (exponent < text_.size() && is_ascii_digit(text_[exponent])) {
          real = true;
          end = scan_digits(exponent, 10);
        }
      }
    }
    std::string spelling(text_.substr(digits, end - digits));
    std::erase(spelling, '_');
    Token& token = add(real ? TokenType::real : TokenType::integer, spelling);
    if (real) {
      token.real = std::strtod(spelling.c_str(), nullptr);
    } else {
      auto [stop, error] = std::from_chars(spelling.data(), spelling.data() + spelling.size(), token.integer, base);
      if (error != std::errc{} || stop != spelling.data() + spelling.size()) fail("number '" + spelling + "' does not fit 64 bits");
    }
    advance(end - pos_);
  }

  void lex_string(char quote) {
    size_t end = pos_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) fail("string is never closed");
    std::string_view body = text_.substr(pos_ + 1, end - pos_ - 1);
    add(TokenType::string, unescape(body));
    advance(end + 1 - pos_);
  }

  std::string unescape(std::string_view body) const {
    std::string out;
    out.reserve(body.size());
    for (size_t i = 0; i < body.size();) {
      if (body[i] != '\\' || i + 1 >= body.size()) {
        out.push_back(body[i++]);
      } else {
        i = unescape_one(body, i, out);
      }
    }
    return out;
  }

  // Decodes the escape at `i` (a backslash) and returns where it ends; unknown escapes stay as written.
  size_t unescape_one(std::string_view body, size_t i, std::string& out) const {
    static constexpr std::string_view kLetters = "nrtabfv\\'\"", kValues = "\n\r\t\a\b\f\v\\'\"";
    char c = body[i + 1];
    if (size_t at = kLetters.find(c); at != std::string_view::npos) {
      out.push_back(kValues[at]);
      return i + 2;
    }
    if (c == '\n') return i + 2;
    if (c >= '0' && c <= '7') {
      uint32_t value = 0;
      size_t end = i + 1;
      while (end < body.size() && end < i + 4 && body[end] >= '0' && body[end] <= '7') value = value * 8 + (body[end++] - '0');
      append_utf8(out, value);
      return end;
    }
    size_t n_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (n_digits == 0) {
      out.push_back('\\');
      return i + 1;
    }
    uint32_t value = hex(body, i + 2, n_digits);
    size_t end = i + 2 + n_digits;
    if (value >= 0xD800 && value < 0xDC00 && body.substr(end, 2) == "\\u") {
      uint32_t low = hex(body, end + 2, 4);
      if (low >= 0xDC00 && low < 0xE000) {
        value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
        end += 6;
      }
    }
    append_utf8(out, value);
    return end;
  }

  uint32_t hex(std::string_view body, size_t at, size_t n_digits) const {
    uint32_t value = 0;
    if (at + n_digits > body.size()) fail("string escape is cut short");
    auto [stop, error] = std::from_chars(body.data() + at, body.data() + at + n_digits, value, 16);
    if (error != std::errc{} || stop != body.data() + at + n_digits) fail("string escape needs hexadecimal digits");
    return value;
  }

  void lex_operator(std::string& brackets) {
    static constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    for (std::string_view op : kTwo) {
      if (!at(op)) continue;
      add(TokenType::op, std::string(op));
      advance(2);
      return;
    }
    char c = peek();
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos || c == '\0') {
      fail("unexpected character '" + std::string(text_.substr(pos_, decode_at(text_, pos_).bytes)) + "'");
    }
    if (c == '(' || c == '[' || c == '{') brackets.push_back(c);
    if (c == ')' || c == ']' || c == '}') {
      char open = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (brackets.empty() || brackets.back() != open) fail(std::string("unexpected '") + c + "'");
      brackets.pop_back();
    }
    add(TokenType::op, std::string(1, c));
    advance(1);
  }

  std::string source_;
  std::string_view text_;
  size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;   ///< whether the last tag consumed its line's end
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

std::string describe(const Token& token) {
  switch (token.type) {
    case TokenType::data: return "text";
    case TokenType::expression_begin: return "'{{'";
    case TokenType::expression_end: return "end of expression";
    case TokenType::block_begin: return "'{%'";
    case TokenType::block_end: return "end of block tag";
    case TokenType::string: return "a string";
    case TokenType::end: return "end of template";
    default: return "'" + token.text.substr(0, 60) + "'";
  }
}

}  // namespace turbo::text::jinja
