// Functions every template can call.
#include <cctype>
#include <ctime>

#include "text/template/builtins.h"
#include "text/template/format.h"

namespace turbo::text::jinja {

namespace {

constexpr int64_t kMaxRangeItems = 100'000;
constexpr int64_t kMaxRangeEnd = int64_t{1} << 40;

Value g_range(BuiltinCall& c) {
  int64_t parts[3] = {0, 0, 1};
  size_t n = c.raw.positional.size();
  if (n < 1 || n > 3 || !c.raw.named.empty()) c.heap.fail("range() takes 1 to 3 arguments");
  for (size_t i = 0; i < n; ++i) {
    const Value& v = c.raw.positional[i];
    if (!v.is_integral()) c.heap.fail("'{}' object cannot be interpreted as an integer", type_name(v));
    if (v.as_int() > kMaxRangeEnd || v.as_int() < -kMaxRangeEnd) c.heap.exhausted("range() is too large, at most {} items", kMaxRangeItems);
    parts[n == 1 ? 1 : i] = v.as_int();
  }
  if (parts[2] == 0) c.heap.fail("range() step must not be zero");
  auto* range = c.heap.make<Range>();
  range->start = parts[0];
  range->stop = parts[1];
  range->step = parts[2];
  if (range->size() > kMaxRangeItems) c.heap.exhausted("range() is too large, at most {} items", kMaxRangeItems);
  return Value::object(Kind::range, range);
}

Value g_dict(BuiltinCall& c) {
  Dict* dict = c.heap.new_dict();
  merge_into(c.heap, *dict, c.raw);
  return Value::object(Kind::dict, dict);
}

Value g_namespace(BuiltinCall& c) {
  Dict* dict = c.heap.new_dict();
  merge_into(c.heap, *dict, c.raw);
  return Value::object(Kind::name_space, dict);
}

/// cycler(a, b, ...): next() walks round, current does not move, reset() starts over.
struct Cycler final : Callable {
  std::vector<Value> items;
  size_t at = 0;
  std::string name() const override { return "cycler"; }
  Value call(Interpreter& in, Arguments&) override { in.heap().fail("'Cycler' object is not callable"); }
  Value attribute(Interpreter& in, std::string_view attribute_name) override {
    if (attribute_name == "current") return items[at];
    bool is_next = attribute_name == "next";
    if (!is_next && attribute_name != "reset") return Value();
    return Value::object(Kind::callable, in.heap().make<BoundFunction>(std::string(attribute_name), [this, is_next](Interpreter&, Arguments&) {
      if (!is_next) {
        at = 0;
        return Value::none();
      }
      Value current = items[at];
      at = (at + 1) % items.size();
      return current;
    }));
  }
};

Value g_cycler(BuiltinCall& c) {
  if (c.raw.positional.empty()) c.heap.fail("at least one item has to be provided");
  auto* cycler = c.heap.make<Cycler>();
  cycler->items = c.raw.positional;
  return Value::object(Kind::callable, cycler);
}

/// joiner(sep): nothing on the first call, the separator on every later one.
struct Joiner final : Callable {
  Value separator;
  bool used = false;
  std::string name() const override { return "joiner"; }
  Value call(Interpreter& in, Arguments&) override {
    if (used) return separator;
    used = true;
    return in.heap().string("");
  }
};

Value g_joiner(BuiltinCall& c) {
  auto* joiner = c.heap.make<Joiner>();
  joiner->separator = c.has(0) ? c.arg(0) : c.heap.string(", ");
  return Value::object(Kind::callable, joiner);
}

Value g_raise(BuiltinCall& c) {
  throw TemplateError{Code::invalid_argument, c.in.text_of(c.arg(0)).substr(0, 4096), c.heap.line, true};
}

// strftime one directive at a time, so that no glibc padding width or unknown letter gets through.
Value g_strftime_now(BuiltinCall& c) {
  std::time_t now = c.in.options().now_unix_s ? static_cast<std::time_t>(*c.in.options().now_unix_s) : std::time(nullptr);
  std::tm local{};
  if (!localtime_r(&now, &local)) c.heap.fail("the date cannot be shown");
  std::string format = c.text(0, ""), out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 >= format.size()) {
      out.push_back(format[i]);
      continue;
    }
    std::string directive = "%";
    if (std::string_view("-_0^#").find(format[i + 1]) != std::string_view::npos && i + 2 < format.size()) directive += format[++i];
    directive += format[++i];
    if (directive.back() == 'f') {
      out += "000000";
      continue;
    }
    bool known = std::string_view("aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyYzZ%").find(directive.back()) != std::string_view::npos;
    char text[128];
    out += known ? std::string(text, std::strftime(text, sizeof(text), directive.c_str(), &local)) : directive;
    c.heap.step();
  }
  return c.heap.string(std::move(out));
}

constexpr Builtin kGlobals[] = {
    {"range", "*", g_range},
    {"dict", "*", g_dict},
    {"namespace", "*", g_namespace},
    {"cycler", "*", g_cycler},
    {"joiner", "sep?", g_joiner},
    {"raise_exception", "message", g_raise},
    {"strftime_now", "format", g_strftime_now},
};

}  // namespace

std::span<const Builtin> globals() { return kGlobals; }

}  // namespace turbo::text::jinja
