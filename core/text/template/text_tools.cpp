#include "text/template/text_tools.h"

#include <algorithm>

#include "text/template/utf8.h"

namespace turbo::text::jinja {

namespace {

std::string replace_between(Heap& heap, std::string_view text, std::string_view by, int64_t count) {
  std::string out;
  int64_t left = count < 0 ? INT64_MAX : count;
  for (size_t pos = 0;;) {
    if (left-- > 0) {
      heap.step();
      heap.reserve(out.size() + by.size());
      out.append(by);
    }
    if (pos >= text.size()) return out;
    size_t bytes = decode_at(text, pos).bytes;
    out.append(text.substr(pos, bytes));
    pos += bytes;
    left = std::max<int64_t>(left, 0);
  }
}

bool is_line_end(uint32_t c) {
  return c == '\n' || c == '\r' || c == 0x0B || c == 0x0C || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

std::vector<std::string_view> split_on_space(Heap& heap, std::string_view text, int64_t max_splits, bool from_right) {
  std::vector<std::string_view> parts;
  std::string_view rest = strip(text, nullptr, !from_right, from_right);
  while (!rest.empty()) {
    heap.step();
    if (max_splits-- == 0) {
      parts.push_back(rest);   // as it is, white space at its far end included
      break;
    }
    // The next word, taken from whichever side is being split.
    size_t word = 0;
    if (from_right) {
      word = rest.size();
      while (word > 0 && strip(rest.substr(0, word), nullptr, false, true).size() == word) {
        --word;
        while (word > 0 && (static_cast<unsigned char>(rest[word]) & 0xC0) == 0x80) --word;
      }
      parts.push_back(rest.substr(word));
      rest = strip(rest.substr(0, word), nullptr, false, true);
    } else {
      while (word < rest.size()) {
        CodePoint cp = decode_at(rest, word);
        if (is_space(cp.value)) break;
        word += cp.bytes;
      }
      parts.push_back(rest.substr(0, word));
      rest = strip(rest.substr(word), nullptr, true, false);
    }
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace

size_t rfind_text(std::string_view haystack, std::string_view needle) {
  std::string mirrored(haystack.rbegin(), haystack.rend()), mirrored_needle(needle.rbegin(), needle.rend());
  size_t hit = find_text(mirrored, mirrored_needle);
  return hit == std::string_view::npos ? hit : haystack.size() - hit - needle.size();
}

std::string replace_text(Heap& heap, std::string_view text, std::string_view old, std::string_view by, int64_t count) {
  heap.work(text.size());
  if (old.empty()) return replace_between(heap, text, by, count);
  std::string out;
  size_t pos = 0;
  while (count != 0) {
    size_t hit = find_text(text, old, pos);
    if (hit == std::string_view::npos) break;
    heap.step();
    heap.reserve(out.size() + (hit - pos) + by.size());
    out.append(text.substr(pos, hit - pos)).append(by);
    pos = hit + old.size();
    if (count > 0) --count;
  }
  return out.append(text.substr(pos));
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t pos = 0; pos < text.size();) {
    CodePoint cp = decode_at(text, pos);
    size_t end = pos + cp.bytes;
    if (is_line_end(cp.value)) {
      if (cp.value == '\r' && end < text.size() && text[end] == '\n') ++end;
      lines.push_back(text.substr(start, (keep_ends ? end : pos) - start));
      start = end;
    }
    pos = end;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

std::vector<std::string_view> split_text(Heap& heap, std::string_view text, const std::string_view* separator, int64_t max_splits,
                                         bool from_right) {
  heap.work(text.size());
  if (!separator) return split_on_space(heap, text, max_splits, from_right);
  std::vector<std::string_view> parts;
  if (from_right && max_splits >= 0) {
    // Searching the mirrored text keeps the time linear.
    std::string mirrored(text.rbegin(), text.rend()), needle(separator->rbegin(), separator->rend());
    size_t end = text.size();
    while (max_splits-- > 0) {
      heap.step();
      size_t hit = find_text(mirrored, needle, text.size() - end);
      if (hit == std::string_view::npos) break;
      size_t start = text.size() - hit - needle.size();
      parts.push_back(text.substr(start + needle.size(), end - start - needle.size()));
      end = start;
    }
    parts.push_back(text.substr(0, end));
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  size_t pos = 0;
  while (max_splits-- != 0) {
    size_t hit = find_text(text, *separator, pos);
    if (hit == std::string_view::npos) break;
    heap.step();
    parts.push_back(text.substr(pos, hit - pos));
    pos = hit + separator->size();
  }
  parts.push_back(text.substr(pos));
  return parts;
}

std::string justify(Heap& heap, std::string_view text, int64_t width, std::string_view fill, char align) {
  int64_t missing = width - static_cast<int64_t>(count_code_points(text));
  if (missing <= 0) return std::string(text);
  uint64_t total = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(missing), fill.size(), &total)) total = UINT64_MAX / 2;
  heap.reserve(total + text.size());
  heap.work(total);
  int64_t left = align == '>' ? missing : align == '<' ? 0 : missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out.append(fill);
  out.append(text);
  for (int64_t i = left; i < missing; ++i) out.append(fill);
  return out;
}

}  // namespace turbo::text::jinja
