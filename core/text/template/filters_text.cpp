// Filters that read one value as text.
#include <algorithm>

#include "text/template/builtins.h"
#include "text/template/format.h"
#include "text/template/operators.h"
#include "text/template/text_tools.h"
#include "text/template/utf8.h"

namespace turbo::text::jinja {

namespace {

std::string self_text(BuiltinCall& c) { return c.in.text_of(c.self); }

Value f_upper(BuiltinCall& c) { return c.heap.string(upper(self_text(c))); }
Value f_lower(BuiltinCall& c) { return c.heap.string(lower(self_text(c))); }
Value f_capitalize(BuiltinCall& c) { return c.heap.string(capitalize(self_text(c))); }
Value f_string(BuiltinCall& c) { return c.self.is_string() ? c.self : c.heap.string(self_text(c)); }

// Jinja's own title: words start after white space, '-' and opening brackets only.
Value f_title(BuiltinCall& c) {
  std::string text = self_text(c), out;
  bool word_start = true;
  for (size_t pos = 0; pos < text.size();) {
    CodePoint cp = decode_at(text, pos);
    std::string_view piece = std::string_view(text).substr(pos, cp.bytes);
    bool separator = is_space(cp.value) || (cp.value < 0x80 && std::string_view("-({[<").find(piece[0]) != std::string_view::npos);
    out += separator ? std::string(piece) : word_start ? upper(piece) : lower(piece);
    word_start = separator;
    pos += cp.bytes;
  }
  return c.heap.string(std::move(out));
}

Value f_trim(BuiltinCall& c) {
  std::string text = self_text(c);
  if (!c.has(0) || c.arg(0).is_none()) return c.heap.string(std::string(strip(text, nullptr, true, true)));
  std::string chars = c.text(0, "");
  c.heap.work(text.size() * std::max<size_t>(chars.size() / 16, 1));
  std::string_view view = chars;
  return c.heap.string(std::string(strip(text, &view, true, true)));
}

Value f_replace(BuiltinCall& c) {
  return c.heap.string(replace_text(c.heap, self_text(c), c.text(0, ""), c.text(1, ""), c.integer(2, -1)));
}

Value f_center(BuiltinCall& c) { return c.heap.string(justify(c.heap, self_text(c), c.integer(0, 80), " ", '^')); }

Value f_escape(BuiltinCall& c) {
  std::string out;
  for (char ch : self_text(c)) {
    switch (ch) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&#34;"; break;
      default: out.push_back(ch);
    }
  }
  return c.heap.string(std::move(out));
}

Value f_indent(BuiltinCall& c) {
  std::string text = self_text(c) + "\n";
  bool is_text = c.has(0) && c.arg(0).is_string();
  int64_t width = is_text ? 0 : c.integer(0, 4);
  std::string indention = is_text ? c.arg(0).text() : repeat_text(c.heap, " ", width).text();
  bool first = c.flag(1, false), blank = c.flag(2, false);
  std::string out;
  bool first_line = true;
  for (std::string_view line : split_lines(text, false)) {
    c.heap.step();
    c.heap.reserve(out.size() + indention.size() + line.size());
    if (!first_line) out.push_back('\n');
    if (first_line ? first : blank || !line.empty()) out += indention;
    first_line = false;
    out += line;
  }
  return c.heap.string(std::move(out));
}

Value f_truncate(BuiltinCall& c) {
  std::string text = self_text(c), end = c.text(2, "...");
  int64_t length = c.integer(0, 255), leeway = c.integer(3, 5);
  int64_t end_length = static_cast<int64_t>(count_code_points(end));
  if (length < end_length) c.heap.fail("expected length >= {}, got {}", end_length, length);
  if (leeway < 0) c.heap.fail("expected leeway >= 0, got {}", leeway);
  int64_t size = static_cast<int64_t>(count_code_points(text));
  if (size <= length || size - length <= leeway) return c.heap.string(std::move(text));
  std::string kept = text.substr(0, byte_offset(text, static_cast<size_t>(length - end_length)));
  if (!c.flag(1, false)) {
    if (size_t space = kept.rfind(' '); space != std::string::npos) kept.resize(space);
  }
  return c.heap.string(kept + end);
}

Value f_wordcount(BuiltinCall& c) {
  std::string text = self_text(c);
  int64_t count = 0;
  bool inside = false;
  for (size_t pos = 0; pos < text.size();) {
    CodePoint cp = decode_at(text, pos);
    bool word = is_word(cp.value);
    count += word && !inside;
    inside = word;
    pos += cp.bytes;
  }
  return Value::integer(count);
}

Value f_striptags(BuiltinCall& c) {
  std::string text = self_text(c), out;
  bool space = false;
  for (size_t pos = 0; pos < text.size();) {
    bool comment = text.compare(pos, 4, "<!--") == 0;
    size_t close = text[pos] != '<' ? std::string::npos : comment ? text.find("-->", pos) : text.find('>', pos);
    if (close != std::string::npos) {
      pos = close + (comment ? 3 : 1);
      continue;
    }
    if (text[pos] == '<') {
      // Never closed: the rest is text, so no later '<' need be looked at.
      for (; pos < text.size(); ++pos) out.push_back(text[pos]);
      break;
    }
    out.push_back(text[pos++]);
  }
  std::string joined;
  for (size_t pos = 0; pos < out.size();) {
    CodePoint cp = decode_at(out, pos);
    if (is_space(cp.value)) {
      space = !joined.empty();
    } else {
      if (space) joined.push_back(' ');
      space = false;
      joined.append(out, pos, cp.bytes);
    }
    pos += cp.bytes;
  }
  static constexpr std::pair<std::string_view, std::string_view> kEntities[] = {
      {"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&#34;", "\""}, {"&#39;", "'"}, {"&amp;", "&"}};
  for (auto& [entity, plain] : kEntities) joined = replace_text(c.heap, joined, entity, plain, -1);
  return c.heap.string(std::move(joined));
}

// A path keeps its slashes; in a query a space becomes '+'.
void quote_url(std::string& out, std::string_view text, bool is_query) {
  for (char ch : text) {
    bool safe = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') || (ch == '/' && !is_query) ||
                std::string_view("_.-~").find(ch) != std::string_view::npos;
    if (safe) {
      out.push_back(ch);
    } else if (ch == ' ' && is_query) {
      out.push_back('+');
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(ch));
    }
  }
}

Value f_urlencode(BuiltinCall& c) {
  std::string out;
  if (!c.self.is_mapping() && !c.self.is_sequence()) {
    quote_url(out, self_text(c), false);
    return c.heap.string(std::move(out));
  }
  std::vector<std::pair<Value, Value>> pairs;
  if (c.self.is_mapping()) {
    pairs = c.self.dict().entries;
  } else {
    for (const Value& item : c.self.items()) {
      std::vector<Value> pair = iterate(c.heap, item);
      if (pair.size() != 2) c.heap.fail("urlencode needs pairs");
      pairs.emplace_back(pair[0], pair[1]);
    }
  }
  for (auto& [key, value] : pairs) {
    if (!out.empty()) out.push_back('&');
    quote_url(out, c.in.text_of(key), true);
    out.push_back('=');
    quote_url(out, c.in.text_of(value), true);
    c.heap.reserve(out.size());
  }
  return c.heap.string(std::move(out));
}

Value f_format(BuiltinCall& c) {
  if (!c.raw.positional.empty() && !c.raw.named.empty()) {
    c.heap.fail("format takes positional or named arguments, not both");
  }
  return c.heap.string(format_percent(c.heap, self_text(c), c.raw));
}

constexpr Builtin kFilters[] = {
    {"upper", "", f_upper},
    {"lower", "", f_lower},
    {"capitalize", "", f_capitalize},
    {"title", "", f_title},
    {"string", "", f_string},
    {"safe", "", f_string},
    {"trim", "chars?", f_trim},
    {"replace", "old,new,count?", f_replace},
    {"center", "width?", f_center},
    {"escape", "", f_escape},
    {"e", "", f_escape},
    {"forceescape", "", f_escape},
    {"indent", "width?,first?,blank?", f_indent},
    {"truncate", "length?,killwords?,end?,leeway?", f_truncate},
    {"wordcount", "", f_wordcount},
    {"striptags", "", f_striptags},
    {"urlencode", "", f_urlencode},
    {"format", "*", f_format},
};

}  // namespace

std::span<const Builtin> text_filters() { return kFilters; }

}  // namespace turbo::text::jinja
