#include "loader/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/nearest.h"
#include "loader/text.h"

namespace turbo::loader {
using nlohmann::json;
namespace {

constexpr size_t max_schema_bytes = 64 << 10;
constexpr size_t max_value_bytes = 4096;

// A JSON value as a value of the type; empty when it is of another.
template <typename Type>
std::optional<OptionValue> typed(const json& value, Type type) {
  switch (type) {
    case Type::text:
      if (value.is_string()) return value.get<std::string>();
      break;
    case Type::integer:
      if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) break;
      if (value.is_number_integer()) return value.get<int64_t>();
      break;
    case Type::real:
      if (value.is_number()) return value.get<double>();
      break;
    case Type::boolean:
      if (value.is_boolean()) return value.get<bool>();
      break;
  }
  return std::nullopt;
}

template <typename Number>
std::optional<Number> parse_number(const std::string& text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stop, failed] = std::from_chars(text.data(), end, number);
  if (text.empty() || failed != std::errc() || stop != end) return std::nullopt;
  return number;
}

}  // namespace

std::string option_text(const OptionValue& value) {
  struct Visitor {
    std::string operator()(const std::string& text) const { return text; }
    std::string operator()(int64_t number) const { return std::to_string(number); }
    std::string operator()(double number) const { return fmt::format("{}", number); }
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
  };
  return std::visit(Visitor{}, value);
}

Status OptionSchema::check(const Spec& spec, const OptionValue& value) {
  std::optional<long double> number;
  if (const auto* integer = std::get_if<int64_t>(&value)) number = static_cast<long double>(*integer);
  if (const auto* real = std::get_if<double>(&value)) number = *real;
  if (number && ((spec.min && *number < *spec.min) || (spec.max && *number > *spec.max))) {
    const auto bound = [](long double b) { return fmt::format("{}", static_cast<double>(b)); };
    const std::string range = !spec.max ? "at least " + bound(*spec.min) : !spec.min ? "at most " + bound(*spec.max) : bound(*spec.min) + " to " + bound(*spec.max);
    return error(Code::invalid_argument, "expected {} but found {}", range, option_text(value))
        .with_hint("correct the option, or leave it out");
  }
  if (!spec.choices.empty() && std::find(spec.choices.begin(), spec.choices.end(), value) == spec.choices.end()) {
    std::vector<std::string> choices;
    for (const OptionValue& choice : spec.choices) choices.push_back(option_text(choice));
    const std::string near = nearest_name(option_text(value), choices);
    return error(Code::invalid_argument, "expected one of {} but found '{}'", fmt::join(choices, ", "),
                 clean_text(option_text(value), 64))
        .with_hint(near.empty() ? std::string("choose one of them, or leave the option out") : fmt::format("did you mean '{}'?", near));
  }
  return Status::ok();
}

Status OptionSchema::parse_spec(const void* described_json, Spec& spec) {
  const json& described = *static_cast<const json*>(described_json);
  const auto refuse = [](std::string_view why) { return error(Code::unsupported, "{}", why); };
  if (!described.is_object()) return refuse("expected an object");
  static const std::map<std::string, Type> types{
      {"string", Type::text}, {"int", Type::integer}, {"float", Type::real}, {"bool", Type::boolean}};
  const json type = described.value("type", json());
  if (!type.is_string() || !types.count(type.get<std::string>()))
    return refuse("type: expected int, float, bool or string");
  spec.type = types.at(type.get<std::string>());
  for (const auto& [member, value] : described.items()) {
    if (member == "type") continue;
    if (member == "doc") {
      if (!value.is_string()) return refuse("doc: expected text");
    } else if (member == "min" || member == "max") {
      if (!value.is_number() || (spec.type != Type::integer && spec.type != Type::real))
        return refuse(member + ": only numbers have it");
      (member == "min" ? spec.min : spec.max) = value.is_number_float()
                                                    ? static_cast<long double>(value.get<double>())
                                                    : static_cast<long double>(value.get<int64_t>());
    } else if (member == "enum") {
      if (!value.is_array() || value.empty()) return refuse("enum: expected a list of values");
      for (const json& choice : value) {
        const auto parsed = typed(choice, spec.type);
        if (!parsed) return refuse("enum: a value is of another type");
        spec.choices.push_back(*parsed);
      }
    } else if (member == "default") {
      if (value.is_null()) continue;
      spec.fallback = typed(value, spec.type);
      if (!spec.fallback) return refuse("default: of another type");
    } else {
      return refuse(fmt::format("unknown member '{}'", clean_text(member, 64)));
    }
  }
  if (spec.min && spec.max && *spec.min > *spec.max) return refuse("min is greater than max");
  return spec.fallback ? check(spec, *spec.fallback).with_context("default") : Status::ok();
}

Result<OptionSchema> OptionSchema::parse(const char* text, const std::string& what) {
  OptionSchema schema;
  if (!text || !text[0]) return schema;
  const size_t size = strnlen(text, max_schema_bytes + 1);
  if (size > max_schema_bytes)
    return error(Code::unsupported, "{}: option schema: over {} bytes", what, max_schema_bytes);
  const json parsed = json::parse(text, text + size, nullptr, false);
  if (!parsed.is_object()) return error(Code::unsupported, "{}: option schema: expected a JSON object", what);
  for (const auto& [key, described] : parsed.items()) {
    const std::string where = fmt::format("{}: option schema: '{}'", what, clean_text(key, 64));
    if (!is_component_name(key, 64)) return error(Code::unsupported, "{}: expected a key of [a-z0-9_]", where);
    const Status status = parse_spec(&described, schema.specs_[key]);
    if (!status.is_ok()) return error(Code::unsupported, "{}: {}", where, status.message());
  }
  return schema;
}

Result<OptionValue> OptionSchema::read_value(const Spec& spec, const std::string& text) {
  const auto expected = [&](const char* form) {
    return error(Code::invalid_argument, "expected {} but found '{}'", form, clean_text(text, 64))
        .with_hint("correct the option, or leave it out");
  };
  std::optional<OptionValue> value;
  switch (spec.type) {
    case Type::text:
      if (text.size() > max_value_bytes || text.find('\0') != std::string::npos)
        return expected("text of at most 4096 bytes");
      value = text;
      break;
    case Type::integer:
      if (const auto number = parse_number<int64_t>(text)) value = *number;
      if (!value) return expected(text.find_first_not_of("-0123456789") == std::string::npos ? "a whole number below 2^63" : "a whole number");
      break;
    case Type::real:
      if (const auto number = parse_number<double>(text); number && std::isfinite(*number)) value = *number;
      if (!value) return expected("a number");
      break;
    case Type::boolean:
      if (text == "true" || text == "false") value = text == "true";
      if (!value) return expected("true or false");
      break;
  }
  TURBO_RETURN_IF_ERROR(check(spec, *value));
  return *value;
}

std::vector<std::string> OptionSchema::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, spec] : specs_) keys.push_back(key);
  return keys;
}

Result<OptionValues> OptionSchema::bind(const OptionTexts& texts, const std::string& what) const {
  OptionValues values;
  for (const auto& [key, spec] : specs_)
    if (spec.fallback) values[key] = *spec.fallback;
  for (const auto& [key, text] : texts) {
    const auto spec = specs_.find(key);
    if (spec == specs_.end()) {
      const std::vector<std::string> known = keys();
      const std::string near = nearest_name(key, known);
      return Status(Code::invalid_argument,
                    fmt::format("{}: unknown option '{}'; {}", what, clean_text(key, 64),
                                known.empty() ? "it has no options" : fmt::format("known: {}", fmt::join(known, ", "))),
                    near.empty() ? "remove the option" : fmt::format("did you mean '{}'?", near));
    }
    Result<OptionValue> value = read_value(spec->second, text);
    if (!value) return value.status().with_context(fmt::format("{}: option '{}'", what, key));
    values[key] = *std::move(value);
  }
  return values;
}

}  // namespace turbo::loader
