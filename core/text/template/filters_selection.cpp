// map, select, reject and their attribute forms: filters that apply another filter or test to each item.
#include <algorithm>

#include "text/template/builtins.h"

namespace turbo::text::jinja {

namespace {

/// Leading positional argument, removed; null text argument name fails.
Value take_first(BuiltinCall& c, const char* what) {
  if (c.raw.positional.empty()) c.heap.fail("missing {}", what);
  Value first = c.raw.positional.front();
  c.raw.positional.erase(c.raw.positional.begin());
  return first;
}

Value map_attribute(BuiltinCall& c) {
  Value path, fallback = Value::none();
  for (auto& [name, value] : c.raw.named) {
    if (name == "attribute") {
      path = value;
    } else if (name == "default") {
      fallback = value;
    } else {
      c.heap.fail("map() takes no argument '{}'", name.substr(0, 60));
    }
  }
  std::vector<Value> out;
  for (const Value& item : iterate(c.heap, c.self)) {
    Value value = c.in.attribute_path(item, path);
    out.push_back(value.is_undefined() && !fallback.is_none() ? fallback : std::move(value));
  }
  return c.heap.list(std::move(out));
}

Value f_map(BuiltinCall& c) {
  if (!truthy(c.self)) return c.heap.list({});
  bool by_attribute = std::any_of(c.raw.named.begin(), c.raw.named.end(), [](auto& n) { return n.first == "attribute"; });
  if (c.raw.positional.empty() && by_attribute) return map_attribute(c);
  Value name = take_first(c, "filter name");
  if (!name.is_string()) c.heap.fail("map needs a filter name");
  std::vector<Value> out;
  for (const Value& item : iterate(c.heap, c.self)) {
    c.heap.step();
    Arguments arguments = c.raw;
    out.push_back(c.in.apply_filter(name.text(), item, arguments));
  }
  return c.heap.list(std::move(out));
}

Value choose(BuiltinCall& c, bool keep, bool by_attribute) {
  if (!truthy(c.self)) return c.heap.list({});
  Value path = by_attribute ? take_first(c, "attribute name") : Value();
  bool has_test = !c.raw.positional.empty();
  Value test = has_test ? take_first(c, "test name") : Value();
  if (has_test && !test.is_string()) c.heap.fail("a test name must be a string");
  std::vector<Value> out;
  for (Value& item : iterate(c.heap, c.self)) {
    c.heap.step();
    Value subject = by_attribute ? c.in.attribute_path(item, path) : item;
    Arguments arguments = c.raw;
    bool holds = has_test ? c.in.apply_test(test.text(), subject, arguments) : truthy(subject);
    if (holds == keep) out.push_back(std::move(item));
  }
  return c.heap.list(std::move(out));
}

Value f_select(BuiltinCall& c) { return choose(c, true, false); }
Value f_reject(BuiltinCall& c) { return choose(c, false, false); }
Value f_selectattr(BuiltinCall& c) { return choose(c, true, true); }
Value f_rejectattr(BuiltinCall& c) { return choose(c, false, true); }

constexpr Builtin kFilters[] = {
    {"map", "*", f_map},
    {"select", "*", f_select},
    {"reject", "*", f_reject},
    {"selectattr", "*", f_selectattr},
    {"rejectattr", "*", f_rejectattr},
};

}  // namespace

std::span<const Builtin> selection_filters() { return kFilters; }

}  // namespace turbo::text::jinja
