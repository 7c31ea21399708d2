// Options of a component: its JSON schema, and the user's texts turned into typed values.
// Pure, any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"

namespace turbo::loader {

using OptionTexts = std::map<std::string, std::string>;
using OptionValue = std::variant<std::string, int64_t, double, bool>;
using OptionValues = std::map<std::string, OptionValue>;

class OptionSchema {
 public:
  /// Schema text as in turbo_component.option_schema (null or "": no options). `what` begins messages.
  static Result<OptionSchema> parse(const char* text, const std::string& what);

  /// Every default, overlaid by `texts`. An unknown key lists the known ones and suggests the nearest.
  Result<OptionValues> bind(const OptionTexts& texts, const std::string& what) const;

  bool knows(const std::string& key) const { return specs_.count(key) != 0; }
  std::vector<std::string> keys() const;

 private:
  enum class Type { text, integer, real, boolean };
  struct Spec {
    Type type = Type::text;
    std::optional<OptionValue> fallback;
    std::optional<long double> min, max;
    std::vector<OptionValue> choices;
  };
  static Result<OptionValue> read_value(const Spec& spec, const std::string& text);
  static Status check(const Spec& spec, const OptionValue& value);
  static Status parse_spec(const void* json, Spec& spec);

  std::map<std::string, Spec> specs_;
};

/// The value as a person would write it.
std::string option_text(const OptionValue& value);

}  // namespace turbo::loader
