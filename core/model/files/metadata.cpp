#include "model/files/metadata.h"

#include <bit>
#include <cstring>
#include <limits>

#include "model/files/utf8.h"

namespace turbo::model {

static_assert(std::endian::native == std::endian::little, "model files are little-endian and read in place");

namespace {

template <typename T>
T load_at(const std::string& raw, size_t i) {
  T value;
  std::memcpy(&value, raw.data() + i * sizeof(T), sizeof(T));
  return value;
}

bool is_integer(ValueType type) {
  switch (type) {
    case ValueType::u8:
    case ValueType::i8:
    case ValueType::u16:
    case ValueType::i16:
    case ValueType::u32:
    case ValueType::i32:
    case ValueType::u64:
    case ValueType::i64: return true;
    default: return false;
  }
}

bool is_signed(ValueType type) {
  return type == ValueType::i8 || type == ValueType::i16 || type == ValueType::i32 || type == ValueType::i64;
}

const NumberArray* array_of(const Value& value, ValueType element) {
  const auto* array = std::get_if<NumberArray>(&value.data);
  return array && array->element() == element ? array : nullptr;
}

}  // namespace

std::string_view value_type_name(ValueType type) {
  switch (type) {
    case ValueType::u8: return "u8";
    case ValueType::i8: return "i8";
    case ValueType::u16: return "u16";
    case ValueType::i16: return "i16";
    case ValueType::u32: return "u32";
    case ValueType::i32: return "i32";
    case ValueType::f32: return "f32";
    case ValueType::boolean: return "bool";
    case ValueType::string: return "string";
    case ValueType::array: return "array";
    case ValueType::u64: return "u64";
    case ValueType::i64: return "i64";
    case ValueType::f64: return "f64";
  }
  return "unknown";
}

uint64_t value_type_bytes(ValueType type) {
  switch (type) {
    case ValueType::u8:
    case ValueType::i8:
    case ValueType::boolean: return 1;
    case ValueType::u16:
    case ValueType::i16: return 2;
    case ValueType::u32:
    case ValueType::i32:
    case ValueType::f32: return 4;
    case ValueType::u64:
    case ValueType::i64:
    case ValueType::f64: return 8;
    default: return 0;
  }
}

NumberArray::NumberArray(ValueType element, std::string raw) : element_(element), raw_(std::move(raw)) {
  const uint64_t bytes = value_type_bytes(element);
  size_ = bytes ? raw_.size() / bytes : 0;
}

uint64_t NumberArray::as_u64(size_t i) const {
  switch (element_) {
    case ValueType::u8:
    case ValueType::boolean: return load_at<uint8_t>(raw_, i);
    case ValueType::u16: return load_at<uint16_t>(raw_, i);
    case ValueType::u32: return load_at<uint32_t>(raw_, i);
    case ValueType::u64: return load_at<uint64_t>(raw_, i);
    default: return uint64_t(as_i64(i));
  }
}

int64_t NumberArray::as_i64(size_t i) const {
  switch (element_) {
    case ValueType::i8: return load_at<int8_t>(raw_, i);
    case ValueType::i16: return load_at<int16_t>(raw_, i);
    case ValueType::i32: return load_at<int32_t>(raw_, i);
    case ValueType::i64: return load_at<int64_t>(raw_, i);
    case ValueType::f32:
    case ValueType::f64: return 0;
    default: return int64_t(as_u64(i));
  }
}

double NumberArray::as_f64(size_t i) const {
  if (element_ == ValueType::f32) return load_at<float>(raw_, i);
  if (element_ == ValueType::f64) return load_at<double>(raw_, i);
  return is_signed(element_) ? double(as_i64(i)) : double(as_u64(i));
}

std::string Value::type_text() const {
  if (std::holds_alternative<StringArray>(data)) return "array of string";
  if (const auto* array = std::get_if<NumberArray>(&data)) {
    return "array of " + std::string(value_type_name(array->element()));
  }
  return std::string(value_type_name(type));
}

namespace {

std::string shown_number(const NumberArray& array, size_t i) {
  if (array.element() == ValueType::boolean) return array.as_u64(i) ? "true" : "false";
  if (array.element() == ValueType::f32 || array.element() == ValueType::f64) return fmt::format("{}", array.as_f64(i));
  if (is_signed(array.element())) return fmt::format("{}", array.as_i64(i));
  return fmt::format("{}", array.as_u64(i));
}

template <typename Array, typename Show>
std::string shown_array(const Array& array, size_t limit, const Show& show) {
  std::string text = fmt::format("[{}] ", array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    if (i > 0) text += ", ";
    text += show(i);
    if (text.size() > limit) break;  // the caller shortens
  }
  return text;
}

}  // namespace

std::string Value::shown(size_t limit) const {
  std::string text = std::visit(
      [&](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, bool>)
          return v ? "true" : "false";
        else if constexpr (std::is_same_v<T, double>)
          return type == ValueType::f32 ? fmt::format("{}", float(v)) : fmt::format("{}", v);
        else if constexpr (std::is_same_v<T, std::string>)
          return v.substr(0, limit + 4);
        else if constexpr (std::is_same_v<T, StringArray>)
          return shown_array(v, limit, [&](size_t i) { return std::string(v[i].substr(0, limit)); });
        else if constexpr (std::is_same_v<T, NumberArray>)
          return shown_array(v, limit, [&](size_t i) { return shown_number(v, i); });
        else
          return fmt::format("{}", v);
      },
      data);
  return printable(text, limit);
}

const Value* Metadata::find(std::string_view key) const {
  const auto at = index_.find(key);
  return at == index_.end() ? nullptr : &entries_[at->second].value;
}

bool Metadata::add(std::string key, Value value, uint64_t position) {
  if (!index_.emplace(key, entries_.size()).second) return false;
  entries_.push_back({std::move(key), std::move(value), position});
  return true;
}

Status Metadata::missing(std::string_view key) const {
  return error(Code::not_found, "{}: key '{}' is missing", source_, printable(key))
      .with_hint("the file is incomplete or was written by an unknown converter; convert or download the model again");
}

Status Metadata::wrong_type(std::string_view key, std::string_view expected, const Value& found) const {
  return error(Code::corrupt_input, "{}: key '{}': expected {} but found {}", source_, printable(key), expected,
               found.type_text())
      .with_hint("the file was written by a faulty converter; convert or download the model again");
}

// `read` turns a Value into a Result<T>.
template <typename T, typename Read>
Result<T> Metadata::required(std::string_view key, Read read) const {
  const Value* value = find(key);
  if (!value) return missing(key);
  return read(*value);
}

template <typename T, typename Read>
Result<std::optional<T>> Metadata::optional(std::string_view key, Read read) const {
  const Value* value = find(key);
  if (!value) return std::optional<T>();
  Result<T> result = read(*value);
  if (!result) return result.status();
  return std::optional<T>(std::move(result).value());
}

// Readers of one scalar class, shared by the required and optional getters.
#define TURBO_SCALAR_READER(T, wanted, Stored)                           \
  [&](const Value& value) -> Result<T> {                                 \
    if (value.type != ValueType::wanted) {                               \
      return wrong_type(key, value_type_name(ValueType::wanted), value); \
    }                                                                    \
    return T(std::get<Stored>(value.data));                              \
  }

Result<uint32_t> Metadata::get_u32(std::string_view key) const {
  return required<uint32_t>(key, TURBO_SCALAR_READER(uint32_t, u32, uint64_t));
}
Result<uint64_t> Metadata::get_u64(std::string_view key) const {
  return required<uint64_t>(key, TURBO_SCALAR_READER(uint64_t, u64, uint64_t));
}
Result<int32_t> Metadata::get_i32(std::string_view key) const {
  return required<int32_t>(key, TURBO_SCALAR_READER(int32_t, i32, int64_t));
}
Result<float> Metadata::get_f32(std::string_view key) const {
  return required<float>(key, TURBO_SCALAR_READER(float, f32, double));
}
Result<double> Metadata::get_f64(std::string_view key) const {
  return required<double>(key, TURBO_SCALAR_READER(double, f64, double));
}
Result<bool> Metadata::get_bool(std::string_view key) const {
  return required<bool>(key, TURBO_SCALAR_READER(bool, boolean, bool));
}
Result<std::string> Metadata::get_string(std::string_view key) const {
  return required<std::string>(key, TURBO_SCALAR_READER(std::string, string, std::string));
}
Result<std::optional<uint32_t>> Metadata::optional_u32(std::string_view key) const {
  return optional<uint32_t>(key, TURBO_SCALAR_READER(uint32_t, u32, uint64_t));
}
Result<std::optional<uint64_t>> Metadata::optional_u64(std::string_view key) const {
  return optional<uint64_t>(key, TURBO_SCALAR_READER(uint64_t, u64, uint64_t));
}
Result<std::optional<int32_t>> Metadata::optional_i32(std::string_view key) const {
  return optional<int32_t>(key, TURBO_SCALAR_READER(int32_t, i32, int64_t));
}
Result<std::optional<float>> Metadata::optional_f32(std::string_view key) const {
  return optional<float>(key, TURBO_SCALAR_READER(float, f32, double));
}
Result<std::optional<bool>> Metadata::optional_bool(std::string_view key) const {
  return optional<bool>(key, TURBO_SCALAR_READER(bool, boolean, bool));
}
Result<std::optional<std::string>> Metadata::optional_string(std::string_view key) const {
  return optional<std::string>(key, TURBO_SCALAR_READER(std::string, string, std::string));
}
#undef TURBO_SCALAR_READER

Result<std::vector<std::string>> Metadata::get_strings(std::string_view key) const {
  const Value* value = find(key);
  if (!value) return missing(key);
  const auto* array = std::get_if<StringArray>(&value->data);
  if (!array) return wrong_type(key, "array of string", *value);
  std::vector<std::string> strings;
  strings.reserve(array->size());
  for (size_t i = 0; i < array->size(); ++i) strings.emplace_back((*array)[i]);
  return strings;
}

Result<std::vector<int32_t>> Metadata::get_i32s(std::string_view key) const {
  const Value* value = find(key);
  if (!value) return missing(key);
  const NumberArray* array = array_of(*value, ValueType::i32);
  if (!array) return wrong_type(key, "array of i32", *value);
  std::vector<int32_t> numbers(array->size());
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = int32_t(array->as_i64(i));
  return numbers;
}

Result<std::vector<uint32_t>> Metadata::get_u32s(std::string_view key) const {
  const Value* value = find(key);
  if (!value) return missing(key);
  const NumberArray* array = array_of(*value, ValueType::u32);
  if (!array) return wrong_type(key, "array of u32", *value);
  std::vector<uint32_t> numbers(array->size());
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = uint32_t(array->as_u64(i));
  return numbers;
}

Result<std::vector<float>> Metadata::get_f32s(std::string_view key) const {
  const Value* value = find(key);
  if (!value) return missing(key);
  const NumberArray* array = array_of(*value, ValueType::f32);
  if (!array) return wrong_type(key, "array of f32", *value);
  std::vector<float> numbers(array->size());
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = float(array->as_f64(i));
  return numbers;
}

Result<uint64_t> Metadata::get_unsigned(std::string_view key) const {
  const Value* value = find(key);
  if (!value) return missing(key);
  if (const auto* number = std::get_if<uint64_t>(&value->data)) return *number;
  const auto* number = std::get_if<int64_t>(&value->data);
  if (!number) return wrong_type(key, "an integer", *value);
  if (*number < 0) {
    return error(Code::corrupt_input, "{}: key '{}': expected a number that is not negative but found {}", source_,
                 printable(key), *number);
  }
  return uint64_t(*number);
}

Result<std::optional<uint64_t>> Metadata::optional_unsigned(std::string_view key) const {
  if (!find(key)) return std::optional<uint64_t>();
  TURBO_ASSIGN(const uint64_t number, get_unsigned(key));
  return std::optional<uint64_t>(number);
}

Result<std::vector<uint64_t>> Metadata::get_unsigneds(std::string_view key) const {
  const Value* value = find(key);
  if (!value) return missing(key);
  const auto* array = std::get_if<NumberArray>(&value->data);
  if (!array || !is_integer(array->element())) return wrong_type(key, "array of integers", *value);
  std::vector<uint64_t> numbers(array->size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (is_signed(array->element()) && array->as_i64(i) < 0) {
      return error(Code::corrupt_input, "{}: key '{}': element {}: expected a number that is not negative but found {}",
                   source_, printable(key), i, array->as_i64(i));
    }
    numbers[i] = array->as_u64(i);
  }
  return numbers;
}

const StringArray* Metadata::find_strings(std::string_view key) const {
  const Value* value = find(key);
  return value ? std::get_if<StringArray>(&value->data) : nullptr;
}

const std::string* Metadata::find_string(std::string_view key) const {
  const Value* value = find(key);
  return value ? std::get_if<std::string>(&value->data) : nullptr;
}

}  // namespace turbo::model
