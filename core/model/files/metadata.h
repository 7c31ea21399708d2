// Metadata of a model file: key/value pairs with the types that GGUF gives them.
//
// Getters are strict about types: a key of another type is an error that names the key, the expected and the found
// type. Every message begins with the file's name. Filled once while a file is opened, then read-only and usable from
// any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/status.h"

namespace turbo::model {

/// Numbers as in the GGUF container.
enum class ValueType : uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};

/// "u32", "string", ...; unknown numbers give "unknown".
std::string_view value_type_name(ValueType type);
/// Bytes of one scalar; 0 for strings, arrays and unknown numbers.
uint64_t value_type_bytes(ValueType type);

/// Many strings in one allocation.
class StringArray {
 public:
  size_t size() const { return ends_.size(); }
  std::string_view operator[](size_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(text_).substr(begin, ends_[i] - begin);
  }
  void reserve(size_t strings, size_t bytes) {
    ends_.reserve(strings);
    text_.reserve(bytes);
  }
  void push_back(std::string_view text) {
    text_.append(text);
    ends_.push_back(text_.size());
  }
  bool operator==(const StringArray&) const = default;

 private:
  std::string text_;
  std::vector<uint64_t> ends_;
};

/// An array of numbers or booleans, kept in the file's little-endian element type.
class NumberArray {
 public:
  NumberArray() = default;
  NumberArray(ValueType element, std::string raw);
  ValueType element() const { return element_; }
  size_t size() const { return size_; }
  /// Element i as the widest type of its class; the caller has checked element().
  uint64_t as_u64(size_t i) const;
  int64_t as_i64(size_t i) const;
  double as_f64(size_t i) const;
  bool operator==(const NumberArray&) const = default;

 private:
  ValueType element_ = ValueType::u8;
  std::string raw_;
  size_t size_ = 0;
};

struct Value {
  ValueType type = ValueType::u32;
  std::variant<uint64_t, int64_t, double, bool, std::string, StringArray, NumberArray> data;
  bool operator==(const Value&) const = default;
  /// "u32", "array of string", ...
  std::string type_text() const;
  /// One line for people, at most `limit` characters plus an ellipsis; arrays show their length and first elements.
  std::string shown(size_t limit = 60) const;
};

class Metadata {
 public:
  struct Entry {
    std::string key;
    Value value;
    uint64_t position = 0;  // byte offset of the pair in its file
  };

  Metadata() = default;
  explicit Metadata(std::string source) : source_(std::move(source)) {}

  /// Name used at the head of error messages.
  const std::string& source() const { return source_; }

  /// In file order.
  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

  const Value* find(std::string_view key) const;
  bool contains(std::string_view key) const { return find(key) != nullptr; }

  // Required values: not_found when the key is absent, corrupt_input when its type differs.
  Result<uint32_t> get_u32(std::string_view key) const;
  Result<uint64_t> get_u64(std::string_view key) const;
  Result<int32_t> get_i32(std::string_view key) const;
  Result<float> get_f32(std::string_view key) const;
  Result<double> get_f64(std::string_view key) const;
  Result<bool> get_bool(std::string_view key) const;
  Result<std::string> get_string(std::string_view key) const;
  Result<std::vector<std::string>> get_strings(std::string_view key) const;
  Result<std::vector<int32_t>> get_i32s(std::string_view key) const;
  Result<std::vector<uint32_t>> get_u32s(std::string_view key) const;
  Result<std::vector<float>> get_f32s(std::string_view key) const;
  /// Any integer type whose value is not negative.
  Result<uint64_t> get_unsigned(std::string_view key) const;
  /// An array of any integer type without negative values.
  Result<std::vector<uint64_t>> get_unsigneds(std::string_view key) const;

  // Optional values: empty when absent, an error when present with another type.
  Result<std::optional<uint32_t>> optional_u32(std::string_view key) const;
  Result<std::optional<uint64_t>> optional_u64(std::string_view key) const;
  Result<std::optional<int32_t>> optional_i32(std::string_view key) const;
  Result<std::optional<float>> optional_f32(std::string_view key) const;
  Result<std::optional<bool>> optional_bool(std::string_view key) const;
  Result<std::optional<std::string>> optional_string(std::string_view key) const;
  Result<std::optional<uint64_t>> optional_unsigned(std::string_view key) const;

  /// The strings without a copy; null when the key is absent or of another type.
  const StringArray* find_strings(std::string_view key) const;
  /// The text without a copy; null when the key is absent or of another type.
  const std::string* find_string(std::string_view key) const;

  /// Adds a pair; false, and the metadata unchanged, when the key is already there.
  bool add(std::string key, Value value, uint64_t position);

 private:
  Status missing(std::string_view key) const;
  Status wrong_type(std::string_view key, std::string_view expected, const Value& found) const;
  template <typename T, typename Read>
  Result<T> required(std::string_view key, Read read) const;
  template <typename T, typename Read>
  Result<std::optional<T>> optional(std::string_view key, Read read) const;

  std::string source_;
  std::vector<Entry> entries_;
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  std::unordered_map<std::string, size_t, Hash, std::equal_to<>> index_;
};

}  // namespace turbo::model
