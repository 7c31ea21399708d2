// The tables of filters, tests, methods and global functions, and how one of them is called.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/template/callable.h"
#include "text/template/interpreter.h"

namespace turbo::text::jinja {

struct BuiltinCall {
  Interpreter& in;
  Heap& heap;
  const Value& self;    ///< filtered or tested value, or the method's receiver
  Arguments& raw;
  Bound bound;          ///< empty when the entry's params are "*"

  bool has(size_t i) const { return bound.has(i); }
  const Value& arg(size_t i) const { return bound.at(i); }
  /// The argument as that type, or a failure naming it; `fallback` when it was not given (or is None).
  int64_t integer(size_t i, int64_t fallback) const;
  bool flag(size_t i, bool fallback) const;
  std::string text(size_t i, std::string fallback) const;
};

struct Builtin {
  std::string_view name;
  std::string_view params;   ///< see bind_arguments(); "*" = takes `raw` as it comes
  Value (*function)(BuiltinCall& call);
};

Value call_builtin(Interpreter& in, const Builtin& builtin, const Value& self, Arguments& arguments);

/// Null when there is none of that name.
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_method(Kind kind, std::string_view name);
const Builtin* find_global(std::string_view name);

/// dict(mapping or pairs, name=value, ...) written into `dict`.
void merge_into(Heap& heap, Dict& dict, const Arguments& arguments);

std::span<const Builtin> text_filters();
std::span<const Builtin> value_filters();
std::span<const Builtin> sequence_filters();
std::span<const Builtin> selection_filters();
std::span<const Builtin> tests();
std::span<const Builtin> string_methods();
std::span<const Builtin> list_methods();
std::span<const Builtin> tuple_methods();
std::span<const Builtin> dict_methods();
std::span<const Builtin> globals();

}  // namespace turbo::text::jinja
