#include "text/template/operators.h"

#include <algorithm>
#include <cmath>

#include "text/template/format.h"
#include "text/template/utf8.h"

namespace turbo::text::jinja {

namespace {

const char* symbol(Op op) {
  static constexpr const char* kNames[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kNames[static_cast<size_t>(op)];
}

[[noreturn]] void bad_operands(Heap& heap, Op op, const Value& a, const Value& b) {
  for (const Value* v : {&a, &b}) {
    if (v->is_undefined()) heap.fail("{}", v->shared_text() ? v->text() : "value is undefined");
  }
  heap.fail("unsupported operand types for {}: '{}' and '{}'", symbol(op), type_name(a), type_name(b));
}

[[noreturn]] void too_large(Heap& heap) { heap.fail("integer result does not fit 64 bits"); }

int64_t floor_divide(int64_t a, int64_t b) {
  int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

double floor_mod(double a, double b) {
  double m = std::fmod(a, b);
  if (m != 0 && (m < 0) != (b < 0)) m += b;
  return m == 0 ? std::copysign(0.0, b) : m;
}

Value power(Heap& heap, int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) heap.fail("zero cannot be raised to a negative power");
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) too_large(heap);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) too_large(heap);
  }
  return Value::integer(result);
}

Value integer_arithmetic(Heap& heap, Op op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Op::add:
      if (__builtin_add_overflow(a, b, &result)) too_large(heap);
      return Value::integer(result);
    case Op::sub:
      if (__builtin_sub_overflow(a, b, &result)) too_large(heap);
      return Value::integer(result);
    case Op::mul:
      if (__builtin_mul_overflow(a, b, &result)) too_large(heap);
      return Value::integer(result);
    case Op::div:
      if (b == 0) heap.fail("division by zero");
      return Value::real(static_cast<double>(a) / static_cast<double>(b));
    case Op::floor_div:
    case Op::mod:
      if (b == 0) heap.fail("division by zero");
      if (b == -1) {
        if (op == Op::mod) return Value::integer(0);
        if (__builtin_sub_overflow(int64_t{0}, a, &result)) too_large(heap);
        return Value::integer(result);
      }
      return Value::integer(op == Op::floor_div ? floor_divide(a, b) : a - floor_divide(a, b) * b);
    default: return power(heap, a, b);
  }
}

Value real_arithmetic(Heap& heap, Op op, double a, double b) {
  switch (op) {
    case Op::add: return Value::real(a + b);
    case Op::sub: return Value::real(a - b);
    case Op::mul: return Value::real(a * b);
    case Op::div:
    case Op::floor_div:
    case Op::mod:
      if (b == 0) heap.fail("division by zero");
      if (op == Op::div) return Value::real(a / b);
      if (op == Op::floor_div) return Value::real(std::round((a - floor_mod(a, b)) / b));
      return Value::real(floor_mod(a, b));
    default: {
      if (a == 0 && b < 0) heap.fail("zero cannot be raised to a negative power");
      double result = std::pow(a, b);
      if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) heap.fail("power has no real result");
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) heap.fail("numerical result out of range");
      return Value::real(result);
    }
  }
}

Value repeat_items(Heap& heap, const Value& sequence, int64_t count) {
  const auto& items = sequence.items();
  std::vector<Value> out;
  if (count > 0 && !items.empty()) {
    uint64_t total = 0;
    if (__builtin_mul_overflow(items.size(), static_cast<uint64_t>(count), &total) || total > UINT32_MAX) total = UINT32_MAX;
    heap.step(total);
    heap.reserve(total * sizeof(Value));
    out.reserve(total);
    for (int64_t i = 0; i < count; ++i) out.insert(out.end(), items.begin(), items.end());
  }
  return sequence.is(Kind::list) ? heap.list(std::move(out)) : heap.tuple(std::move(out));
}

Value concatenate(Heap& heap, const Value& a, const Value& b) {
  if (a.is_string()) {
    heap.reserve(a.text().size() + b.text().size());
    return heap.string(a.text() + b.text());
  }
  heap.step((a.items().size() + b.items().size()) / 8);
  heap.reserve((a.items().size() + b.items().size()) * sizeof(Value));
  std::vector<Value> out = a.items();
  out.insert(out.end(), b.items().begin(), b.items().end());
  return a.is(Kind::list) ? heap.list(std::move(out)) : heap.tuple(std::move(out));
}

}  // namespace

Value repeat_text(Heap& heap, std::string_view text, int64_t count) {
  if (count <= 0 || text.empty()) return heap.string({});
  uint64_t total = 0;
  if (__builtin_mul_overflow(text.size(), static_cast<uint64_t>(count), &total)) total = UINT64_MAX;
  heap.reserve(total);
  heap.work(total);
  std::string out;
  out.reserve(total);
  out.append(text);
  while (out.size() < total) out.append(out, 0, std::min<size_t>(out.size(), total - out.size()));
  return heap.string(std::move(out));
}

Value arithmetic(Heap& heap, Op op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return integer_arithmetic(heap, op, a.as_int(), b.as_int());
    return real_arithmetic(heap, op, a.as_real(), b.as_real());
  }
  if (op == Op::add && a.kind() == b.kind() && (a.is_string() || a.is_sequence())) return concatenate(heap, a, b);
  if (op == Op::mul) {
    const Value& body = a.is_integral() ? b : a;
    const Value& count = a.is_integral() ? a : b;
    if (count.is_integral() && body.is_string()) return repeat_text(heap, body.text(), count.as_int());
    if (count.is_integral() && body.is_sequence()) return repeat_items(heap, body, count.as_int());
  }
  if (op == Op::mod && a.is_string()) {
    Arguments arguments;
    if (b.is(Kind::tuple)) {
      arguments.positional = b.items();
    } else {
      arguments.positional.push_back(b);
    }
    return heap.string(format_percent(heap, a.text(), arguments));
  }
  bad_operands(heap, op, a, b);
}

Value negate(Heap& heap, const Value& v) {
  if (v.is(Kind::real)) return Value::real(-v.as_real());
  if (v.is_integral()) return integer_arithmetic(heap, Op::sub, 0, v.as_int());
  if (v.is_undefined()) bad_operands(heap, Op::sub, v, v);
  heap.fail("bad operand type for unary -: '{}'", type_name(v));
}

Value plus(Heap& heap, const Value& v) {
  if (v.is(Kind::real)) return v;
  if (v.is_integral()) return Value::integer(v.as_int());
  if (v.is_undefined()) bad_operands(heap, Op::add, v, v);
  heap.fail("bad operand type for unary +: '{}'", type_name(v));
}

namespace {

struct SliceRange {
  int64_t start, step, count;
};

int64_t slice_part(Heap& heap, const Value& part, int64_t fallback) {
  if (part.is_none() || part.is_undefined()) return fallback;
  if (!part.is_integral()) heap.fail("slice indices must be integers or None, not '{}'", type_name(part));
  return part.as_int();
}

SliceRange resolve_slice(Heap& heap, int64_t size, const Value& start, const Value& stop, const Value& step) {
  int64_t by = slice_part(heap, step, 1);
  if (by == 0) heap.fail("slice step cannot be zero");
  by = std::clamp<int64_t>(by, -(size + 1), size + 1);   // keeps the sums below in range
  auto clamp_end = [&](const Value& part, int64_t fallback) {
    int64_t i = slice_part(heap, part, fallback);
    if (part.is_none() || part.is_undefined()) return i;
    if (i < 0) i = i < -size ? -1 : i + size;
    return by > 0 ? std::clamp<int64_t>(i, 0, size) : std::clamp<int64_t>(i, -1, size - 1);
  };
  int64_t from = clamp_end(start, by > 0 ? 0 : size - 1);
  int64_t to = clamp_end(stop, by > 0 ? size : -1);
  int64_t count = by > 0 ? (to > from ? (to - from - 1) / by + 1 : 0) : (from > to ? (from - to - 1) / -by + 1 : 0);
  return {from, by, count};
}

Value slice_text(Heap& heap, const StringBox& box, const SliceRange& r) {
  const std::string& text = box.text;
  std::string out;
  if (r.step == 1) {
    size_t from = box.is_ascii() ? static_cast<size_t>(r.start) : byte_offset(text, static_cast<size_t>(r.start));
    if (r.count == 0) return heap.string({});
    size_t bytes = box.is_ascii() ? static_cast<size_t>(r.count)
                                  : byte_offset(std::string_view(text).substr(from), static_cast<size_t>(r.count));
    return heap.string(text.substr(from, bytes));
  }
  std::vector<uint32_t> offsets;   // of each code point, and the end
  heap.reserve(box.n_code_points * sizeof(uint32_t) + text.size());
  for (size_t pos = 0; pos < text.size(); pos += decode_at(text, pos).bytes) offsets.push_back(static_cast<uint32_t>(pos));
  offsets.push_back(static_cast<uint32_t>(text.size()));
  for (int64_t i = 0; i < r.count; ++i) {
    size_t at = static_cast<size_t>(r.start + i * r.step);
    out.append(text, offsets[at], offsets[at + 1] - offsets[at]);
  }
  return heap.string(std::move(out));
}

}  // namespace

Value slice(Heap& heap, const Value& base, const Value& start, const Value& stop, const Value& step) {
  if (base.is_undefined()) heap.fail("{}", base.shared_text() ? base.text() : "value is undefined");
  if (base.is_string()) {
    SliceRange r = resolve_slice(heap, static_cast<int64_t>(base.box().n_code_points), start, stop, step);
    heap.work(base.text().size());
    return slice_text(heap, base.box(), r);
  }
  if (base.is(Kind::range)) {
    const Range& range = base.range();
    SliceRange r = resolve_slice(heap, range.size(), start, stop, step);
    Range* out = heap.make<Range>();
    out->start = range.at(r.start);
    out->step = range.step * r.step;
    out->stop = out->start + out->step * r.count;
    return Value::object(Kind::range, out);
  }
  if (!base.is_sequence()) return Value::undefined(heap.string(fmt::format("'{}' cannot be sliced", type_name(base))).shared_text());
  const auto& items = base.items();
  SliceRange r = resolve_slice(heap, static_cast<int64_t>(items.size()), start, stop, step);
  heap.step(static_cast<uint64_t>(r.count) / 8);
  heap.reserve(static_cast<uint64_t>(r.count) * sizeof(Value));
  std::vector<Value> out;
  out.reserve(static_cast<size_t>(r.count));
  for (int64_t i = 0; i < r.count; ++i) out.push_back(items[static_cast<size_t>(r.start + i * r.step)]);
  return base.is(Kind::list) ? heap.list(std::move(out)) : heap.tuple(std::move(out));
}

}  // namespace turbo::text::jinja
