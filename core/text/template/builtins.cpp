// Look-up and calling of built-ins; the tables themselves are in filters_*.cpp, tests.cpp, *_methods.cpp, globals.cpp.
#include "text/template/builtins.h"

#include <algorithm>
#include <unordered_map>

#include "base/nearest.h"
#include "text/template/format.h"
#include "text/template/parser.h"

namespace turbo::text::jinja {

namespace {

using Table = std::unordered_map<std::string_view, const Builtin*>;

Table make_table(std::initializer_list<std::span<const Builtin>> parts) {
  Table table;
  for (auto part : parts) {
    for (const Builtin& builtin : part) table.emplace(builtin.name, &builtin);
  }
  return table;
}

const Builtin* find_in(const Table& table, std::string_view name) {
  auto at = table.find(name);
  return at == table.end() ? nullptr : at->second;
}

const Table& filter_table() {
  static const Table table = make_table({text_filters(), value_filters(), sequence_filters(), selection_filters()});
  return table;
}

const Table& test_table() {
  static const Table table = make_table({tests()});
  return table;
}

std::string suggest(const Table& table, std::string_view name) {
  std::vector<std::string> names;
  for (auto& [key, builtin] : table) names.emplace_back(key);
  std::sort(names.begin(), names.end());
  std::string nearest = nearest_name(name.substr(0, 60), names);
  return nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest);
}

}  // namespace

const Builtin* find_filter(std::string_view name) { return find_in(filter_table(), name); }
const Builtin* find_test(std::string_view name) { return find_in(test_table(), name); }

const Builtin* find_method(Kind kind, std::string_view name) {
  static const Table of_string = make_table({string_methods()});
  static const Table of_list = make_table({list_methods()});
  static const Table of_tuple = make_table({tuple_methods()});
  static const Table of_dict = make_table({dict_methods()});
  switch (kind) {
    case Kind::string: return find_in(of_string, name);
    case Kind::list: return find_in(of_list, name);
    case Kind::tuple: return find_in(of_tuple, name);
    case Kind::dict: return find_in(of_dict, name);
    default: return nullptr;
  }
}

const Builtin* find_global(std::string_view name) {
  static const Table table = make_table({globals()});
  return find_in(table, name);
}

bool is_known_filter(std::string_view name) { return find_filter(name) != nullptr; }
bool is_known_test(std::string_view name) { return find_test(name) != nullptr; }
std::string suggest_filter(std::string_view name) { return suggest(filter_table(), name); }
std::string suggest_test(std::string_view name) { return suggest(test_table(), name); }

Bound bind_arguments(Heap& heap, std::string_view function, std::string_view params, const Arguments& arguments) {
  Bound bound;
  struct Parameter {
    std::string_view name;
    bool optional;
  };
  std::array<Parameter, Bound::kMax> list{};
  size_t n = 0;
  while (!params.empty()) {
    size_t comma = params.find(',');
    std::string_view name = params.substr(0, comma);
    bool optional = name.back() == '?';
    if (optional) name.remove_suffix(1);
    list[n++] = {name, optional};
    params = comma == std::string_view::npos ? std::string_view() : params.substr(comma + 1);
  }
  if (arguments.positional.size() > n) {
    heap.fail("{}() takes at most {} arguments, {} given", function, n, arguments.positional.size());
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) bound.values[i] = arguments.positional[i];
  for (auto& [name, value] : arguments.named) {
    auto at = std::find_if(list.begin(), list.begin() + n, [&, &key = name](const Parameter& p) { return p.name == key; });
    if (at == list.begin() + n) heap.fail("{}() takes no argument '{}'", function, name.substr(0, 60));
    size_t i = static_cast<size_t>(at - list.begin());
    if (bound.values[i]) heap.fail("{}() got two values for '{}'", function, name);
    bound.values[i] = value;
  }
  for (size_t i = 0; i < n; ++i) {
    if (!bound.values[i] && !list[i].optional) heap.fail("{}() needs the argument '{}'", function, list[i].name);
  }
  return bound;
}

Value call_builtin(Interpreter& in, const Builtin& builtin, const Value& self, Arguments& arguments) {
  Bound bound;
  if (builtin.params != "*") bound = bind_arguments(in.heap(), builtin.name, builtin.params, arguments);
  BuiltinCall call{in, in.heap(), self, arguments, std::move(bound)};
  return builtin.function(call);
}

int64_t BuiltinCall::integer(size_t i, int64_t fallback) const {
  if (!has(i) || arg(i).is_none()) return fallback;
  if (!arg(i).is_integral()) heap.fail("an integer is required, not '{}'", type_name(arg(i)));
  return arg(i).as_int();
}

bool BuiltinCall::flag(size_t i, bool fallback) const { return has(i) ? truthy(arg(i)) : fallback; }

std::string BuiltinCall::text(size_t i, std::string fallback) const {
  if (!has(i) || arg(i).is_none()) return fallback;
  return in.text_of(arg(i));
}

}  // namespace turbo::text::jinja
