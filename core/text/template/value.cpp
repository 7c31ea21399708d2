#include "text/template/value.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "text/template/callable.h"
#include "text/template/utf8.h"

namespace turbo::text::jinja {

StringBox::StringBox(std::string t, Heap* h) : text(std::move(t)), n_code_points(count_code_points(text)), heap(h) {}
StringBox::~StringBox() {
  if (heap) heap->release(text.size() + sizeof(StringBox));
}

List& Value::list() const { return *static_cast<List*>(object_); }
std::vector<Value>& Value::items() const { return static_cast<List*>(object_)->items; }
Dict& Value::dict() const { return *static_cast<Dict*>(object_); }
const Range& Value::range() const { return *static_cast<Range*>(object_); }
Callable& Value::callable() const { return *static_cast<Callable*>(object_); }
Loop& Value::loop() const { return *static_cast<Loop*>(object_); }

int64_t Range::size() const {
  // Ends are bounded by the callers (see range()), so nothing here can overflow.
  if (step > 0) return stop > start ? (stop - start - 1) / step + 1 : 0;
  return start > stop ? (start - stop - 1) / -step + 1 : 0;
}

Value Heap::string(std::string text) {
  work(text.size());
  charge(text.size() + sizeof(StringBox));
  return Value::string(std::make_shared<const StringBox>(std::move(text), this));
}

Value Heap::sequence(Kind kind, std::vector<Value> items) {
  charge_items(items.size());
  List* list = make<List>();
  list->items = std::move(items);
  return Value::object(kind, list);
}

Value constant_string(std::string text) {
  return Value::string(std::make_shared<const StringBox>(std::move(text), nullptr));
}

size_t find_text(std::string_view haystack, std::string_view needle, size_t from) {
  if (from > haystack.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  const void* hit = memmem(haystack.data() + from, haystack.size() - from, needle.data(), needle.size());
  if (!hit) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(hit) - haystack.data());
}

bool truthy(const Value& v) {
  switch (v.kind()) {
    case Kind::undefined:
    case Kind::none: return false;
    case Kind::boolean:
    case Kind::integer: return v.as_int() != 0;
    case Kind::real: return v.as_real() != 0;
    case Kind::string: return !v.text().empty();
    case Kind::list:
    case Kind::tuple: return !v.items().empty();
    case Kind::dict: return !v.dict().entries.empty();
    case Kind::range: return v.range().size() != 0;
    default: return true;
  }
}

const char* type_name(const Value& v) {
  switch (v.kind()) {
    case Kind::undefined: return "Undefined";
    case Kind::none: return "NoneType";
    case Kind::boolean: return "bool";
    case Kind::integer: return "int";
    case Kind::real: return "float";
    case Kind::string: return "str";
    case Kind::list: return "list";
    case Kind::tuple: return "tuple";
    case Kind::dict: return "dict";
    case Kind::range: return "range";
    case Kind::name_space: return "Namespace";
    case Kind::callable: return "function";
    case Kind::loop: return "LoopContext";
  }
  return "object";
}

namespace {

uint64_t mix(uint64_t seed, uint64_t value) {
  return (seed ^ value) * 0x9E3779B97F4A7C15ull + (seed << 6) + (seed >> 2);
}

uint64_t hash_text(std::string_view text) { return std::hash<std::string_view>{}(text); }

// Numbers that compare equal hash equal, whatever their kind.
uint64_t hash_number(const Value& v) {
  if (v.is_integral()) return std::hash<int64_t>{}(v.as_int());
  double d = v.as_real();
  if (d == std::floor(d) && std::fabs(d) < 9e18) return std::hash<int64_t>{}(static_cast<int64_t>(d));
  return std::hash<double>{}(d);
}

// Keys were checked by require_hashable, so tuples here are of bounded depth.
uint64_t hash_key(const Value& v) {
  if (v.is_string()) return hash_text(v.text());
  if (v.is_number()) return hash_number(v);
  if (v.is(Kind::tuple)) {
    uint64_t seed = v.items().size();
    for (const Value& item : v.items()) seed = mix(seed, hash_key(item));
    return seed;
  }
  return static_cast<uint64_t>(v.kind());
}

bool same_key(const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) return a.text() == b.text();
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
    return a.as_real() == b.as_real();
  }
  if (a.kind() != b.kind()) return false;
  if (a.is(Kind::tuple)) {
    return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), same_key);
  }
  return a.is_none() || a.is_undefined() || a.object() == b.object();
}

bool equal_items(Heap& heap, const std::vector<Value>& a, const std::vector<Value>& b, size_t depth) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!equal(heap, a[i], b[i], depth + 1)) return false;
  }
  return true;
}

bool equal_dicts(Heap& heap, Dict& a, Dict& b, size_t depth) {
  if (a.entries.size() != b.entries.size()) return false;
  for (auto& [key, value] : a.entries) {
    Value* other = b.find(key);
    if (!other || !equal(heap, value, *other, depth + 1)) return false;
  }
  return true;
}

}  // namespace

Value* Dict::find(const Value& key) {
  if (entries.size() <= kIndexFrom) {
    for (auto& [k, v] : entries) {
      if (same_key(k, key)) return &v;
    }
    return nullptr;
  }
  auto [begin, end] = index_.equal_range(hash_key(key));
  for (auto it = begin; it != end; ++it) {
    if (same_key(entries[it->second].first, key)) return &entries[it->second].second;
  }
  return nullptr;
}

Value* Dict::find(std::string_view key) {
  if (entries.size() <= kIndexFrom) {
    for (auto& [k, v] : entries) {
      if (k.is_string() && k.text() == key) return &v;
    }
    return nullptr;
  }
  auto [begin, end] = index_.equal_range(hash_text(key));
  for (auto it = begin; it != end; ++it) {
    auto& [k, v] = entries[it->second];
    if (k.is_string() && k.text() == key) return &v;
  }
  return nullptr;
}

void Dict::set(Heap& heap, const Value& key, Value value) {
  if (Value* existing = find(key)) {
    *existing = std::move(value);
    return;
  }
  heap.charge(2 * sizeof(Value) + 4 * sizeof(void*));
  entries.emplace_back(key, std::move(value));
  if (entries.size() == kIndexFrom + 1) {
    rebuild_index();
  } else if (entries.size() > kIndexFrom) {
    index_.emplace(hash_key(key), entries.size() - 1);
  }
}

void Dict::erase(const Value& key) {
  auto at = std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return same_key(e.first, key); });
  if (at == entries.end()) return;
  entries.erase(at);
  rebuild_index();
}

void Dict::clear() {
  entries.clear();
  index_.clear();
}

void Dict::rebuild_index() {
  index_.clear();
  if (entries.size() <= kIndexFrom) return;
  for (size_t i = 0; i < entries.size(); ++i) index_.emplace(hash_key(entries[i].first), i);
}

bool equal(Heap& heap, const Value& a, const Value& b, size_t depth) {
  heap.step();
  heap.check_depth(depth);
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
    return a.as_real() == b.as_real();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none: return true;
    case Kind::string:
      heap.work(std::min(a.text().size(), b.text().size()));
      return a.text() == b.text();
    case Kind::list:
    case Kind::tuple: return a.object() == b.object() || equal_items(heap, a.items(), b.items(), depth);
    case Kind::dict: return a.object() == b.object() || equal_dicts(heap, a.dict(), b.dict(), depth);
    case Kind::range: {
      const Range &x = a.range(), &y = b.range();
      int64_t n = x.size();
      return n == y.size() && (n == 0 || (x.start == y.start && (n == 1 || x.step == y.step)));
    }
    default: return a.object() == b.object();
  }
}

int compare(Heap& heap, const Value& a, const Value& b, size_t depth) {
  heap.step();
  heap.check_depth(depth);
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int();
    double x = a.as_real(), y = b.as_real();
    return x < y ? -1 : x > y;
  }
  if (a.is_string() && b.is_string()) {
    heap.work(std::min(a.text().size(), b.text().size()));
    return a.text().compare(b.text());   // UTF-8 order is code-point order
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const auto &x = a.items(), &y = b.items();
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equal(heap, x[i], y[i], depth + 1)) return compare(heap, x[i], y[i], depth + 1);
    }
    return x.size() < y.size() ? -1 : x.size() > y.size();
  }
  if (a.is_undefined() || b.is_undefined()) {
    const Value& missing = a.is_undefined() ? a : b;
    heap.fail("{}", missing.shared_text() ? missing.text() : "value is undefined");
  }
  heap.fail("cannot order '{}' and '{}'", type_name(a), type_name(b));
}

bool contains(Heap& heap, const Value& haystack, const Value& needle) {
  switch (haystack.kind()) {
    case Kind::string:
      if (!needle.is_string()) heap.fail("'in <string>' requires a string, not '{}'", type_name(needle));
      heap.work(haystack.text().size());
      return find_text(haystack.text(), needle.text()) != std::string_view::npos;
    case Kind::list:
    case Kind::tuple:
      for (const Value& item : haystack.items()) {
        if (equal(heap, item, needle)) return true;
      }
      return false;
    case Kind::dict:
      require_hashable(heap, needle);
      return haystack.dict().find(needle) != nullptr;
    case Kind::range: {
      const Range& r = haystack.range();
      if (!needle.is_integral()) return false;
      int64_t n = r.size(), offset = 0;
      if (n == 0 || __builtin_sub_overflow(needle.as_int(), r.start, &offset)) return false;
      return offset % r.step == 0 && offset / r.step >= 0 && offset / r.step < n;
    }
    case Kind::undefined: return false;
    default: heap.fail("argument of type '{}' is not iterable", type_name(haystack));
  }
}

void require_hashable(Heap& heap, const Value& key, size_t depth) {
  heap.check_depth(depth);
  if (key.is(Kind::list) || key.is(Kind::dict)) heap.fail("unhashable type: '{}'", type_name(key));
  if (key.is(Kind::tuple)) {
    for (const Value& item : key.items()) require_hashable(heap, item, depth + 1);
  }
}

int64_t length(Heap& heap, const Value& v) {
  switch (v.kind()) {
    case Kind::undefined: return 0;
    case Kind::string: return static_cast<int64_t>(v.box().n_code_points);
    case Kind::list:
    case Kind::tuple: return static_cast<int64_t>(v.items().size());
    case Kind::dict: return static_cast<int64_t>(v.dict().entries.size());
    case Kind::range: return v.range().size();
    case Kind::loop: return static_cast<int64_t>(v.loop().n_items);
    default: heap.fail("object of type '{}' has no length", type_name(v));
  }
}

std::vector<Value> iterate(Heap& heap, const Value& v) {
  std::vector<Value> out;
  switch (v.kind()) {
    case Kind::undefined: return out;
    case Kind::list:
    case Kind::tuple:
      heap.reserve(v.items().size() * sizeof(Value));
      heap.step(v.items().size() / 8);
      return v.items();
    case Kind::dict:
      heap.step(v.dict().entries.size() / 8);
      for (auto& [key, value] : v.dict().entries) out.push_back(key);
      return out;
    case Kind::range: {
      int64_t n = v.range().size();
      heap.step(static_cast<uint64_t>(n) / 8);
      for (int64_t i = 0; i < n; ++i) out.push_back(Value::integer(v.range().at(i)));
      return out;
    }
    case Kind::string: {
      const std::string& text = v.text();
      heap.step(v.box().n_code_points);
      heap.reserve(v.box().n_code_points * (sizeof(Value) + sizeof(StringBox)));
      for (size_t pos = 0; pos < text.size();) {
        size_t bytes = decode_at(text, pos).bytes;
        out.push_back(heap.string(text.substr(pos, bytes)));
        pos += bytes;
      }
      return out;
    }
    default: heap.fail("'{}' object is not iterable", type_name(v));
  }
}

}  // namespace turbo::text::jinja
