// Filters about single values: numbers, defaults, JSON, attributes.
#include <cmath>

#include "text/template/builtins.h"
#include "text/template/format.h"
#include "text/template/numbers.h"
#include "text/template/operators.h"

namespace turbo::text::jinja {

namespace {

[[noreturn]] void fail_undefined(BuiltinCall& c) {
  c.heap.fail("{}", c.self.shared_text() ? c.self.text() : "value is undefined");
}

Value f_abs(BuiltinCall& c) {
  if (c.self.is(Kind::real)) return Value::real(std::fabs(c.self.as_real()));
  if (c.self.is_undefined()) fail_undefined(c);
  if (!c.self.is_integral()) c.heap.fail("bad operand type for abs(): '{}'", type_name(c.self));
  return c.self.as_int() < 0 ? negate(c.heap, c.self) : Value::integer(c.self.as_int());
}

Value f_default(BuiltinCall& c) {
  bool use = c.self.is_undefined() || (c.flag(1, false) && !truthy(c.self));
  if (!use) return c.self;
  return c.has(0) ? c.arg(0) : c.heap.string("");
}

Value from_real(BuiltinCall& c, double d, const Value& fallback) {
  if (!(std::fabs(d) < 9.2e18)) return fallback;   // also NaN and infinity
  (void)c;
  return Value::integer(static_cast<int64_t>(d));
}

Value f_int(BuiltinCall& c) {
  Value fallback = c.bound.get(0, Value::integer(0));
  if (c.self.is_integral()) return Value::integer(c.self.as_int());
  if (c.self.is_undefined()) fail_undefined(c);
  if (c.self.is(Kind::real)) return from_real(c, c.self.as_real(), fallback);
  if (!c.self.is_string()) return fallback;
  if (auto value = parse_integer(c.self.text(), c.integer(1, 10))) return Value::integer(*value);
  auto real = parse_real(c.self.text());
  return real ? from_real(c, *real, fallback) : fallback;
}

Value f_float(BuiltinCall& c) {
  Value fallback = c.bound.get(0, Value::real(0));
  if (c.self.is_number()) return Value::real(c.self.as_real());
  if (c.self.is_undefined()) fail_undefined(c);
  if (!c.self.is_string()) return fallback;
  auto real = parse_real(c.self.text());
  return real ? Value::real(*real) : fallback;
}

Value f_round(BuiltinCall& c) {
  std::string method = c.text(1, "common");
  int64_t digits = c.integer(0, 0);
  if (c.self.is_undefined()) fail_undefined(c);
  if (!c.self.is_number()) c.heap.fail("round needs a number, not '{}'", type_name(c.self));
  if (method == "common") {
    if (c.self.is_integral() && digits >= 0) return Value::integer(c.self.as_int());
    if (c.self.is_integral()) return Value::integer(static_cast<int64_t>(round_half_even(c.self.as_real(), digits)));
    return Value::real(round_half_even(c.self.as_real(), digits));
  }
  if (method != "ceil" && method != "floor") c.heap.fail("round method must be common, ceil or floor");
  double scale = std::pow(10.0, static_cast<double>(digits));
  double scaled = c.self.as_real() * scale;
  if (!std::isfinite(scaled) || scale == 0) c.heap.fail("rounding is out of range");
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value f_tojson(BuiltinCall& c) {
  JsonStyle style;
  style.ensure_ascii = c.flag(0, false);
  if (c.has(1) && !c.arg(1).is_none()) {
    style.pretty = true;
    style.item_separator = ",";
    int64_t width = c.arg(1).is_string() ? 0 : c.integer(1, 0);
    style.indent = c.arg(1).is_string() ? c.arg(1).text() : repeat_text(c.heap, " ", width).text();
  }
  if (c.has(2) && !c.arg(2).is_none()) {
    std::vector<Value> separators = iterate(c.heap, c.arg(2));
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
      c.heap.fail("separators must be a pair of strings");
    }
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  style.sort_keys = c.flag(3, false);
  return c.heap.string(to_json(c.heap, c.self, style));
}

// Attributes only, never items: what getattr() would find.
Value f_attr(BuiltinCall& c) {
  std::string name = c.text(0, "");
  if (c.self.is_mapping() && !find_method(Kind::dict, name)) {
    return c.heap.undefined(fmt::format("'dict object' has no attribute '{}'", name.substr(0, 60)));
  }
  return c.in.attribute(c.self, name);
}

Value f_length(BuiltinCall& c) { return Value::integer(length(c.heap, c.self)); }

constexpr Builtin kFilters[] = {
    {"abs", "", f_abs},
    {"default", "default_value?,boolean?", f_default},
    {"d", "default_value?,boolean?", f_default},
    {"int", "default?,base?", f_int},
    {"float", "default?", f_float},
    {"round", "precision?,method?", f_round},
    {"tojson", "ensure_ascii?,indent?,separators?,sort_keys?", f_tojson},
    {"attr", "name", f_attr},
    {"length", "", f_length},
    {"count", "", f_length},
};

}  // namespace

std::span<const Builtin> value_filters() { return kFilters; }

}  // namespace turbo::text::jinja
