// Methods of str.
#include <algorithm>

#include "text/template/builtins.h"
#include "text/template/format.h"
#include "text/template/text_tools.h"
#include "text/template/utf8.h"

namespace turbo::text::jinja {

namespace {

const std::string& self(const BuiltinCall& c) { return c.self.text(); }

const std::string& string_arg(BuiltinCall& c, size_t i) {
  if (!c.arg(i).is_string()) c.heap.fail("a string is required, not '{}'", type_name(c.arg(i)));
  return c.arg(i).text();
}

Value list_of(BuiltinCall& c, const std::vector<std::string_view>& parts) {
  std::vector<Value> out;
  out.reserve(parts.size());
  for (std::string_view part : parts) out.push_back(c.heap.string(std::string(part)));
  return c.heap.list(std::move(out));
}

Value split_side(BuiltinCall& c, bool from_right) {
  int64_t max_splits = c.integer(1, -1);
  if (!c.has(0) || c.arg(0).is_none()) return list_of(c, split_text(c.heap, self(c), nullptr, max_splits, from_right));
  std::string_view separator = string_arg(c, 0);
  if (separator.empty()) c.heap.fail("empty separator");
  return list_of(c, split_text(c.heap, self(c), &separator, max_splits, from_right));
}
Value m_split(BuiltinCall& c) { return split_side(c, false); }
Value m_rsplit(BuiltinCall& c) { return split_side(c, true); }
Value m_splitlines(BuiltinCall& c) { return list_of(c, split_lines(self(c), c.flag(0, false))); }

Value m_partition(BuiltinCall& c) {
  const std::string &text = self(c), &separator = string_arg(c, 0);
  if (separator.empty()) c.heap.fail("empty separator");
  size_t at = find_text(text, separator);
  if (at == std::string::npos) return c.heap.tuple({c.self, c.heap.string(""), c.heap.string("")});
  return c.heap.tuple({c.heap.string(text.substr(0, at)), c.arg(0), c.heap.string(text.substr(at + separator.size()))});
}

Value m_rpartition(BuiltinCall& c) {
  const std::string &text = self(c), &separator = string_arg(c, 0);
  if (separator.empty()) c.heap.fail("empty separator");
  size_t at = rfind_text(text, separator);
  if (at == std::string::npos) return c.heap.tuple({c.heap.string(""), c.heap.string(""), c.self});
  return c.heap.tuple({c.heap.string(text.substr(0, at)), c.arg(0), c.heap.string(text.substr(at + separator.size()))});
}

Value strip_sides(BuiltinCall& c, bool left, bool right) {
  if (!c.has(0) || c.arg(0).is_none()) return c.heap.string(std::string(strip(self(c), nullptr, left, right)));
  std::string_view chars = string_arg(c, 0);
  c.heap.work(self(c).size() * std::max<size_t>(chars.size() / 16, 1));
  return c.heap.string(std::string(strip(self(c), &chars, left, right)));
}
Value m_strip(BuiltinCall& c) { return strip_sides(c, true, true); }
Value m_lstrip(BuiltinCall& c) { return strip_sides(c, true, false); }
Value m_rstrip(BuiltinCall& c) { return strip_sides(c, false, true); }

/// text[start:end] as byte offsets, for methods that take such a range in arguments `first` and `first + 1`.
struct Window {
  size_t begin, end;
  bool valid;   ///< false when start lies past end: then nothing is found, not even ""
};

Window window(BuiltinCall& c, size_t first) {
  int64_t size = static_cast<int64_t>(c.self.box().n_code_points);
  auto place = [&](size_t i, int64_t fallback) {
    int64_t at = c.integer(i, fallback);
    return at < 0 ? std::max<int64_t>(at + size, 0) : at;
  };
  int64_t start = place(first, 0), stop = std::min(place(first + 1, size), size);
  if (start > stop) return {0, 0, false};
  return {byte_offset(self(c), static_cast<size_t>(start)), byte_offset(self(c), static_cast<size_t>(stop)), true};
}

Value affix(BuiltinCall& c, bool at_start) {
  Window w = window(c, 1);
  std::string_view text = std::string_view(self(c)).substr(w.begin, w.end - w.begin);
  auto matches = [&](const Value& v) {
    if (!v.is_string()) c.heap.fail("a string or a tuple of strings is required, not '{}'", type_name(v));
    return w.valid && (at_start ? text.starts_with(v.text()) : text.ends_with(v.text()));
  };
  if (!c.arg(0).is(Kind::tuple)) return Value::boolean(matches(c.arg(0)));
  bool any = false;
  for (const Value& candidate : c.arg(0).items()) {
    c.heap.step();
    any = any || matches(candidate);
  }
  return Value::boolean(any);
}
Value m_startswith(BuiltinCall& c) { return affix(c, true); }
Value m_endswith(BuiltinCall& c) { return affix(c, false); }

int64_t find_in_window(BuiltinCall& c, bool last) {
  const std::string& needle = string_arg(c, 0);
  Window w = window(c, 1);
  c.heap.work(self(c).size());
  if (!w.valid) return -1;
  std::string_view text = std::string_view(self(c)).substr(0, w.end);
  size_t hit;
  if (last) {
    hit = rfind_text(text.substr(w.begin), needle);
    if (hit != std::string::npos) hit += w.begin;
  } else {
    hit = find_text(text, needle, w.begin);
  }
  if (hit == std::string::npos) return -1;
  return static_cast<int64_t>(count_code_points(text.substr(0, hit)));
}
Value m_find(BuiltinCall& c) { return Value::integer(find_in_window(c, false)); }
Value m_rfind(BuiltinCall& c) { return Value::integer(find_in_window(c, true)); }
Value must_find(BuiltinCall& c, bool last) {
  int64_t at = find_in_window(c, last);
  if (at < 0) c.heap.fail("substring not found");
  return Value::integer(at);
}
Value m_index(BuiltinCall& c) { return must_find(c, false); }
Value m_rindex(BuiltinCall& c) { return must_find(c, true); }

Value m_count(BuiltinCall& c) {
  const std::string& needle = string_arg(c, 0);
  Window w = window(c, 1);
  c.heap.work(self(c).size());
  if (!w.valid) return Value::integer(0);
  std::string_view text = std::string_view(self(c)).substr(w.begin, w.end - w.begin);
  if (needle.empty()) return Value::integer(static_cast<int64_t>(count_code_points(text)) + 1);
  int64_t count = 0;
  for (size_t at = 0; (at = find_text(text, needle, at)) != std::string_view::npos; at += needle.size()) ++count;
  return Value::integer(count);
}

Value m_replace(BuiltinCall& c) {
  return c.heap.string(replace_text(c.heap, self(c), string_arg(c, 0), string_arg(c, 1), c.integer(2, -1)));
}

Value m_upper(BuiltinCall& c) { return c.heap.string(upper(self(c))); }
Value m_lower(BuiltinCall& c) { return c.heap.string(lower(self(c))); }
Value m_title(BuiltinCall& c) { return c.heap.string(title(self(c))); }
Value m_capitalize(BuiltinCall& c) { return c.heap.string(capitalize(self(c))); }

Value m_swapcase(BuiltinCall& c) {
  std::string out;
  for (size_t pos = 0; pos < self(c).size();) {
    CodePoint cp = decode_at(self(c), pos);
    std::string_view piece = std::string_view(self(c)).substr(pos, cp.bytes);
    out += is_upper(cp.value) ? lower(piece) : upper(piece);
    pos += cp.bytes;
  }
  return c.heap.string(std::move(out));
}

Value m_join(BuiltinCall& c) {
  std::string out;
  bool first = true;
  for (const Value& item : iterate(c.heap, c.arg(0))) {
    if (!item.is_string()) c.heap.fail("join: expected str instances, '{}' found", type_name(item));
    c.heap.reserve(out.size() + self(c).size() + item.text().size());
    if (!first) out += self(c);
    first = false;
    out += item.text();
  }
  return c.heap.string(std::move(out));
}

Value m_format(BuiltinCall& c) { return c.heap.string(format_braces(c.in, self(c), c.raw)); }

template <typename Predicate>
Value all(BuiltinCall& c, Predicate holds) {
  const std::string& text = self(c);
  c.heap.work(text.size());
  for (size_t pos = 0; pos < text.size();) {
    CodePoint cp = decode_at(text, pos);
    if (!holds(cp.value)) return Value::boolean(false);
    pos += cp.bytes;
  }
  return Value::boolean(!text.empty());
}
Value m_isdigit(BuiltinCall& c) { return all(c, is_digit); }
Value m_isnumeric(BuiltinCall& c) { return all(c, is_numeric); }
Value m_isalpha(BuiltinCall& c) { return all(c, is_alpha); }
Value m_isalnum(BuiltinCall& c) {
  return all(c, [](uint32_t ch) { return is_alpha(ch) || is_numeric(ch) || is_digit(ch); });
}
Value m_isspace(BuiltinCall& c) { return all(c, is_space); }
Value m_isascii(BuiltinCall& c) { return Value::boolean(c.self.box().is_ascii()); }
Value m_isupper(BuiltinCall& c) {
  Arguments none;
  return Value::boolean(c.in.apply_test("upper", c.self, none));
}
Value m_islower(BuiltinCall& c) {
  Arguments none;
  return Value::boolean(c.in.apply_test("lower", c.self, none));
}

Value m_removeprefix(BuiltinCall& c) {
  const std::string &text = self(c), &prefix = string_arg(c, 0);
  return text.starts_with(prefix) ? c.heap.string(text.substr(prefix.size())) : c.self;
}
Value m_removesuffix(BuiltinCall& c) {
  const std::string &text = self(c), &suffix = string_arg(c, 0);
  return text.ends_with(suffix) ? c.heap.string(text.substr(0, text.size() - suffix.size())) : c.self;
}

Value m_zfill(BuiltinCall& c) {
  const std::string& text = self(c);
  size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+');
  int64_t width = c.integer(0, 0);
  if (width <= static_cast<int64_t>(sign)) return c.self;
  std::string digits = justify(c.heap, text.substr(sign), width - static_cast<int64_t>(sign), "0", '>');
  return c.heap.string(text.substr(0, sign) + digits);
}

Value justified(BuiltinCall& c, char align) {
  std::string fill = c.has(1) ? string_arg(c, 1) : " ";
  if (count_code_points(fill) != 1) c.heap.fail("the fill character must be exactly one character long");
  return c.heap.string(justify(c.heap, self(c), c.integer(0, 0), fill, align));
}
Value m_center(BuiltinCall& c) { return justified(c, '^'); }
Value m_ljust(BuiltinCall& c) { return justified(c, '<'); }
Value m_rjust(BuiltinCall& c) { return justified(c, '>'); }

constexpr Builtin kMethods[] = {
    {"split", "sep?,maxsplit?", m_split},
    {"rsplit", "sep?,maxsplit?", m_rsplit},
    {"splitlines", "keepends?", m_splitlines},
    {"partition", "sep", m_partition},
    {"rpartition", "sep", m_rpartition},
    {"strip", "chars?", m_strip},
    {"lstrip", "chars?", m_lstrip},
    {"rstrip", "chars?", m_rstrip},
    {"startswith", "prefix,start?,end?", m_startswith},
    {"endswith", "suffix,start?,end?", m_endswith},
    {"find", "sub,start?,end?", m_find},
    {"rfind", "sub,start?,end?", m_rfind},
    {"index", "sub,start?,end?", m_index},
    {"rindex", "sub,start?,end?", m_rindex},
    {"count", "sub,start?,end?", m_count},
    {"replace", "old,new,count?", m_replace},
    {"upper", "", m_upper},
    {"lower", "", m_lower},
    {"casefold", "", m_lower},
    {"title", "", m_title},
    {"capitalize", "", m_capitalize},
    {"swapcase", "", m_swapcase},
    {"join", "iterable", m_join},
    {"format", "*", m_format},
    {"isdigit", "", m_isdigit},
    {"isdecimal", "", m_isdigit},
    {"isnumeric", "", m_isnumeric},
    {"isalpha", "", m_isalpha},
    {"isalnum", "", m_isalnum},
    {"isspace", "", m_isspace},
    {"isascii", "", m_isascii},
    {"isupper", "", m_isupper},
    {"islower", "", m_islower},
    {"removeprefix", "prefix", m_removeprefix},
    {"removesuffix", "suffix", m_removesuffix},
    {"zfill", "width", m_zfill},
    {"center", "width,fillchar?", m_center},
    {"ljust", "width,fillchar?", m_ljust},
    {"rjust", "width,fillchar?", m_rjust},
};

}  // namespace

std::span<const Builtin> string_methods() { return kMethods; }

}  // namespace turbo::text::jinja
