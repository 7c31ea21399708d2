// The scan that guards the YAML parser. It need not understand all of YAML: where it could be misled (block scalars) it
// refuses, and the tree builder applies the depth and node limits again, exactly.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "profile/search.h"
#include "profile/yaml_tree.h"

namespace turbo::profile {
namespace {

// Bytes of the UTF-8 character at the start of `text`; 0 when it is malformed, overlong, a surrogate or too large.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return 1;
  const size_t length = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  if (byte(0) < 0xC2 || byte(0) > 0xF4 || text.size() < length) return 0;
  uint32_t code = byte(0) & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3F);
  }
  if ((length == 3 && code < 0x800) || (length == 4 && (code < 0x10000 || code > 0x10FFFF))) return 0;
  return code >= 0xD800 && code <= 0xDFFF ? 0 : length;
}

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

class Prescan {
 public:
  Prescan(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  Status run() {
    while (pos_ < text_.size()) {
      if (at_line_start_) {
        TURBO_RETURN_IF_ERROR(start_line());
        if (at_line_start_) continue;  // a document marker used up its line
      }
      if (pos_ < text_.size()) TURBO_RETURN_IF_ERROR(step());
    }
    if (quote_ != 0) {
      line_ = quote_line_;
      column_ = quote_column_;
      return refuse(Code::invalid_argument,
                    fmt::format("expected a closing {} for the quote that starts here", quote_));
    }
    if (!any_content_)
      return Status(Code::invalid_argument, source_ + ":1:1: expected settings but the profile is empty",
                    "write at least `schema: 1`, or start from configs/default.yaml");
    return Status::ok();
  }

 private:
  char peek(size_t ahead) const { return pos_ + ahead < text_.size() ? text_[pos_ + ahead] : '\n'; }

  Status refuse(Code code, std::string_view why, std::string hint = {}) const {
    return Status(code, fmt::format("{}:{}:{}: {}", source_, line_, column_, why), std::move(hint));
  }
  Status too_deep() const {
    return refuse(Code::resource_exhausted, fmt::format("expected at most {} levels of nesting", max_yaml_depth),
                  "a profile needs three");
  }

  // Indentation, document markers, directives and block nesting; stops at the first other character.
  Status start_line() {
    at_line_start_ = false;
    if (quote_ == 0) expect_token_ = true;
    const size_t first = std::min(text_.find_first_not_of(' ', pos_), text_.size());
    const char next = first < text_.size() ? text_[first] : '\n';
    const bool blank = next == '\n' || next == '\r' || next == '#';
    if (quote_ != 0 || blank) return Status::ok();
    const size_t indent = first - pos_;
    if (indent == 0) {
      TURBO_RETURN_IF_ERROR(document_marker());
      if (at_line_start_) return Status::ok();  // the marker's line is used up
    }
    if (ended_) return two_documents();
    any_content_ = true;
    if (flow_depth_ > 0 || next == '\t') return Status::ok();
    while (!indents_.empty() && indents_.back() > indent) indents_.pop_back();
    if (indents_.empty() || indents_.back() < indent) indents_.push_back(indent);
    size_t depth = indents_.size();
    for (size_t i = first; i + 1 < text_.size() && (text_[i] == '-' || text_[i] == '?') && is_space(text_[i + 1]);
         ++i) {
      ++depth;
      while (i + 1 < text_.size() && text_[i + 1] == ' ') ++i;
    }
    return depth > max_yaml_depth ? too_deep() : Status::ok();
  }

  Status two_documents() const {
    return refuse(Code::invalid_argument, "expected one document but found a second",
                  "keep each profile in its own file");
  }

  Status document_marker() {
    if (peek(0) == '%')
      return refuse(Code::invalid_argument, "expected settings but found a YAML directive", "remove the line");
    const std::string_view word = text_.substr(pos_, 3);
    if ((word != "---" && word != "...") || !is_space(peek(3))) return Status::ok();
    if (word == "...") {
      ended_ = true;
    } else if (any_content_ || started_ || ended_) {
      return two_documents();
    } else {
      started_ = true;
    }
    indents_.clear();
    pos_ += 3;
    column_ += 3;
    while (pos_ < text_.size() && (text_[pos_] == ' ' || text_[pos_] == '\r')) advance(1);
    if (pos_ < text_.size() && text_[pos_] != '\n' && text_[pos_] != '#' && text_[pos_] != '\t')
      return refuse(Code::invalid_argument, "expected the line to end after the document marker");
    at_line_start_ = pos_ < text_.size() && text_[pos_] == '\n';
    if (at_line_start_) new_line();
    return Status::ok();
  }

  void advance(size_t bytes) {
    pos_ += bytes;
    ++column_;
  }
  void new_line() {
    ++pos_;
    ++line_;
    column_ = 1;
    at_line_start_ = true;
    comment_ = false;
  }

  // One character.
  Status step() {
    const char c = text_[pos_];
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      new_line();
      return Status::ok();
    }
    if (c == '\r' && peek(1) == '\n') {
      advance(1);
      return Status::ok();
    }
    if (c == '\t' && !comment_)
      return refuse(Code::invalid_argument, "expected spaces but found a tab", "indent and separate with spaces");
    if ((byte < 0x20 && c != '\t') || byte == 0x7F)
      return refuse(Code::invalid_argument, fmt::format("expected text but found the control byte 0x{:02x}", byte),
                    "save the profile as plain UTF-8 text");
    const size_t length = utf8_length(text_.substr(pos_));
    if (length == 0)
      return refuse(Code::invalid_argument, fmt::format("expected UTF-8 but found the byte 0x{:02x}", byte),
                    "save the profile as UTF-8");
    if (!comment_) TURBO_RETURN_IF_ERROR(structure(c));
    previous_ = c;
    advance(length);
    return Status::ok();
  }

  // Quotes, comments, flow nesting, and the indicators of refused features.
  Status structure(char c) {
    if (quote_ != 0) {
      if (quote_ == '"' && c == '\\') {
        if (static_cast<unsigned char>(peek(1)) >= 0x20 && static_cast<unsigned char>(peek(1)) < 0x7F) advance(1);
      } else if (c == quote_) {
        if (c == '\'' && peek(1) == '\'')
          advance(1);
        else
          quote_ = 0;
      }
      return Status::ok();
    }
    if (c == ' ') return Status::ok();
    if (c == '#' && (column_ == 1 || previous_ == ' ' || expect_token_)) {
      comment_ = true;
      return Status::ok();
    }
    const bool starts_token = expect_token_;
    expect_token_ = false;
    if (starts_token) TURBO_RETURN_IF_ERROR(refused_feature(c));
    if ((c == '"' || c == '\'') && starts_token) {
      quote_ = c;
      quote_line_ = line_;
      quote_column_ = column_;
    } else if ((c == '[' || c == '{') && (starts_token || flow_depth_ > 0)) {
      expect_token_ = true;
      if (++flow_depth_ + static_cast<int>(indents_.size()) > max_yaml_depth) return too_deep();
    } else if ((c == ']' || c == '}') && flow_depth_ > 0) {
      --flow_depth_;
    } else if (c == ',' && flow_depth_ > 0) {
      expect_token_ = true;
    } else if (c == ':' && (is_space(peek(1)) || (flow_depth_ > 0 && (previous_ == '"' || previous_ == '\'')))) {
      expect_token_ = true;
    } else if ((c == '-' || c == '?') && starts_token && is_space(peek(1))) {
      expect_token_ = true;
    }
    return Status::ok();
  }

  Status refused_feature(char c) const {
    const bool named = !is_space(peek(1));
    if (c == '&' && named)
      return refuse(Code::unsupported, "expected a value but found an anchor ('&')",
                    "profiles have no anchors; quote a value that starts with '&'");
    if (c == '*' && named)
      return refuse(Code::unsupported, "expected a value but found an alias ('*')",
                    "profiles have no aliases; quote a value that starts with '*'");
    if (c == '!')
      return refuse(Code::unsupported, "expected a value but found a tag ('!')",
                    "profiles have no tags; quote a value that starts with '!'");
    if ((c == '|' || c == '>') && flow_depth_ == 0)
      return refuse(Code::unsupported, "expected a value on one line but found block text",
                    "write the value in quotes on one line");
    return Status::ok();
  }

  std::string_view text_;
  const std::string& source_;
  size_t pos_ = 0;
  int line_ = 1, column_ = 1;
  bool at_line_start_ = true;
  bool any_content_ = false, started_ = false, ended_ = false;
  bool comment_ = false, expect_token_ = true;
  char quote_ = 0;
  int quote_line_ = 0, quote_column_ = 0;
  char previous_ = '\n';
  int flow_depth_ = 0;
  std::vector<size_t> indents_;  // of the open block levels
};

}  // namespace

Status prescan_yaml(std::string_view text, const std::string& source) {
  if (text.size() > max_profile_bytes)
    return Status(Code::resource_exhausted,
                  fmt::format("{}: expected at most {} bytes but found {}", source, max_profile_bytes, text.size()),
                  "a profile is a short text file; check that this is the right file");
  return Prescan(text, source).run();
}

}  // namespace turbo::profile
