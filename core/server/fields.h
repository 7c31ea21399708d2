// Request fields as data: one table per route says which fields exist, their types and ranges. check_fields() enforces
// it, and tests walk it, so no known field can be taken unchecked. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/api_error.h"
#include "server/json_body.h"

namespace turbo::server {

enum FieldType : unsigned {
  kBoolean = 1,
  kInteger = 2,  // 5.0 counts
  kNumber = 4,
  kString = 8,
  kObject = 16,
  kArray = 32,
};

struct Field {
  const char* name;
  unsigned types;  // any of them
  /// Bounds of a number's value, a string's bytes, an array's or object's size.
  double min = -1e300, max = 1e300;
  bool above_min = false;  // min itself is outside
  std::vector<const char*> choices{};  // of a string; empty = any
  bool required = false;
  /// Known but not offered: any value of the right type but an empty string is answered so.
  enum class Refuse { no, unsupported_value, not_supported } refuse = Refuse::no;
};

/// Null counts as absent, unknown fields are ignored. The error names the field.
std::optional<ApiError> check_fields(const Json& body, std::span<const Field> table, const std::string& prefix = {});

std::span<const Field> chat_fields();
std::span<const Field> completion_fields();
std::span<const Field> tokenize_fields();
std::span<const Field> detokenize_fields();
std::span<const Field> turbo_fields();  // the "turbo" object of chat and completions

/// The field's value, or null when absent. For checked bodies.
const Json* find_field(const Json& body, const char* name);
bool get_bool(const Json& body, const char* name, bool otherwise);
double get_number(const Json& body, const char* name, double otherwise);
std::optional<int64_t> get_integer(const Json& body, const char* name);
std::string get_string(const Json& body, const char* name, const std::string& otherwise = {});

/// The value as an integer: integral floats count, everything else and what exceeds 64 bits is nothing.
std::optional<int64_t> as_integer(const Json& value);

}  // namespace turbo::server
