#include "token_map.h"

#include <turbo/plugin.hpp>

#include <algorithm>
#include <fstream>

namespace turbo::spec_standalone {
namespace {

constexpr std::streamoff kMostBytes = 64 << 20;
constexpr size_t kShown = 24;  // bytes of the file in a message
constexpr const char* kHint = "drafter.token_map is a text file of token ids, or a JSON list of them";

std::string load(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff bytes = file ? std::streamoff(file.tellg()) : -1;
  if (bytes < 0) throw Failure(TURBO_INVALID_ARGUMENT, "token map " + path + ": cannot be read", kHint);
  if (bytes > kMostBytes) throw Failure(TURBO_INVALID_ARGUMENT, "token map " + path + ": larger than 64 MiB", kHint);
  std::string text(static_cast<size_t>(bytes), '\0');
  file.seekg(0);
  if (!text.empty() && !file.read(text.data(), bytes)) throw Failure(TURBO_INVALID_ARGUMENT, "token map " + path + ": reading failed", kHint);
  return text;
}

/// Ids between blanks and commas; or, when the first thing is a bracket, a JSON list of them.
class Reader {
 public:
  Reader(const std::string& path, const std::string& text, uint32_t vocab) : path_(path), text_(text), vocab_(vocab) {}

  std::vector<int32_t> run() {
    skip(" \t\r\n");
    if (at_ < text_.size() && text_[at_] == '[') list();
    else plain();
    return std::move(ids_);
  }

 private:
  void plain() {
    for (skip(" \t\r\n,"); at_ < text_.size(); skip(" \t\r\n,")) id();
  }
  void list() {
    ++at_;
    skip(" \t\r\n");
    const bool empty = at_ < text_.size() && text_[at_] == ']';
    while (!empty) {
      id();
      skip(" \t\r\n");
      if (at_ < text_.size() && text_[at_] == ']') break;
      if (at_ == text_.size() || text_[at_] != ',') refuse("a comma or the list's end, ]");
      ++at_;
      skip(" \t\r\n");
    }
    ++at_;
    skip(" \t\r\n");
    if (at_ < text_.size()) refuse("nothing behind the list");
  }
  void id() {
    const size_t end = std::min(text_.find_first_of(kEnds, at_), text_.size());
    uint64_t id = 0;
    bool is_id = end > at_;
    for (size_t i = at_; i < end && is_id; ++i) {
      id = id * 10 + static_cast<uint64_t>(text_[i] - '0');
      is_id = text_[i] >= '0' && text_[i] <= '9' && id < vocab_;
    }
    if (!is_id) refuse("a token id below " + std::to_string(vocab_));
    ids_.push_back(static_cast<int32_t>(id));
    at_ = end;
  }
  // What separates ids, and lines that are comments.
  void skip(const char* what) {
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '#' && (at_ == 0 || text_[at_ - 1] == '\n')) {
        at_ = std::min(text_.find('\n', at_), text_.size());
        if (at_ == text_.size()) return;
      }
      if (std::char_traits<char>::find(what, std::char_traits<char>::length(what), text_[at_]) == nullptr) return;
    }
  }
  [[noreturn]] void refuse(const std::string& expected) const {
    const auto line = std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n') + 1;
    const size_t begin = text_.rfind('\n', at_ == 0 ? std::string::npos : at_ - 1);
    const size_t column = at_ - (begin == std::string::npos || at_ == 0 ? 0 : begin + 1) + 1;
    throw Failure(TURBO_INVALID_ARGUMENT,
                  "token map " + path_ + ", line " + std::to_string(line) + ", column " + std::to_string(column) + ": expected " + expected + " but found " + found(), kHint);
  }
  // Printable and bounded: the file may hold anything.
  std::string found() const {
    if (at_ == text_.size()) return "the end of the file";
    const size_t end = std::max(std::min(text_.find_first_of(kEnds, at_), text_.size()), at_ + 1);
    std::string shown = "'";
    for (size_t i = at_; i < std::min(end, at_ + kShown); ++i) {
      const auto byte = static_cast<unsigned char>(text_[i]);
      constexpr const char* digits = "0123456789abcdef";
      if (byte >= 0x20 && byte < 0x7f) shown += text_[i];
      else shown += std::string("\\x") + digits[byte >> 4] + digits[byte & 15];
    }
    return shown + (end > at_ + kShown ? "...'" : "'");
  }

  static constexpr const char* kEnds = " \t\r\n,[]";
  const std::string& path_;
  const std::string& text_;
  const uint32_t vocab_;
  size_t at_ = 0;
  std::vector<int32_t> ids_;
};

}  // namespace

std::vector<int32_t> read_token_map(const std::string& path, uint32_t vocab) {
  const std::string text = load(path);
  std::vector<int32_t> ids = Reader(path, text, vocab).run();
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  if (ids.empty()) throw Failure(TURBO_INVALID_ARGUMENT, "token map " + path + ": holds no token id", kHint);
  return ids;
}

}  // namespace turbo::spec_standalone
