// Python's ways of turning values into text: str(), repr(), printf-style and str.format.
#pragma once

#include <string>
#include <string_view>

#include "text/template/callable.h"
#include "text/template/value.h"

namespace turbo::text::jinja {

std::string real_text(double value);
std::string to_text(Heap& heap, const Value& value);
std::string repr(Heap& heap, const Value& value);

/// text % arguments. A single positional dict, or named arguments, serve %(name)s.
std::string format_percent(Heap& heap, std::string_view text, const Arguments& arguments);
/// text.format(arguments).
std::string format_braces(Interpreter& in, std::string_view text, const Arguments& arguments);

/// JSON text as Python's json.dumps writes it with ensure_ascii off.
struct JsonStyle {
  bool pretty = false;
  std::string indent;        ///< one level of it
  std::string item_separator = ", ", key_separator = ": ";
  bool sort_keys = false, ensure_ascii = false;
};
std::string to_json(Heap& heap, const Value& value, const JsonStyle& style);

}  // namespace turbo::text::jinja
