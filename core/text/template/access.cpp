// Attributes, items and calls: everything a template can reach from a value is listed here and in the method tables.
#include <charconv>

#include "text/template/builtins.h"
#include "text/template/format.h"
#include "text/template/interpreter.h"
#include "text/template/utf8.h"

namespace turbo::text::jinja {

namespace {

std::string owner_name(const Value& base) {
  if (base.is_none()) return "None";
  return fmt::format("'{} object'", type_name(base));
}

[[noreturn]] void fail_undefined(Heap& heap, const Value& value) {
  heap.fail("{}", value.shared_text() ? value.text() : "value is undefined");
}

Value bind_method(Heap& heap, const Builtin& method, const Value& self) {
  auto* bound = heap.make<BoundFunction>(std::string(method.name), [&method, self](Interpreter& in, Arguments& arguments) {
    return call_builtin(in, method, self, arguments);
  });
  return Value::object(Kind::callable, bound);
}

Value no_attribute(Heap& heap, const Value& base, std::string_view name) {
  return heap.undefined(fmt::format("{} has no attribute '{}'", owner_name(base), name.substr(0, 60)));
}

}  // namespace

Value Interpreter::attribute(const Value& base, std::string_view name) {
  if (base.is_undefined()) fail_undefined(heap_, base);
  if (const Builtin* method = find_method(base.kind(), name)) return bind_method(heap_, *method, base);
  if (base.is_mapping() || base.is(Kind::name_space)) {
    if (Value* found = base.dict().find(name)) return *found;
  } else if (base.is(Kind::tuple) && base.list().is_group && (name == "grouper" || name == "list")) {
    return base.items()[name == "list"];
  } else if (base.is(Kind::callable) || base.is(Kind::loop)) {
    Value found = base.callable().attribute(*this, name);
    if (!found.is_undefined() || found.shared_text()) return found;
  }
  return no_attribute(heap_, base, name);
}

Value Interpreter::item(const Value& base, const Value& key) {
  if (base.is_undefined()) fail_undefined(heap_, base);
  if (base.is_mapping()) {
    bool hashable = !key.is(Kind::list) && !key.is(Kind::dict);
    if (hashable) require_hashable(heap_, key);
    if (Value* found = hashable ? base.dict().find(key) : nullptr) return *found;
  } else if (key.is_integral()) {
    bool indexable = base.is_string() || base.is_sequence() || base.is(Kind::range);
    int64_t size = indexable ? length(heap_, base) : 0;
    int64_t index = key.as_int() < 0 ? key.as_int() + size : key.as_int();
    if (index >= 0 && index < size) {
      if (base.is_sequence()) return base.items()[static_cast<size_t>(index)];
      if (base.is(Kind::range)) return Value::integer(base.range().at(index));
      const StringBox& box = base.box();
      if (box.is_ascii()) return heap_.string(box.text.substr(static_cast<size_t>(index), 1));
      heap_.work(box.text.size());
      size_t from = byte_offset(box.text, static_cast<size_t>(index));
      return heap_.string(box.text.substr(from, byte_offset(std::string_view(box.text).substr(from), 1)));
    }
  }
  if (key.is_string()) return attribute(base, key.text());
  return heap_.undefined(fmt::format("{} has no element {}", owner_name(base), repr(heap_, key).substr(0, 60)));
}

Value Interpreter::attribute_path(const Value& base, const Value& path) {
  if (!path.is_string()) return item(base, path);
  Value value = base;
  std::string_view rest = path.text();
  while (true) {
    heap_.step();
    size_t dot = rest.find('.');
    std::string_view part = rest.substr(0, dot);
    int64_t index = 0;
    auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    bool is_index = error == std::errc{} && stop == part.data() + part.size();
    value = item(value, is_index ? Value::integer(index) : heap_.string(std::string(part)));
    if (dot == std::string_view::npos) return value;
    rest = rest.substr(dot + 1);
  }
}

Value Interpreter::call(const Value& callee, Arguments& arguments) {
  if (callee.is_undefined()) fail_undefined(heap_, callee);
  if (!callee.is(Kind::callable) && !callee.is(Kind::loop)) heap_.fail("'{}' object is not callable", type_name(callee));
  return callee.callable().call(*this, arguments);
}

Value Interpreter::apply_filter(std::string_view name, const Value& value, Arguments& arguments) {
  const Builtin* filter = find_filter(name);
  if (!filter) heap_.fail("unknown filter '{}'", name.substr(0, 60));
  return call_builtin(*this, *filter, value, arguments);
}

bool Interpreter::apply_test(std::string_view name, const Value& value, Arguments& arguments) {
  const Builtin* test = find_test(name);
  if (!test) heap_.fail("unknown test '{}'", name.substr(0, 60));
  return truthy(call_builtin(*this, *test, value, arguments));
}

Value Loop::call(Interpreter& in, Arguments& arguments) {
  if (!recurse) in.heap().fail("the loop is not marked 'recursive'");
  if (arguments.positional.size() != 1 || !arguments.named.empty()) in.heap().fail("loop() takes the items to visit");
  return recurse(in, arguments.positional[0]);
}

namespace {

Value loop_cycle(Interpreter& in, Loop& loop, Arguments& arguments) {
  if (arguments.positional.empty()) in.heap().fail("no items for cycling given");
  return arguments.positional[loop.index0 % arguments.positional.size()];
}

Value loop_changed(Interpreter& in, Loop& loop, Arguments& arguments) {
  bool same = loop.last_changed && loop.last_changed->positional.size() == arguments.positional.size();
  for (size_t i = 0; same && i < arguments.positional.size(); ++i) {
    same = equal(in.heap(), loop.last_changed->positional[i], arguments.positional[i]);
  }
  if (!same) loop.last_changed = arguments;
  return Value::boolean(!same);
}

}  // namespace

Value Loop::attribute(Interpreter& in, std::string_view name) {
  Heap& heap = in.heap();
  auto count = [](size_t n) { return Value::integer(static_cast<int64_t>(n)); };
  if (name == "index") return count(index0 + 1);
  if (name == "index0") return count(index0);
  if (name == "first") return Value::boolean(index0 == 0);
  if (name == "last") return Value::boolean(index0 + 1 == n_items);
  if (name == "length") return count(n_items);
  if (name == "revindex") return count(n_items - index0);
  if (name == "revindex0") return count(n_items - index0 - 1);
  if (name == "depth") return count(depth0 + 1);
  if (name == "depth0") return count(depth0);
  if (name == "previtem") return index0 > 0 && index0 - 1 < items.size() ? items[index0 - 1] : heap.undefined("there is no previous item");
  if (name == "nextitem") return index0 + 1 < items.size() ? items[index0 + 1] : heap.undefined("there is no next item");
  auto bound = [&](const char* label, auto function) {
    return Value::object(Kind::callable, heap.make<BoundFunction>(label, [this, function](Interpreter& i, Arguments& a) {
      return function(i, *this, a);
    }));
  };
  if (name == "cycle") return bound("cycle", loop_cycle);
  if (name == "changed") return bound("changed", loop_changed);
  return Value();
}

}  // namespace turbo::text::jinja
