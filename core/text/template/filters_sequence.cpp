// Filters that read a sequence as a whole.
#include <algorithm>

#include "text/template/builtins.h"
#include "text/template/format.h"
#include "text/template/operators.h"
#include "text/template/utf8.h"

namespace turbo::text::jinja {

namespace {

bool given(const BuiltinCall& c, size_t i) { return c.has(i) && !c.arg(i).is_none(); }

Value fold_case(BuiltinCall& c, const Value& v, bool case_sensitive) {
  return v.is_string() && !case_sensitive ? c.heap.string(lower(v.text())) : v;
}

// What sort, min, max and unique compare: the item or its attribute, in lower case unless told otherwise.
Value sort_key(BuiltinCall& c, const Value& item, const Value* attribute, bool case_sensitive) {
  return fold_case(c, attribute ? c.in.attribute_path(item, *attribute) : item, case_sensitive);
}

const Value* attribute_argument(const BuiltinCall& c, size_t i) { return given(c, i) ? &c.arg(i) : nullptr; }

using Keyed = std::pair<Value, Value>;   // key, item

// A merge sort stays inside its range even when NaN makes the order inconsistent.
void sort_by_key(BuiltinCall& c, std::vector<Keyed>& items, bool descending) {
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    return descending ? compare(c.heap, b.first, a.first) < 0 : compare(c.heap, a.first, b.first) < 0;
  });
}

std::vector<Value> items_of(std::vector<Keyed> keyed) {
  std::vector<Value> out;
  out.reserve(keyed.size());
  for (Keyed& entry : keyed) out.push_back(std::move(entry.second));
  return out;
}

// sort's attribute may list several, parted by commas.
Value multi_key(BuiltinCall& c, const Value& item, const Value* attribute, bool case_sensitive) {
  if (!attribute || !attribute->is_string() || attribute->text().find(',') == std::string::npos) {
    return sort_key(c, item, attribute, case_sensitive);
  }
  std::vector<Value> keys;
  std::string_view rest = attribute->text();
  while (true) {
    size_t comma = rest.find(',');
    Value path = c.heap.string(std::string(rest.substr(0, comma)));
    keys.push_back(sort_key(c, item, &path, case_sensitive));
    if (comma == std::string_view::npos) return c.heap.list(std::move(keys));
    rest = rest.substr(comma + 1);
  }
}

Value f_sort(BuiltinCall& c) {
  bool reverse = c.flag(0, false), case_sensitive = c.flag(1, false);
  std::vector<Keyed> keyed;
  for (Value& item : iterate(c.heap, c.self)) {
    Value key = multi_key(c, item, attribute_argument(c, 2), case_sensitive);
    keyed.emplace_back(std::move(key), std::move(item));
  }
  sort_by_key(c, keyed, reverse);
  return c.heap.list(items_of(std::move(keyed)));
}

Value extreme(BuiltinCall& c, bool largest) {
  std::vector<Value> items = iterate(c.heap, c.self);
  if (items.empty()) return c.heap.undefined("No aggregated item, sequence was empty.");
  bool case_sensitive = c.flag(0, false);
  const Value* attribute = attribute_argument(c, 1);
  Value best = items[0], best_key = sort_key(c, items[0], attribute, case_sensitive);
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = sort_key(c, items[i], attribute, case_sensitive);
    int order = compare(c.heap, key, best_key);
    if (largest ? order > 0 : order < 0) best = items[i], best_key = std::move(key);
  }
  return best;
}

Value f_max(BuiltinCall& c) { return extreme(c, true); }
Value f_min(BuiltinCall& c) { return extreme(c, false); }

Value f_unique(BuiltinCall& c) {
  bool case_sensitive = c.flag(0, false);
  Dict* seen = c.heap.new_dict();
  std::vector<Value> out;
  for (Value& item : iterate(c.heap, c.self)) {
    Value key = sort_key(c, item, attribute_argument(c, 1), case_sensitive);
    require_hashable(c.heap, key);
    c.heap.step();
    if (seen->find(key)) continue;
    seen->set(c.heap, key, Value::none());
    out.push_back(std::move(item));
  }
  return c.heap.list(std::move(out));
}

Value f_groupby(BuiltinCall& c) {
  bool case_sensitive = c.flag(2, false);
  auto raw_key = [&](const Value& item) {
    Value key = c.in.attribute_path(item, c.arg(0));
    return key.is_undefined() && given(c, 1) ? c.arg(1) : key;
  };
  std::vector<Keyed> keyed;
  for (Value& item : iterate(c.heap, c.self)) {
    Value key = fold_case(c, raw_key(item), case_sensitive);
    keyed.emplace_back(std::move(key), std::move(item));
  }
  sort_by_key(c, keyed, false);
  std::vector<Value> groups;
  for (size_t start = 0; start < keyed.size();) {
    size_t end = start + 1;
    std::vector<Value> members{keyed[start].second};   // a NaN key equals nothing, itself included
    while (end < keyed.size() && equal(c.heap, keyed[end].first, keyed[start].first)) members.push_back(keyed[end++].second);
    Value label = case_sensitive ? keyed[start].first : raw_key(members[0]);
    Value group = c.heap.tuple({label, c.heap.list(std::move(members))});
    group.list().is_group = true;
    groups.push_back(std::move(group));
    start = end;
  }
  return c.heap.list(std::move(groups));
}

Value f_dictsort(BuiltinCall& c) {
  if (!c.self.is_mapping()) c.heap.fail("dictsort needs a mapping, not '{}'", type_name(c.self));
  std::string by = c.text(1, "key");
  if (by != "key" && by != "value") c.heap.fail("dictsort sorts by 'key' or 'value'");
  std::vector<Keyed> keyed;
  for (auto& [key, value] : c.self.dict().entries) {
    keyed.emplace_back(fold_case(c, by == "key" ? key : value, c.flag(0, false)), c.heap.tuple({key, value}));
  }
  sort_by_key(c, keyed, c.flag(2, false));
  return c.heap.list(items_of(std::move(keyed)));
}

Value f_items(BuiltinCall& c) {
  if (c.self.is_undefined()) return c.heap.list({});
  if (!c.self.is_mapping()) c.heap.fail("can only get item pairs from a mapping");
  std::vector<Value> out;
  for (auto& [key, value] : c.self.dict().entries) {
    c.heap.step();
    out.push_back(c.heap.tuple({key, value}));
  }
  return c.heap.list(std::move(out));
}

Value f_join(BuiltinCall& c) {
  std::string separator = c.text(0, ""), out;
  bool first = true;
  for (const Value& item : iterate(c.heap, c.self)) {
    std::string part = c.in.text_of(given(c, 1) ? c.in.attribute_path(item, c.arg(1)) : item);
    c.heap.step();
    c.heap.reserve(out.size() + separator.size() + part.size());
    if (!first) out += separator;
    first = false;
    out += part;
  }
  return c.heap.string(std::move(out));
}

Value f_first(BuiltinCall& c) {
  if (c.self.is_sequence() && !c.self.items().empty()) return c.self.items().front();
  std::vector<Value> items = iterate(c.heap, c.self);
  return items.empty() ? c.heap.undefined("No first item, sequence was empty.") : items.front();
}

Value f_last(BuiltinCall& c) {
  if (c.self.is_sequence() && !c.self.items().empty()) return c.self.items().back();
  std::vector<Value> items = iterate(c.heap, c.self);
  return items.empty() ? c.heap.undefined("No last item, sequence was empty.") : items.back();
}

Value f_list(BuiltinCall& c) { return c.heap.list(iterate(c.heap, c.self)); }

Value f_reverse(BuiltinCall& c) {
  if (c.self.is_string()) return slice(c.heap, c.self, Value::none(), Value::none(), Value::integer(-1));
  std::vector<Value> items = iterate(c.heap, c.self);
  std::reverse(items.begin(), items.end());
  return c.heap.list(std::move(items));
}

Value f_sum(BuiltinCall& c) {
  Value total = c.bound.get(1, Value::integer(0));
  for (const Value& item : iterate(c.heap, c.self)) {
    c.heap.step();
    total = arithmetic(c.heap, Op::add, total, given(c, 0) ? c.in.attribute_path(item, c.arg(0)) : item);
  }
  return total;
}

size_t positive_count(BuiltinCall& c, size_t i, const char* what) {
  int64_t n = c.integer(i, 0);
  if (n <= 0) c.heap.fail("{} must be positive", what);
  c.heap.reserve(static_cast<uint64_t>(std::min<int64_t>(n, INT32_MAX)) * sizeof(Value));
  return static_cast<size_t>(n);
}

Value f_batch(BuiltinCall& c) {
  size_t n = positive_count(c, 0, "batch size");
  std::vector<Value> batches, current;
  for (Value& item : iterate(c.heap, c.self)) {
    if (current.size() == n) batches.push_back(c.heap.list(std::exchange(current, {})));
    current.push_back(std::move(item));
  }
  if (!current.empty()) {
    if (given(c, 1)) {
      c.heap.step(n - current.size());
      current.resize(n, c.arg(1));
    }
    batches.push_back(c.heap.list(std::move(current)));
  }
  return c.heap.list(std::move(batches));
}

Value f_slice(BuiltinCall& c) {
  size_t n = positive_count(c, 0, "slice count");
  std::vector<Value> items = iterate(c.heap, c.self), out;
  size_t per_slice = items.size() / n, longer = items.size() % n, at = 0;
  for (size_t i = 0; i < n; ++i) {
    c.heap.step();
    size_t count = per_slice + (i < longer);
    std::vector<Value> part(items.begin() + static_cast<ptrdiff_t>(at), items.begin() + static_cast<ptrdiff_t>(at + count));
    if (given(c, 1) && i >= longer) part.push_back(c.arg(1));
    out.push_back(c.heap.list(std::move(part)));
    at += count;
  }
  return c.heap.list(std::move(out));
}

constexpr Builtin kFilters[] = {
    {"sort", "reverse?,case_sensitive?,attribute?", f_sort},
    {"max", "case_sensitive?,attribute?", f_max},
    {"min", "case_sensitive?,attribute?", f_min},
    {"unique", "case_sensitive?,attribute?", f_unique},
    {"groupby", "attribute,default?,case_sensitive?", f_groupby},
    {"dictsort", "case_sensitive?,by?,reverse?", f_dictsort},
    {"items", "", f_items},
    {"join", "d?,attribute?", f_join},
    {"first", "", f_first},
    {"last", "", f_last},
    {"list", "", f_list},
    {"reverse", "", f_reverse},
    {"sum", "attribute?,start?", f_sum},
    {"batch", "linecount,fill_with?", f_batch},
    {"slice", "slices,fill_with?", f_slice},
};

}  // namespace

std::span<const Builtin> sequence_filters() { return kFilters; }

}  // namespace turbo::text::jinja
