// The tests that `is` and select() apply.
#include "text/template/builtins.h"
#include "text/template/operators.h"
#include "text/template/utf8.h"

namespace turbo::text::jinja {

namespace {

Value yes(bool b) { return Value::boolean(b); }

Value t_defined(BuiltinCall& c) { return yes(!c.self.is_undefined()); }
Value t_undefined(BuiltinCall& c) { return yes(c.self.is_undefined()); }
Value t_none(BuiltinCall& c) { return yes(c.self.is_none()); }
Value t_string(BuiltinCall& c) { return yes(c.self.is_string()); }
Value t_number(BuiltinCall& c) { return yes(c.self.is_number()); }
Value t_integer(BuiltinCall& c) { return yes(c.self.is(Kind::integer)); }
Value t_float(BuiltinCall& c) { return yes(c.self.is(Kind::real)); }
Value t_boolean(BuiltinCall& c) { return yes(c.self.is(Kind::boolean)); }
Value t_true(BuiltinCall& c) { return yes(c.self.is(Kind::boolean) && c.self.as_int()); }
Value t_false(BuiltinCall& c) { return yes(c.self.is(Kind::boolean) && !c.self.as_int()); }
Value t_mapping(BuiltinCall& c) { return yes(c.self.is_mapping()); }

// len() and [] both work, as on text, lists, tuples, mappings and ranges.
bool is_sequence(const Value& v) {
  return v.is_string() || v.is_sequence() || v.is_mapping() || v.is(Kind::range) || v.is_undefined();
}
Value t_sequence(BuiltinCall& c) { return yes(is_sequence(c.self)); }
Value t_iterable(BuiltinCall& c) { return yes(is_sequence(c.self)); }
Value t_callable(BuiltinCall& c) {
  return yes(c.self.is(Kind::callable) || c.self.is(Kind::loop) || c.self.is_undefined());
}

Value remainder_is(BuiltinCall& c, const Value& divisor, int64_t expected) {
  return yes(equal(c.heap, arithmetic(c.heap, Op::mod, c.self, divisor), Value::integer(expected)));
}
Value t_odd(BuiltinCall& c) { return remainder_is(c, Value::integer(2), 1); }
Value t_even(BuiltinCall& c) { return remainder_is(c, Value::integer(2), 0); }
Value t_divisibleby(BuiltinCall& c) { return remainder_is(c, c.arg(0), 0); }

Value t_eq(BuiltinCall& c) { return yes(equal(c.heap, c.self, c.arg(0))); }
Value t_ne(BuiltinCall& c) { return yes(!equal(c.heap, c.self, c.arg(0))); }
Value t_lt(BuiltinCall& c) { return yes(compare(c.heap, c.self, c.arg(0)) < 0); }
Value t_le(BuiltinCall& c) { return yes(compare(c.heap, c.self, c.arg(0)) <= 0); }
Value t_gt(BuiltinCall& c) { return yes(compare(c.heap, c.self, c.arg(0)) > 0); }
Value t_ge(BuiltinCall& c) { return yes(compare(c.heap, c.self, c.arg(0)) >= 0); }
Value t_in(BuiltinCall& c) { return yes(contains(c.heap, c.arg(0), c.self)); }

// str.islower / isupper: some cased letter, and none of the other case.
bool all_of_case(const std::string& text, bool upper_case) {
  bool some = false;
  for (size_t pos = 0; pos < text.size();) {
    CodePoint cp = decode_at(text, pos);
    if (upper_case ? is_lower(cp.value) : is_upper(cp.value)) return false;
    some |= upper_case ? is_upper(cp.value) : is_lower(cp.value);
    pos += cp.bytes;
  }
  return some;
}
Value t_lower(BuiltinCall& c) { return yes(all_of_case(c.in.text_of(c.self), false)); }
Value t_upper(BuiltinCall& c) { return yes(all_of_case(c.in.text_of(c.self), true)); }

Value t_sameas(BuiltinCall& c) {
  const Value &a = c.self, &b = c.arg(0);
  if (a.kind() != b.kind()) return yes(false);
  bool is_object = a.is_sequence() || a.is_mapping() || a.is(Kind::range) || a.is(Kind::name_space) || a.is(Kind::callable) ||
                   a.is(Kind::loop);
  return yes(is_object ? a.object() == b.object() : equal(c.heap, a, b));
}

Value t_filter(BuiltinCall& c) { return yes(c.self.is_string() && find_filter(c.self.text())); }
Value t_test(BuiltinCall& c) { return yes(c.self.is_string() && find_test(c.self.text())); }

constexpr Builtin kTests[] = {
    {"defined", "", t_defined},
    {"undefined", "", t_undefined},
    {"none", "", t_none},
    {"string", "", t_string},
    {"number", "", t_number},
    {"integer", "", t_integer},
    {"float", "", t_float},
    {"boolean", "", t_boolean},
    {"true", "", t_true},
    {"false", "", t_false},
    {"mapping", "", t_mapping},
    {"sequence", "", t_sequence},
    {"iterable", "", t_iterable},
    {"callable", "", t_callable},
    {"odd", "", t_odd},
    {"even", "", t_even},
    {"divisibleby", "num", t_divisibleby},
    {"eq", "other", t_eq},
    {"equalto", "other", t_eq},
    {"==", "other", t_eq},
    {"ne", "other", t_ne},
    {"!=", "other", t_ne},
    {"lt", "other", t_lt},
    {"lessthan", "other", t_lt},
    {"<", "other", t_lt},
    {"le", "other", t_le},
    {"<=", "other", t_le},
    {"gt", "other", t_gt},
    {"greaterthan", "other", t_gt},
    {">", "other", t_gt},
    {"ge", "other", t_ge},
    {">=", "other", t_ge},
    {"in", "seq", t_in},
    {"lower", "", t_lower},
    {"upper", "", t_upper},
    {"sameas", "other", t_sameas},
    {"filter", "", t_filter},
    {"test", "", t_test},
};

}  // namespace

std::span<const Builtin> tests() { return kTests; }

}  // namespace turbo::text::jinja
