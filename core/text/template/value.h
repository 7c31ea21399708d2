// Values a template computes with, and the per-render heap that owns them.
//
// Strings are shared and counted; lists, dicts and callables live in the Heap until the render ends, so cyclic or very
// deep data is freed without recursion. One Heap belongs to one render on one thread; string constants of a parsed
// template have no heap and may be read by many threads.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/template/template_limits.h"

namespace turbo::text::jinja {

/// Thrown inside the template engine only; ChatTemplate turns it into a Status.
struct TemplateError {
  Code code;
  std::string message;
  int line = 0;            ///< 0 = unknown
  bool raised = false;     ///< text of raise_exception()
};

enum class Kind : uint8_t {
  undefined, none, boolean, integer, real, string, list, tuple, dict, range, name_space, callable, loop,
};

class Heap;

/// Immutable text with what indexing needs to know about it.
struct StringBox {
  std::string text;
  size_t n_code_points;
  Heap* heap;   ///< accounts for the bytes; null for template constants
  StringBox(std::string t, Heap* h);
  ~StringBox();
  StringBox(const StringBox&) = delete;
  StringBox& operator=(const StringBox&) = delete;
  bool is_ascii() const { return n_code_points == text.size(); }
};

struct Object {
  virtual ~Object() = default;
};
struct List;
struct Dict;
struct Range;
struct Callable;
struct Loop;

class Value {
 public:
  Value() : kind_(Kind::undefined), integer_(0) {}
  static Value undefined(std::shared_ptr<const StringBox> why) {
    Value v;
    v.string_ = std::move(why);
    return v;
  }
  static Value none() { return Value(Kind::none); }
  static Value boolean(bool b) {
    Value v(Kind::boolean);
    v.integer_ = b;
    return v;
  }
  static Value integer(int64_t i) {
    Value v(Kind::integer);
    v.integer_ = i;
    return v;
  }
  static Value real(double d) {
    Value v(Kind::real);
    v.real_ = d;
    return v;
  }
  static Value string(std::shared_ptr<const StringBox> s) {
    Value v(Kind::string);
    v.string_ = std::move(s);
    return v;
  }
  static Value object(Kind kind, Object* object) {
    Value v(kind);
    v.object_ = object;
    return v;
  }

  Kind kind() const { return kind_; }
  bool is(Kind k) const { return kind_ == k; }
  bool is_undefined() const { return kind_ == Kind::undefined; }
  bool is_none() const { return kind_ == Kind::none; }
  bool is_string() const { return kind_ == Kind::string; }
  bool is_sequence() const { return kind_ == Kind::list || kind_ == Kind::tuple; }
  bool is_integral() const { return kind_ == Kind::integer || kind_ == Kind::boolean; }
  bool is_number() const { return is_integral() || kind_ == Kind::real; }
  bool is_mapping() const { return kind_ == Kind::dict; }

  // Each accessor requires the matching kind.
  int64_t as_int() const { return integer_; }
  double as_real() const { return kind_ == Kind::real ? real_ : static_cast<double>(integer_); }
  const std::string& text() const { return string_->text; }
  const StringBox& box() const { return *string_; }
  const std::shared_ptr<const StringBox>& shared_text() const { return string_; }   ///< may be null when undefined
  List& list() const;         ///< also of a tuple
  std::vector<Value>& items() const;
  Dict& dict() const;         ///< also of a namespace
  const Range& range() const;
  Callable& callable() const;
  Loop& loop() const;
  Object* object() const { return object_; }

 private:
  explicit Value(Kind kind) : kind_(kind), integer_(0) {}
  Kind kind_;
  union {
    int64_t integer_;
    double real_;
    Object* object_;
  };
  std::shared_ptr<const StringBox> string_;
};

/// Items of a list or a tuple; the Value's kind tells which.
struct List final : Object {
  std::vector<Value> items;
  bool is_group = false;   ///< a pair made by groupby, whose items are also .grouper and .list
};

/// Python's range(): never expanded until walked.
struct Range final : Object {
  int64_t start = 0, stop = 0, step = 1;
  int64_t size() const;
  int64_t at(int64_t index) const { return start + index * step; }
};

/// Insertion-ordered mapping with Python's key equality (1 == 1.0 == True). Keys are checked hashable by the caller.
struct Dict final : Object {
  std::vector<std::pair<Value, Value>> entries;

  Value* find(const Value& key);
  Value* find(std::string_view key);
  void set(Heap& heap, const Value& key, Value value);
  void erase(const Value& key);
  void clear();

 private:
  static constexpr size_t kIndexFrom = 8;
  void rebuild_index();
  std::unordered_multimap<uint64_t, size_t> index_;   ///< filled once there are more than kIndexFrom entries
};

/// Accounts for steps and bytes of one render and owns its containers.
class Heap {
 public:
  explicit Heap(const TemplateLimits& limits) : limits_(limits), steps_left_(limits.max_steps) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  const TemplateLimits& limits() const { return limits_; }
  int line = 0;   ///< source line being evaluated, for messages

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) const {
    throw TemplateError{Code::invalid_argument, fmt::format(text, std::forward<Args>(args)...), line};
  }
  template <typename... Args>
  [[noreturn]] void exhausted(fmt::format_string<Args...> text, Args&&... args) const {
    throw TemplateError{Code::resource_exhausted, fmt::format(text, std::forward<Args>(args)...), line};
  }

  void step(uint64_t n = 1) {
    if (n > steps_left_) exhausted("more than {} steps", limits_.max_steps);
    steps_left_ -= n;
  }
  /// Steps for touching so many bytes of text.
  void work(uint64_t bytes) { step(bytes / 64); }
  /// Refuses, before anything is allocated, a value that could not be kept.
  void reserve(uint64_t bytes) const {
    if (bytes > limits_.max_value_bytes - std::min(bytes_, limits_.max_value_bytes)) {
      exhausted("values need more than {} bytes", limits_.max_value_bytes);
    }
  }
  void charge(uint64_t bytes) {
    reserve(bytes);
    bytes_ += bytes;
  }
  void release(uint64_t bytes) { bytes_ -= bytes; }
  void check_depth(size_t depth) const {
    if (depth > limits_.max_depth) exhausted("values nested deeper than {}", limits_.max_depth);
  }

  Value string(std::string text);
  Value list(std::vector<Value> items) { return sequence(Kind::list, std::move(items)); }
  Value tuple(std::vector<Value> items) { return sequence(Kind::tuple, std::move(items)); }
  /// Bytes for growing a container by so many slots.
  void charge_items(size_t n) { charge(n * sizeof(Value)); }
  Dict* new_dict() { return make<Dict>(); }
  Value undefined(std::string why) { return Value::undefined(string(std::move(why)).shared_text()); }

  template <typename T, typename... Args>
  T* make(Args&&... args) {
    charge(sizeof(T) + 2 * sizeof(void*));
    auto owned = std::make_unique<T>(std::forward<Args>(args)...);
    T* object = owned.get();
    objects_.push_back(std::move(owned));
    return object;
  }

 private:
  Value sequence(Kind kind, std::vector<Value> items);

  TemplateLimits limits_;
  uint64_t steps_left_;
  uint64_t bytes_ = 0;
  std::vector<std::unique_ptr<Object>> objects_;
};

/// A string constant of a parsed template.
Value constant_string(std::string text);

bool truthy(const Value& v);
bool equal(Heap& heap, const Value& a, const Value& b, size_t depth = 0);
/// Negative, zero or positive; fails for kinds that Python does not order.
int compare(Heap& heap, const Value& a, const Value& b, size_t depth = 0);
/// Python's `needle in haystack`.
bool contains(Heap& heap, const Value& haystack, const Value& needle);
void require_hashable(Heap& heap, const Value& key, size_t depth = 0);
/// Python's type name, for messages.
const char* type_name(const Value& v);
/// len(); fails for values without one.
int64_t length(Heap& heap, const Value& v);
/// Items of anything iterable (keys of a dict, code points of a string); fails otherwise.
std::vector<Value> iterate(Heap& heap, const Value& v);

/// First occurrence at or after `from`, in linear time whatever the texts hold.
size_t find_text(std::string_view haystack, std::string_view needle, size_t from = 0);

}  // namespace turbo::text::jinja
