#include "server/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "profile/keys.h"

namespace turbo::server {
namespace {

constexpr double kInt64 = 9.3e18;  // no bound of its own
using Refuse = Field::Refuse;

// As wide as the profile key of the same meaning.
Field like_key(const char* name, unsigned type, const char* key) {
  const profile::ValueRule& rule = profile::find_key(key)->rule;
  return {name, type, rule.minimum, rule.maximum, rule.above_minimum};
}

// What chat and completions share.
const std::vector<Field>& sampling_fields() {
  static const std::vector<Field> fields{
      {"model", kString, 0, 256},
      like_key("temperature", kNumber, "sampler.temperature"),
      like_key("top_p", kNumber, "sampler.top_p"),
      like_key("top_k", kInteger, "sampler.top_k"),
      like_key("min_p", kNumber, "sampler.min_p"),
      like_key("typical_p", kNumber, "sampler.typical_p"),
      {"seed", kInteger, -kInt64, kInt64},
      {"n", kInteger, -kInt64, kInt64},  // read_common() knows the bounds
      like_key("presence_penalty", kNumber, "sampler.presence_penalty"),
      like_key("frequency_penalty", kNumber, "sampler.frequency_penalty"),
      like_key("repetition_penalty", kNumber, "sampler.repetition_penalty"),
      like_key("repeat_penalty", kNumber, "sampler.repetition_penalty"),
      {"logit_bias", kObject, 0, 4096},
      {"stop", kString | kArray},
      {"stop_token_ids", kArray, 0, 64},
      {"ignore_eos", kBoolean},
      {"min_tokens", kInteger, 0, 4294967295.0},
      {"cache_prompt", kBoolean},
      {"max_tokens", kInteger, 0, kInt64},
      {"stream", kBoolean},
      {"stream_options", kObject},
      {"timeout_ms", kInteger, 0, 86400000},
      {"turbo", kObject},
      {"regex", kString, -1e300, 1e300, false, {}, false, Refuse::not_supported},
      {"ebnf", kString, -1e300, 1e300, false, {}, false, Refuse::not_supported},
      {"grammar", kString, -1e300, 1e300, false, {}, false, Refuse::not_supported},
      {"json_schema", kObject | kString, -1e300, 1e300, false, {}, false, Refuse::not_supported},
      {"user", kString},
      {"store", kBoolean},
      {"metadata", kObject},
      {"service_tier", kString},
      {"safety_identifier", kString},
      {"prompt_cache_key", kString},
  };
  return fields;
}

std::vector<Field> with_sampling(std::vector<Field> own) {
  own.insert(own.end(), sampling_fields().begin(), sampling_fields().end());
  return own;
}

std::string type_names(unsigned types) {
  std::string names;
  const auto add = [&](unsigned type, const char* name) {
    if (types & type) names += (names.empty() ? "" : " or ") + std::string(name);
  };
  add(kBoolean, "true or false");
  add(kInteger, "an integer");
  add(kNumber, "a number");
  add(kString, "a string");
  add(kArray, "an array");
  add(kObject, "an object");
  return names;
}

bool has_type(const Json& value, unsigned types) {
  return ((types & kBoolean) && value.is_boolean()) || ((types & kNumber) && value.is_number()) ||
         ((types & kInteger) && as_integer(value)) || ((types & kString) && value.is_string()) ||
         ((types & kObject) && value.is_object()) || ((types & kArray) && value.is_array());
}

bool is_nothing(const Json& value) { return value.is_string() && value.get_ref<const std::string&>().empty(); }

std::string range_text(const Field& field) {
  const auto number = [](double x) { return x == std::floor(x) && std::abs(x) < 1e15 ? fmt::format("{:.0f}", x) : fmt::format("{}", x); };
  if (field.max >= kInt64) return fmt::format("at least {}", number(field.min));
  return fmt::format("{} {} and at most {}", field.above_min ? "above" : "at least", number(field.min), number(field.max));
}

std::string size_text(const Field& field, const char* what, const char* unit) {
  if (field.max >= kInt64) return fmt::format("{} of at least {:.0f} {}", what, field.min, unit);
  if (field.min <= 0) return fmt::format("{} of at most {:.0f} {}", what, field.max, unit);
  return fmt::format("{} of {:.0f} to {:.0f} {}", what, field.min, field.max, unit);
}

std::optional<ApiError> check_one(const Json& value, const Field& field, const std::string& param) {
  if (!has_type(value, field.types)) {
    // An integer too large for 64 bits is out of range rather than of the wrong type.
    if ((field.types & kInteger) && value.is_number() && (value.is_number_integer() || std::floor(value.get<double>()) == value.get<double>()))
      return ApiError::out_of_range(param, "a 64-bit integer");
    return ApiError::invalid_type(param, type_names(field.types));
  }
  double size = 0;
  if (value.is_number()) size = value.get<double>();
  else if (value.is_string()) size = static_cast<double>(value.get_ref<const std::string&>().size());
  else if (value.is_structured()) size = static_cast<double>(value.size());
  if (!value.is_boolean() && (size < field.min || size > field.max || (field.above_min && size == field.min)))
    return ApiError::out_of_range(param, value.is_number()   ? range_text(field)
                                         : value.is_string() ? size_text(field, "a string", "bytes")
                                                             : size_text(field, value.is_array() ? "an array" : "an object", "entries"));
  if (value.is_string() && !field.choices.empty() &&
      std::none_of(field.choices.begin(), field.choices.end(), [&](const char* choice) { return value == choice; })) {
    std::string list;
    for (const char* choice : field.choices) list += (list.empty() ? "" : ", ") + std::string(choice);
    return ApiError::unsupported_value(param, "must be one of " + list);
  }
  return std::nullopt;
}

std::optional<ApiError> check_refused(const Json& value, const Field& field, const std::string& param) {
  if (field.refuse == Refuse::no || is_nothing(value)) return std::nullopt;
  if (field.refuse == Refuse::not_supported) return ApiError::not_supported("'" + param + "'", param);
  return ApiError::unsupported_value(param, "this field is not supported");
}

}  // namespace

std::span<const Field> chat_fields() {
  static const std::vector<Field> fields = with_sampling({
      {.name = "messages", .types = kArray, .min = 1, .max = 4096, .required = true},
      {"max_completion_tokens", kInteger, 0, kInt64},
      {"logprobs", kBoolean},
      {"top_logprobs", kInteger, 0, 20},
      {"tools", kArray, 0, 128},
      {"tool_choice", kString | kObject},
      {"parallel_tool_calls", kBoolean},
      {"response_format", kObject},
      {.name = "reasoning_effort", .types = kString, .choices = {"none", "minimal", "low", "medium", "high", "xhigh"}},
      {"chat_template_kwargs", kObject, 0, 64},
      {"verbosity", kString},
      {"prediction", kObject},
      {"modalities", kArray},
      {.name = "audio", .types = kObject, .refuse = Refuse::unsupported_value},
      {.name = "functions", .types = kArray, .refuse = Refuse::unsupported_value},
      {.name = "function_call", .types = kString | kObject, .refuse = Refuse::unsupported_value},
      {.name = "web_search_options", .types = kObject, .refuse = Refuse::unsupported_value},
  });
  return fields;
}

std::span<const Field> completion_fields() {
  static const std::vector<Field> fields = with_sampling({
      {.name = "prompt", .types = kString | kArray, .required = true},
      {"echo", kBoolean},
      {"logprobs", kInteger, 0, 5},
      {"best_of", kInteger, 1, kInt64},
      {.name = "suffix", .types = kString, .refuse = Refuse::unsupported_value},
      {.name = "response_format", .types = kObject},
  });
  return fields;
}

std::span<const Field> tokenize_fields() {
  static const std::vector<Field> fields{
      {"content", kString}, {"prompt", kString},      {.name = "messages", .types = kArray, .min = 1, .max = 4096},
      {"model", kString},   {"add_special", kBoolean}, {"parse_special", kBoolean},
      {"with_pieces", kBoolean}, {"tools", kArray, 0, 128}, {"chat_template_kwargs", kObject, 0, 64},
  };
  return fields;
}

std::span<const Field> detokenize_fields() {
  static const std::vector<Field> fields{
      {.name = "tokens", .types = kArray, .min = 0, .max = 1 << 22, .required = true}, {"model", kString}};
  return fields;
}

std::span<const Field> turbo_fields() {
  static const std::vector<Field> fields{
      {.name = "drafter", .types = kString, .choices = {"off"}},
      like_key("draft_tokens", kInteger, "drafter.draft_tokens"),
      {"priority", kInteger, -100, 100},
      {"cache_salt", kString, 1, 128},
      {"timings", kBoolean},
      {"timeout_ms", kInteger, 0, 86400000},
  };
  return fields;
}

std::optional<ApiError> check_fields(const Json& body, std::span<const Field> table, const std::string& prefix) {
  for (const Field& field : table) {
    const Json* value = find_field(body, field.name);
    const std::string param = prefix + field.name;
    if (value) {
      if (auto wrong = check_one(*value, field, param)) return wrong;
    } else if (field.required) {
      return ApiError::missing(param);
    }
  }
  // Only then what is right but not offered: the caller first hears what the caller can mend.
  for (const Field& field : table)
    if (const Json* value = find_field(body, field.name))
      if (auto refused = check_refused(*value, field, prefix + field.name)) return refused;
  return std::nullopt;
}

const Json* find_field(const Json& body, const char* name) {
  const auto found = body.find(name);
  return found == body.end() || found->is_null() ? nullptr : &*found;
}
bool get_bool(const Json& body, const char* name, bool otherwise) {
  const Json* value = find_field(body, name);
  return value ? value->get<bool>() : otherwise;
}
double get_number(const Json& body, const char* name, double otherwise) {
  const Json* value = find_field(body, name);
  return value ? value->get<double>() : otherwise;
}
std::optional<int64_t> get_integer(const Json& body, const char* name) {
  const Json* value = find_field(body, name);
  return value ? as_integer(*value) : std::nullopt;
}
std::string get_string(const Json& body, const char* name, const std::string& otherwise) {
  const Json* value = find_field(body, name);
  return value ? value->get<std::string>() : otherwise;
}

std::optional<int64_t> as_integer(const Json& value) {
  if (value.is_number_unsigned()) {
    const uint64_t x = value.get<uint64_t>();
    return x <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ? std::optional<int64_t>(static_cast<int64_t>(x)) : std::nullopt;
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double x = value.get<double>();
  // Beyond 2^53 a float no longer says which integer was written.
  if (x != std::floor(x) || std::abs(x) > 9007199254740992.0) return std::nullopt;
  return static_cast<int64_t>(x);
}

}  // namespace turbo::server
