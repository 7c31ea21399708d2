// str(), repr() and JSON text of values. The format mini-languages are in format_spec.cpp.
#include "text/template/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/template/utf8.h"

namespace turbo::text::jinja {

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  auto end = std::to_chars(buffer, buffer + sizeof(buffer) - 1, value, std::chars_format::scientific).ptr;
  *end = '\0';
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  size_t e = text.find('e');
  int exponent = std::atoi(buffer + e + 1);
  if (exponent < -4 || exponent >= 16) return std::string(text);
  std::string digits;
  bool negative = text[0] == '-';
  for (char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits.push_back(c);
  }
  std::string out = negative ? "-" : "";
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  size_t n_whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= n_whole) return out + digits + std::string(n_whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, n_whole) + "." + digits.substr(n_whole);
}

namespace {

/// Appends to a text whose size is watched while it grows.
class Writer {
 public:
  Writer(Heap& heap, std::string& out) : heap_(heap), out_(out) {}
  void put(std::string_view text) {
    heap_.reserve(out_.size() + text.size());
    out_.append(text);
  }
  void put_escaped(char letter) {
    char pair[2] = {'\\', letter};
    put({pair, 2});
  }
  Heap& heap() { return heap_; }
  /// Entry of one value: charges a step and checks the nesting.
  void enter(size_t depth) {
    heap_.step();
    heap_.check_depth(depth);
  }

 private:
  Heap& heap_;
  std::string& out_;
};

void write_repr(Writer& w, const Value& v, size_t depth);

void write_quoted(Writer& w, const std::string& text) {
  w.heap().work(text.size());
  char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  w.put({&quote, 1});
  for (size_t pos = 0; pos < text.size();) {
    CodePoint cp = decode_at(text, pos);
    uint32_t c = cp.value;
    if (c == static_cast<uint32_t>(quote) || c == '\\') {
      w.put_escaped(static_cast<char>(c));
    } else if (c == '\n' || c == '\r' || c == '\t') {
      w.put_escaped(c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    } else if (is_printable(c)) {
      w.put(std::string_view(text).substr(pos, cp.bytes));
    } else {
      w.put(c < 0x100 ? fmt::format("\\x{:02x}", c) : c < 0x10000 ? fmt::format("\\u{:04x}", c) : fmt::format("\\U{:08x}", c));
    }
    pos += cp.bytes;
  }
  w.put({&quote, 1});
}

void write_items(Writer& w, const Value& v, size_t depth) {
  bool is_list = v.is(Kind::list);
  const auto& items = v.items();
  w.put(is_list ? "[" : "(");
  for (size_t i = 0; i < items.size(); ++i) {
    if (i) w.put(", ");
    write_repr(w, items[i], depth + 1);
  }
  w.put(is_list ? "]" : items.size() == 1 ? ",)" : ")");
}

void write_dict(Writer& w, Dict& dict, size_t depth) {
  w.put("{");
  bool first = true;
  for (auto& [key, value] : dict.entries) {
    if (!first) w.put(", ");
    first = false;
    write_repr(w, key, depth + 1);
    w.put(": ");
    write_repr(w, value, depth + 1);
  }
  w.put("}");
}

void write_repr(Writer& w, const Value& v, size_t depth) {
  w.enter(depth);
  switch (v.kind()) {
    case Kind::undefined: return w.put("Undefined");
    case Kind::none: return w.put("None");
    case Kind::boolean: return w.put(v.as_int() ? "True" : "False");
    case Kind::integer: return w.put(std::to_string(v.as_int()));
    case Kind::real: return w.put(real_text(v.as_real()));
    case Kind::string: return write_quoted(w, v.text());
    case Kind::list:
    case Kind::tuple: return write_items(w, v, depth);
    case Kind::dict: return write_dict(w, v.dict(), depth);
    case Kind::range: {
      const Range& r = v.range();
      return w.put(r.step == 1 ? fmt::format("range({}, {})", r.start, r.stop)
                               : fmt::format("range({}, {}, {})", r.start, r.stop, r.step));
    }
    case Kind::name_space:
      w.put("<Namespace ");
      write_dict(w, v.dict(), depth);
      return w.put(">");
    case Kind::callable: return w.put("<function " + v.callable().name() + ">");
    case Kind::loop: return w.put(fmt::format("<LoopContext {}/{}>", v.loop().index0 + 1, v.loop().n_items));
  }
}

class JsonWriter {
 public:
  JsonWriter(Heap& heap, std::string& out, const JsonStyle& style) : w_(heap, out), style_(style) {}

  void write(const Value& v, size_t depth) {
    w_.enter(depth);
    switch (v.kind()) {
      case Kind::none: return w_.put("null");
      case Kind::boolean: return w_.put(v.as_int() ? "true" : "false");
      case Kind::integer: return w_.put(std::to_string(v.as_int()));
      case Kind::real: return w_.put(number(v.as_real()));
      case Kind::string: return quoted(v.text());
      case Kind::list:
      case Kind::tuple: return items(v.items(), depth);
      case Kind::dict: return members(v.dict(), depth);
      case Kind::undefined:
        if (v.shared_text()) w_.heap().fail("{}", v.text());
        [[fallthrough]];
      default: w_.heap().fail("value of type '{}' cannot be written as JSON", type_name(v));
    }
  }

 private:
  static std::string number(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
    return real_text(d);
  }

  void quoted(const std::string& text) {
    w_.heap().work(text.size());
    w_.put("\"");
    size_t plain = 0;   // start of text not yet written
    for (size_t pos = 0; pos < text.size();) {
      CodePoint cp = decode_at(text, pos);
      bool escape = cp.value < 0x20 || cp.value == '"' || cp.value == '\\' || (style_.ensure_ascii && cp.value > 0x7F);
      if (escape) {
        w_.put(std::string_view(text).substr(plain, pos - plain));
        escaped(cp.value);
        plain = pos + cp.bytes;
      }
      pos += cp.bytes;
    }
    w_.put(std::string_view(text).substr(plain));
    w_.put("\"");
  }

  void escaped(uint32_t c) {
    static constexpr std::string_view kPlain = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
    if (size_t at = c < 0x80 ? kPlain.find(static_cast<char>(c)) : std::string_view::npos; at != std::string_view::npos) {
      w_.put_escaped(kLetters[at]);
    } else if (c < 0x10000) {
      w_.put(fmt::format("\\u{:04x}", c));
    } else {
      w_.put(fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + ((c - 0x10000) & 0x3FF)));
    }
  }

  void new_line(size_t depth) {
    if (!style_.pretty) return;
    w_.put("\n");
    for (size_t i = 0; i < depth; ++i) w_.put(style_.indent);
  }

  void items(const std::vector<Value>& list, size_t depth) {
    if (list.empty()) return w_.put("[]");
    w_.put("[");
    for (size_t i = 0; i < list.size(); ++i) {
      if (i) w_.put(style_.item_separator);
      new_line(depth + 1);
      write(list[i], depth + 1);
    }
    new_line(depth);
    w_.put("]");
  }

  std::string key_text(const Value& key) {
    switch (key.kind()) {
      case Kind::string: return key.text();
      case Kind::none: return "null";
      case Kind::boolean: return key.as_int() ? "true" : "false";
      case Kind::integer: return std::to_string(key.as_int());
      case Kind::real: return number(key.as_real());
      default: w_.heap().fail("JSON keys must be str, int, float, bool or None, not {}", type_name(key));
    }
  }

  void members(Dict& dict, size_t depth) {
    if (dict.entries.empty()) return w_.put("{}");
    std::vector<const std::pair<Value, Value>*> order;
    for (auto& entry : dict.entries) order.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(order.begin(), order.end(), [&](auto* a, auto* b) { return compare(w_.heap(), a->first, b->first) < 0; });
    }
    w_.put("{");
    bool first = true;
    for (auto* entry : order) {
      if (!first) w_.put(style_.item_separator);
      first = false;
      new_line(depth + 1);
      quoted(key_text(entry->first));
      w_.put(style_.key_separator);
      write(entry->second, depth + 1);
    }
    new_line(depth);
    w_.put("}");
  }

  Writer w_;
  const JsonStyle& style_;
};

}  // namespace

std::string repr(Heap& heap, const Value& value) {
  std::string out;
  Writer w(heap, out);
  write_repr(w, value, 0);
  return out;
}

std::string to_text(Heap& heap, const Value& value) {
  if (value.is_string()) return value.text();
  if (value.is_undefined()) return {};
  return repr(heap, value);
}

std::string to_json(Heap& heap, const Value& value, const JsonStyle& style) {
  std::string out;
  JsonWriter(heap, out, style).write(value, 0);
  return out;
}

}  // namespace turbo::text::jinja
