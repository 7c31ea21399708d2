// Things a template can call: built-in functions and methods, macros, cyclers, and the `loop` object.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/template/value.h"

namespace turbo::text::jinja {

class Interpreter;

/// Arguments of a call, already evaluated.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// Arguments matched to a built-in's parameter names.
struct Bound {
  static constexpr size_t kMax = 6;
  std::array<std::optional<Value>, kMax> values;

  bool has(size_t i) const { return values[i].has_value(); }
  const Value& at(size_t i) const { return *values[i]; }
  Value get(size_t i, Value fallback) const { return values[i] ? *values[i] : std::move(fallback); }
};

/// `params` is "old,new,count?": names in order, '?' marks an optional one. Fails on anything left over or missing.
Bound bind_arguments(Heap& heap, std::string_view function, std::string_view params, const Arguments& arguments);

struct Callable : Object {
  virtual std::string name() const = 0;
  virtual Value call(Interpreter& interpreter, Arguments& arguments) = 0;
  /// Value of an attribute such as cycler.current; undefined when there is none.
  virtual Value attribute(Interpreter&, std::string_view) { return Value(); }
};

/// A built-in bound to its receiver.
struct BoundFunction final : Callable {
  using Function = std::function<Value(Interpreter&, Arguments&)>;
  BoundFunction(std::string n, Function f) : label(std::move(n)), function(std::move(f)) {}
  std::string label;
  Function function;
  std::string name() const override { return label; }
  Value call(Interpreter& interpreter, Arguments& arguments) override { return function(interpreter, arguments); }
};

/// The `loop` variable of a for statement. Calling it runs a recursive loop's body again.
struct Loop final : Callable {
  std::vector<Value> items;   ///< emptied when the loop ends, should the object outlive it
  size_t n_items = 0;
  size_t index0 = 0;
  size_t depth0 = 0;
  std::optional<Arguments> last_changed;   ///< what loop.changed() saw before
  std::function<Value(Interpreter&, const Value& items)> recurse;   ///< empty unless the loop is recursive

  std::string name() const override { return "loop"; }
  Value call(Interpreter& interpreter, Arguments& arguments) override;
  Value attribute(Interpreter& interpreter, std::string_view name) override;
};

}  // namespace turbo::text::jinja
