#include "text/bpe/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "text/utf8.h"

namespace turbo::text {
namespace {

// Below U+0300 every code point is its own NFC and nothing combines.
bool may_change(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) >= 0xCC; });
}

int combining_class(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

void append_decomposed(std::vector<utf8proc_int32_t>& out, char32_t code_point) {
  constexpr size_t longest_decomposition = 32;  // four in practice
  utf8proc_int32_t parts[longest_decomposition];
  int boundary_class = 0;
  const utf8proc_ssize_t n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code_point), parts,
                                                     longest_decomposition, UTF8PROC_DECOMPOSE, &boundary_class);
  if (n < 0 || n > static_cast<utf8proc_ssize_t>(longest_decomposition))
    out.push_back(static_cast<utf8proc_int32_t>(code_point));
  else
    out.insert(out.end(), parts, parts + n);
}

// Canonical ordering. The library's own is quadratic in the length of a run of marks, so it is done here.
void order_marks(std::vector<utf8proc_int32_t>& points) {
  for (auto at = points.begin(); at != points.end();) {
    if (combining_class(*at) == 0) {
      ++at;
      continue;
    }
    const auto end = std::find_if(at, points.end(), [](utf8proc_int32_t c) { return combining_class(c) == 0; });
    std::stable_sort(at, end,
                     [](utf8proc_int32_t a, utf8proc_int32_t b) { return combining_class(a) < combining_class(b); });
    at = end;
  }
}

void flush(std::string& out, std::vector<utf8proc_int32_t>& points) {
  if (points.empty()) return;
  order_marks(points);
  const utf8proc_ssize_t n =
      utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  if (n >= 0) points.resize(static_cast<size_t>(n));
  for (const utf8proc_int32_t c : points) append_utf8(out, static_cast<char32_t>(c));
  points.clear();
}

}  // namespace

std::string to_nfc(std::string_view text) {
  if (!may_change(text)) return std::string(text);
  std::string out;
  out.reserve(text.size());
  std::vector<utf8proc_int32_t> points;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    if (step.valid) {
      append_decomposed(points, step.code_point);
    } else {
      flush(out, points);
      out.append(text, at, step.length);
    }
    at += step.length;
  }
  flush(out, points);
  return out;
}

}  // namespace turbo::text
