// Python's two format mini-languages: "%05.2f" % x and "{:>8}".format(x).
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/template/format.h"
#include "text/template/interpreter.h"
#include "text/template/utf8.h"

namespace turbo::text::jinja {

namespace {

constexpr int64_t kMaxPrecision = 100;
constexpr int64_t kMaxWidth = 1'000'000;

/// What both mini-languages boil down to.
struct Spec {
  std::string fill = " ";
  char align = 0;           ///< < > ^ =, 0 = by type
  char sign = 0;            ///< + or space
  bool alternate = false;
  char grouping = 0;        ///< , or _
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

// C's formatting of one double; precision and type are ours, so the buffer's size is known.
std::string print_real(double value, int precision, char type, bool alternate) {
  char pattern[8] = {'%', 0};
  size_t n = 1;
  if (alternate) pattern[n++] = '#';
  pattern[n++] = '.';
  pattern[n++] = '*';
  pattern[n++] = type;
  char buffer[512];
  int written = std::snprintf(buffer, sizeof(buffer), pattern, precision, value);
  return std::string(buffer, static_cast<size_t>(std::clamp(written, 0, 511)));
}

std::string digits_of(uint64_t magnitude, unsigned base, bool upper_case) {
  const char* digits = upper_case ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string out;
  do {
    out.insert(out.begin(), digits[magnitude % base]);
    magnitude /= base;
  } while (magnitude != 0);
  return out;
}

std::string group_digits(const std::string& number, char separator) {
  size_t end = 0;
  while (end < number.size() && number[end] >= '0' && number[end] <= '9') ++end;
  std::string out = number;
  for (size_t at = end; at > 3;) {
    at -= 3;
    out.insert(at, 1, separator);
  }
  return out;
}

std::string integer_digits(const Spec& spec, uint64_t magnitude) {
  switch (spec.type) {
    case 'x': return (spec.alternate ? "0x" : "") + digits_of(magnitude, 16, false);
    case 'X': return (spec.alternate ? "0X" : "") + digits_of(magnitude, 16, true);
    case 'o': return (spec.alternate ? "0o" : "") + digits_of(magnitude, 8, false);
    case 'b': return (spec.alternate ? "0b" : "") + digits_of(magnitude, 2, false);
    default: return digits_of(magnitude, 10, false);
  }
}

std::string real_digits(Heap& heap, const Spec& spec, double magnitude) {
  if (spec.precision > kMaxPrecision) heap.exhausted("format precision over {}", kMaxPrecision);
  int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  if (std::isnan(magnitude)) return "nan";
  if (std::isinf(magnitude)) return "inf";
  if (spec.type == '%') return print_real(magnitude * 100, precision, 'f', spec.alternate) + "%";
  if (spec.type != 0) return print_real(magnitude, precision, spec.type, spec.alternate);
  if (spec.precision < 0) return real_text(magnitude);
  std::string text = print_real(magnitude, std::max(precision, 1), 'g', false);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

// Pads `prefix` (a sign) and `body` to the width, counted in code points.
std::string pad(Heap& heap, const Spec& spec, char default_align, const std::string& prefix, const std::string& body) {
  if (spec.width > kMaxWidth) heap.exhausted("format width over {}", kMaxWidth);
  heap.work(static_cast<uint64_t>(std::max<int64_t>(spec.width, 0)) + body.size());
  int64_t missing = spec.width - static_cast<int64_t>(count_code_points(prefix) + count_code_points(body));
  auto filling = [&](int64_t n) {
    std::string out;
    for (int64_t i = 0; i < n; ++i) out += spec.fill;
    return out;
  };
  switch (spec.align ? spec.align : default_align) {
    case '<': return prefix + body + filling(missing);
    case '^': return filling(missing / 2) + prefix + body + filling(missing - missing / 2);
    case '=': return prefix + filling(missing) + body;
    default: return filling(missing) + prefix + body;
  }
}

std::string format_number(Heap& heap, Spec spec, const Value& value) {
  bool wants_real = value.is(Kind::real) || (spec.type != 0 && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos);
  std::string body;
  bool negative;
  if (wants_real) {
    double d = value.as_real();
    negative = std::signbit(d) && !std::isnan(d);
    body = real_digits(heap, spec, std::fabs(d));
  } else {
    negative = value.as_int() < 0;
    uint64_t magnitude = static_cast<uint64_t>(value.as_int());
    body = integer_digits(spec, negative ? 0 - magnitude : magnitude);
  }
  if (spec.grouping) body = group_digits(body, spec.grouping);
  std::string sign = negative ? "-" : spec.sign ? std::string(1, spec.sign) : "";
  return pad(heap, spec, '>', sign, body);
}

std::string format_text(Heap& heap, const Spec& spec, std::string text) {
  if (spec.precision >= 0) text.resize(byte_offset(text, static_cast<size_t>(spec.precision)));
  return pad(heap, spec, '<', "", text);
}

// A decimal number at `pos`, advancing past it; values beyond any limit saturate.
int64_t read_number(std::string_view text, size_t& pos) {
  int64_t value = 0;
  for (; pos < text.size() && text[pos] >= '0' && text[pos] <= '9'; ++pos) value = std::min<int64_t>(value * 10 + (text[pos] - '0'), INT32_MAX);
  return value;
}

class PercentFormatter {
 public:
  PercentFormatter(Heap& heap, std::string_view text, const Arguments& arguments) : heap_(heap), text_(text), args_(arguments) {}

  std::string run() {
    std::string out;
    while (pos_ < text_.size()) {
      size_t next = text_.find('%', pos_);
      if (next == std::string_view::npos) next = text_.size();
      out.append(text_.substr(pos_, next - pos_));
      pos_ = next;
      if (pos_ < text_.size()) out += directive();
      heap_.step();
      heap_.reserve(out.size());
    }
    bool by_name = used_mapping_ || (args_.positional.size() == 1 && args_.positional[0].is_mapping());
    if (!by_name && next_ < args_.positional.size()) heap_.fail("not all arguments converted during string formatting");
    return out;
  }

 private:
  std::string directive() {
    ++pos_;
    const Value* named = nullptr;
    if (peek() == '(') named = &named_argument();
    Spec spec;
    bool zero = false;
    for (; std::string_view("-+ #0").find(peek()) != std::string_view::npos && peek(); ++pos_) {
      switch (peek()) {
        case '-': spec.align = '<'; break;
        case '+': spec.sign = '+'; break;
        case ' ': spec.sign = spec.sign ? spec.sign : ' '; break;
        case '#': spec.alternate = true; break;
        default: zero = true;
      }
    }
    spec.width = read_number(text_, pos_);
    if (peek() == '.') {
      ++pos_;
      spec.precision = read_number(text_, pos_);
    }
    while (peek() && std::string_view("hlL").find(peek()) != std::string_view::npos) ++pos_;
    char type = peek();
    if (!type) heap_.fail("incomplete format");
    ++pos_;
    if (type == '%') return "%";
    return convert(spec, type, zero, named ? *named : next_argument());
  }

  std::string convert(Spec spec, char type, bool zero, const Value& value) {
    if (type == 's' || type == 'r' || type == 'a') {
      if (!spec.align) spec.align = '>';
      return format_text(heap_, spec, type == 's' ? to_text(heap_, value) : repr(heap_, value));
    }
    if (type == 'c') {
      if (!spec.align) spec.align = '>';
      std::string text = value.is_string() ? value.text() : std::string();
      if (value.is_integral()) append_utf8(text, static_cast<uint32_t>(std::clamp<int64_t>(value.as_int(), 0, 0x110000)));
      if (count_code_points(text) != 1) heap_.fail("%c requires int or char");
      return format_text(heap_, spec, text);
    }
    if (std::string_view("diuxXoeEfFgG").find(type) == std::string_view::npos) {
      heap_.fail("unsupported format character '{}'", type);
    }
    if (!value.is_number()) heap_.fail("%{} format: a number is required, not {}", type, type_name(value));
    if (zero && spec.align != '<') spec.fill = "0", spec.align = '=';
    bool whole = std::string_view("diuxXo").find(type) != std::string_view::npos;
    spec.type = type == 'i' || type == 'u' ? 'd' : type;
    if (!whole) return format_number(heap_, spec, value);
    Value integer = value;
    if (value.is(Kind::real)) {
      if (spec.type != 'd') heap_.fail("%{} format: an integer is required, not float", type);
      if (!(std::fabs(value.as_real()) < 9.2e18)) heap_.fail("cannot convert float to integer");
      integer = Value::integer(static_cast<int64_t>(value.as_real()));
    }
    return format_number(heap_, spec, integer);
  }

  const Value& named_argument() {
    size_t close = text_.find(')', pos_);
    if (close == std::string_view::npos) heap_.fail("incomplete format key");
    std::string_view key = text_.substr(pos_ + 1, close - pos_ - 1);
    pos_ = close + 1;
    used_mapping_ = true;
    for (auto& [name, value] : args_.named) {
      if (name == key) return value;
    }
    if (args_.positional.size() == 1 && args_.positional[0].is_mapping()) {
      if (Value* value = args_.positional[0].dict().find(key)) return *value;
      heap_.fail("format key '{}' is missing", key.substr(0, 60));
    }
    heap_.fail("format requires a mapping");
  }

  const Value& next_argument() {
    if (next_ >= args_.positional.size()) heap_.fail("not enough arguments for format string");
    return args_.positional[next_++];
  }

  char peek() const { return pos_ < text_.size() ? text_[pos_] : '\0'; }

  Heap& heap_;
  std::string_view text_;
  const Arguments& args_;
  size_t pos_ = 0;
  size_t next_ = 0;
  bool used_mapping_ = false;
};

class BraceFormatter {
 public:
  BraceFormatter(Interpreter& in, std::string_view text, const Arguments& arguments)
      : in_(in), heap_(in.heap()), text_(text), args_(arguments) {}

  std::string run() {
    std::string out;
    while (pos_ < text_.size()) {
      char c = text_[pos_++];
      bool doubled = pos_ < text_.size() && text_[pos_] == c;
      if ((c == '{' || c == '}') && doubled) {
        ++pos_;
        out.push_back(c);
      } else if (c == '{') {
        out += field();
        heap_.reserve(out.size());
      } else if (c == '}') {
        heap_.fail("single '}}' in a format string");
      } else {
        out.push_back(c);
      }
    }
    heap_.work(out.size());
    return out;
  }

 private:
  std::string field() {
    heap_.step();
    size_t close = text_.find('}', pos_);
    if (close == std::string_view::npos) heap_.fail("expected '}}' before the end of the format string");
    std::string_view body = text_.substr(pos_, close - pos_);
    if (body.find('{') != std::string_view::npos) heap_.fail("nested format fields are not supported");
    pos_ = close + 1;
    size_t name_end = body.find_first_of("!:");
    std::string_view name = body.substr(0, name_end);
    std::string_view rest = name_end == std::string_view::npos ? std::string_view() : body.substr(name_end);
    Value value = look_up(name);
    if (!rest.empty() && rest[0] == '!') {
      char conversion = rest.size() > 1 ? rest[1] : '\0';
      if (conversion != 's' && conversion != 'r' && conversion != 'a') heap_.fail("unknown format conversion");
      value = heap_.string(conversion == 's' ? to_text(heap_, value) : repr(heap_, value));
      rest.remove_prefix(2);
    }
    if (!rest.empty() && rest[0] != ':') heap_.fail("expected ':' after the format conversion");
    return apply(value, rest.empty() ? rest : rest.substr(1));
  }

  Value look_up(std::string_view name) {
    size_t end = name.find_first_of(".[");
    std::string_view base = name.substr(0, end);
    Value value = base_argument(base);
    std::string_view rest = end == std::string_view::npos ? std::string_view() : name.substr(end);
    while (!rest.empty()) {
      heap_.step();
      bool subscript = rest[0] == '[';
      size_t stop = subscript ? rest.find(']') : rest.find_first_of(".[", 1);
      if (subscript && stop == std::string_view::npos) heap_.fail("missing ']' in a format string");
      std::string_view key = rest.substr(1, stop == std::string_view::npos ? stop : stop - 1);
      size_t digits = 0;
      int64_t index = read_number(key, digits);
      bool is_index = subscript && !key.empty() && digits == key.size();
      value = !subscript ? in_.attribute(value, key)
                         : in_.item(value, is_index ? Value::integer(index) : heap_.string(std::string(key)));
      rest = stop == std::string_view::npos ? std::string_view() : rest.substr(subscript ? stop + 1 : stop);
    }
    return value;
  }

  Value base_argument(std::string_view name) {
    size_t digits = 0;
    size_t index = name.empty() ? next_++ : static_cast<size_t>(read_number(name, digits));
    if (name.empty() || digits == name.size()) {
      if (index >= args_.positional.size()) heap_.fail("format index {} out of range", index);
      return args_.positional[index];
    }
    for (auto& [key, value] : args_.named) {
      if (key == name) return value;
    }
    heap_.fail("format key '{}' is missing", name.substr(0, 60));
  }

  std::string apply(const Value& value, std::string_view text) {
    if (text.empty()) return to_text(heap_, value);
    Spec spec = parse(text);
    // A bool is an int only where a number format is asked for.
    if (value.is(Kind::integer) || value.is(Kind::real) || (value.is(Kind::boolean) && spec.type != 0)) {
      if (std::string_view("sc").find(spec.type) != std::string_view::npos && spec.type) bad_type(spec.type, value);
      if (value.is(Kind::real) && spec.type && std::string_view("dxXob").find(spec.type) != std::string_view::npos) {
        bad_type(spec.type, value);
      }
      return format_number(heap_, spec, value);
    }
    if (spec.type && spec.type != 's') bad_type(spec.type, value);
    if (!value.is_string() && !value.is_undefined()) heap_.fail("unsupported format string passed to {}", type_name(value));
    if (spec.align == '=') heap_.fail("'=' alignment not allowed in string format specifier");
    return format_text(heap_, spec, to_text(heap_, value));
  }

  [[noreturn]] void bad_type(char type, const Value& value) {
    heap_.fail("unknown format code '{}' for object of type '{}'", type, type_name(value));
  }

  Spec parse(std::string_view text) {
    Spec spec;
    size_t pos = 0;
    auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
    size_t first = decode_at(text, 0).bytes;
    if (first < text.size() && is_align(text[first])) {
      spec.fill = std::string(text.substr(0, first));
      spec.align = text[first];
      pos = first + 1;
    } else if (is_align(text[0])) {
      spec.align = text[pos++];
    }
    auto take = [&](std::string_view set) { return pos < text.size() && set.find(text[pos]) != std::string_view::npos ? text[pos++] : '\0'; };
    if (char sign = take("+- ")) spec.sign = sign == '-' ? '\0' : sign;
    spec.alternate = take("#") != 0;
    if (take("0") && !spec.align) spec.fill = "0", spec.align = '=';
    spec.width = read_number(text, pos);
    spec.grouping = take(",_");
    if (take(".")) spec.precision = read_number(text, pos);
    spec.type = take("sdxXobeEfFgGc%");
    if (pos != text.size()) heap_.fail("invalid format specifier '{}'", text.substr(0, 60));
    return spec;
  }

  Interpreter& in_;
  Heap& heap_;
  std::string_view text_;
  const Arguments& args_;
  size_t pos_ = 0;
  size_t next_ = 0;
};

}  // namespace

std::string format_percent(Heap& heap, std::string_view text, const Arguments& arguments) {
  return PercentFormatter(heap, text, arguments).run();
}

std::string format_braces(Interpreter& in, std::string_view text, const Arguments& arguments) {
  return BraceFormatter(in, text, arguments).run();
}

}  // namespace turbo::text::jinja
