// Methods of list, tuple and dict. Containers belong to the render, so changing one cannot reach the caller's data.
#include <algorithm>

#include "text/template/builtins.h"
#include "text/template/format.h"

namespace turbo::text::jinja {

namespace {

std::vector<Value>& items(const BuiltinCall& c) { return c.self.items(); }

void grow(BuiltinCall& c, size_t n) {
  c.heap.step(n / 8);
  c.heap.charge_items(n);
}

Value l_append(BuiltinCall& c) {
  grow(c, 1);
  items(c).push_back(c.arg(0));
  return Value::none();
}

Value l_extend(BuiltinCall& c) {
  std::vector<Value> more = iterate(c.heap, c.arg(0));
  grow(c, more.size());
  items(c).insert(items(c).end(), more.begin(), more.end());
  return Value::none();
}

Value l_insert(BuiltinCall& c) {
  int64_t size = static_cast<int64_t>(items(c).size()), at = c.integer(0, 0);
  if (at < 0) at = std::max<int64_t>(at + size, 0);
  grow(c, 1);
  c.heap.step(items(c).size() / 64);
  items(c).insert(items(c).begin() + std::min(at, size), c.arg(1));
  return Value::none();
}

Value l_pop(BuiltinCall& c) {
  int64_t size = static_cast<int64_t>(items(c).size()), at = c.integer(0, -1);
  if (size == 0) c.heap.fail("pop from empty list");
  if (at < 0) at += size;
  if (at < 0 || at >= size) c.heap.fail("pop index out of range");
  c.heap.step(items(c).size() / 64);
  Value value = items(c)[static_cast<size_t>(at)];
  items(c).erase(items(c).begin() + at);
  return value;
}

int64_t position(BuiltinCall& c) {
  for (size_t i = 0; i < items(c).size(); ++i) {
    if (equal(c.heap, items(c)[i], c.arg(0))) return static_cast<int64_t>(i);
  }
  return -1;
}

Value l_index(BuiltinCall& c) {
  int64_t at = position(c);
  if (at < 0) c.heap.fail("{} is not in the list", repr(c.heap, c.arg(0)).substr(0, 60));
  return Value::integer(at);
}

Value l_remove(BuiltinCall& c) {
  int64_t at = position(c);
  if (at < 0) c.heap.fail("list.remove(x): x not in list");
  items(c).erase(items(c).begin() + at);
  return Value::none();
}

Value l_count(BuiltinCall& c) {
  int64_t count = 0;
  for (const Value& item : items(c)) count += equal(c.heap, item, c.arg(0));
  return Value::integer(count);
}

Value l_reverse(BuiltinCall& c) {
  c.heap.step(items(c).size() / 8);
  std::reverse(items(c).begin(), items(c).end());
  return Value::none();
}

Value l_sort(BuiltinCall& c) {
  bool descending = c.flag(0, false);
  std::vector<Value> sorted = items(c);
  std::stable_sort(sorted.begin(), sorted.end(), [&](const Value& a, const Value& b) {
    return descending ? compare(c.heap, b, a) < 0 : compare(c.heap, a, b) < 0;
  });
  items(c) = std::move(sorted);
  return Value::none();
}

Value l_copy(BuiltinCall& c) { return c.heap.list(iterate(c.heap, c.self)); }

Value l_clear(BuiltinCall& c) {
  items(c).clear();
  return Value::none();
}

constexpr Builtin kListMethods[] = {
    {"append", "object", l_append}, {"extend", "iterable", l_extend}, {"insert", "index,object", l_insert},
    {"pop", "index?", l_pop},       {"index", "value", l_index},      {"remove", "value", l_remove},
    {"count", "value", l_count},    {"reverse", "", l_reverse},       {"sort", "reverse?", l_sort},
    {"copy", "", l_copy},           {"clear", "", l_clear},
};

constexpr Builtin kTupleMethods[] = {{"index", "value", l_index}, {"count", "value", l_count}};

Dict& dict(const BuiltinCall& c) { return c.self.dict(); }

Value* look_up(BuiltinCall& c) {
  require_hashable(c.heap, c.arg(0));
  return dict(c).find(c.arg(0));
}

Value d_get(BuiltinCall& c) {
  Value* found = look_up(c);
  return found ? *found : c.bound.get(1, Value::none());
}

Value d_keys(BuiltinCall& c) { return c.heap.list(iterate(c.heap, c.self)); }

Value d_values(BuiltinCall& c) {
  std::vector<Value> out;
  c.heap.step(dict(c).entries.size() / 8);
  for (auto& [key, value] : dict(c).entries) out.push_back(value);
  return c.heap.list(std::move(out));
}

Value d_items(BuiltinCall& c) {
  std::vector<Value> out;
  for (auto& [key, value] : dict(c).entries) {
    c.heap.step();
    out.push_back(c.heap.tuple({key, value}));
  }
  return c.heap.list(std::move(out));
}

Value d_pop(BuiltinCall& c) {
  Value* found = look_up(c);
  if (!found) {
    if (c.has(1)) return c.arg(1);
    c.heap.fail("key {} not found", repr(c.heap, c.arg(0)).substr(0, 60));
  }
  Value value = *found;
  c.heap.step(dict(c).entries.size());
  dict(c).erase(c.arg(0));
  return value;
}

Value d_popitem(BuiltinCall& c) {
  if (dict(c).entries.empty()) c.heap.fail("popitem(): dictionary is empty");
  auto [key, value] = dict(c).entries.back();
  c.heap.step(dict(c).entries.size());
  dict(c).erase(key);
  return c.heap.tuple({key, value});
}

Value d_setdefault(BuiltinCall& c) {
  if (Value* found = look_up(c)) return *found;
  Value value = c.bound.get(1, Value::none());
  dict(c).set(c.heap, c.arg(0), value);
  return value;
}

Value d_copy(BuiltinCall& c) {
  Dict* copy = c.heap.new_dict();
  c.heap.step(dict(c).entries.size());
  for (auto& [key, value] : dict(c).entries) copy->set(c.heap, key, value);
  return Value::object(Kind::dict, copy);
}

Value d_clear(BuiltinCall& c) {
  dict(c).clear();
  return Value::none();
}

Value d_update(BuiltinCall& c) {
  merge_into(c.heap, dict(c), c.raw);
  return Value::none();
}

constexpr Builtin kDictMethods[] = {
    {"get", "key,default?", d_get}, {"keys", "", d_keys},       {"values", "", d_values},
    {"items", "", d_items},         {"pop", "key,default?", d_pop}, {"popitem", "", d_popitem},
    {"setdefault", "key,default?", d_setdefault}, {"copy", "", d_copy}, {"clear", "", d_clear},
    {"update", "*", d_update},
};

}  // namespace

void merge_into(Heap& heap, Dict& dict, const Arguments& arguments) {
  if (arguments.positional.size() > 1) heap.fail("expected at most 1 mapping");
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is_mapping() || source.is(Kind::name_space)) {
      auto entries = source.dict().entries;   // a copy: the source may be `dict` itself
      heap.step(entries.size());
      for (auto& [key, value] : entries) dict.set(heap, key, value);
    } else {
      for (const Value& item : iterate(heap, source)) {
        std::vector<Value> pair = iterate(heap, item);
        if (pair.size() != 2) heap.fail("a mapping is made of pairs, not of {} values", pair.size());
        require_hashable(heap, pair[0]);
        dict.set(heap, pair[0], pair[1]);
      }
    }
  }
  for (auto& [name, value] : arguments.named) dict.set(heap, heap.string(name), value);
}

std::span<const Builtin> list_methods() { return kListMethods; }
std::span<const Builtin> tuple_methods() { return kTupleMethods; }
std::span<const Builtin> dict_methods() { return kDictMethods; }

}  // namespace turbo::text::jinja
