#include "profile/schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "profile/flags.h"
#include "profile/keys.h"
#include "profile/scalar.h"

namespace turbo::profile {
namespace {

using Json = nlohmann::ordered_json;

Json whole_or_real(double value) {
  return std::floor(value) == value ? Json(static_cast<int64_t>(value)) : Json(value);
}

void add_range(Json& type, const ValueRule& rule) {
  const bool open = std::abs(rule.maximum) >= 9e15;
  if (open) return;
  type[rule.above_minimum ? "exclusiveMinimum" : "minimum"] = whole_or_real(rule.minimum);
  type["maximum"] = whole_or_real(rule.maximum);
}

Json scalar_schema(const ValueRule& rule) {
  switch (rule.kind) {
    case KeyKind::boolean: return {{"type", "boolean"}};
    case KeyKind::integer:
    case KeyKind::number: {
      Json type{{"type", rule.kind == KeyKind::integer ? "integer" : "number"}};
      add_range(type, rule);
      return type;
    }
    case KeyKind::bytes:
      return {{"anyOf",
               {{{"type", "integer"}, {"minimum", 0}}, {{"type", "string"}, {"pattern", "^[0-9]+ ?(B|[KMGT]i?B)$"}}}}};
    case KeyKind::duration_ms:
      return {{"anyOf",
               {{{"type", "integer"}, {"minimum", 0}}, {{"type", "string"}, {"pattern", "^[0-9]+ ?(ms|s|m|min|h)$"}}}}};
    case KeyKind::choice: return {{"enum", rule.choices}};
    default: return {{"type", "string"}};
  }
}

Json value_schema(const ValueRule& rule) {
  if (rule.kind == KeyKind::text_list || rule.kind == KeyKind::path_list) {
    Json item = rule.choices.empty() ? Json{{"type", "string"}} : Json{{"enum", rule.choices}};
    return {{"type", "array"}, {"items", std::move(item)}, {"maxItems", 256}};
  }
  if (rule.kind == KeyKind::text_map)
    return {{"type", "object"}, {"additionalProperties", {{"type", {"string", "number", "boolean"}}}}};
  const Json scalar = scalar_schema(rule);
  if (rule.zero_word.empty() && !rule.optional) return scalar;
  Json forms = Json::array();
  forms.push_back(scalar);
  if (!rule.zero_word.empty()) forms.push_back(rule.kind == KeyKind::integer ? Json{{"const", rule.zero_word}} : Json{{"enum", {0, rule.zero_word}}});
  if (rule.optional) forms.push_back({{"type", "null"}});
  return {{"anyOf", std::move(forms)}};
}

// The default of a key as YAML text; empty when there is none.
std::string default_text(const KeySpec& spec) {
  if (spec.get == nullptr) return {};
  const Value value = spec.get(Profile{});
  const ValueRule& rule = spec.rule;
  if (const auto* number = std::get_if<int64_t>(&value)) {
    if (*number == 0 && !rule.zero_word.empty()) return rule.zero_word;
    if (rule.kind == KeyKind::bytes) return format_bytes(static_cast<uint64_t>(*number));
    if (rule.kind == KeyKind::duration_ms) return format_duration_ms(static_cast<uint64_t>(*number));
    return fmt::format("{}", *number);
  }
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* number = std::get_if<double>(&value)) return fmt::format("{}", *number);
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* list = std::get_if<std::vector<std::string>>(&value))
    return list->empty() ? "[]" : fmt::format("[{}]", fmt::join(*list, ", "));
  if (std::holds_alternative<std::map<std::string, std::string>>(value)) return "{}";
  return {};
}

void add_property(Json& root, const std::string& path, Json schema) {
  Json* object = &root;
  size_t start = 0;
  for (size_t dot; (dot = path.find('.', start)) != std::string::npos; start = dot + 1) {
    Json& child = (*object)["properties"][path.substr(start, dot - start)];
    if (child.is_null())
      child = {{"type", {"object", "null"}}, {"additionalProperties", false}, {"properties", Json::object()}};
    object = &child;
  }
  (*object)["properties"][path.substr(start)] = std::move(schema);
}

// Table cells must not contain the cell separator.
std::string cell(std::string text) {
  for (size_t i = 0; (i = text.find('|', i)) != std::string::npos; i += 2) text.replace(i, 1, "\\|");
  return text;
}

std::string key_rows(const std::string& section) {
  std::string rows = "| key | value | default | meaning |\n|---|---|---|---|\n";
  for (const KeySpec& spec : key_table()) {
    const bool inside =
        section.empty() ? spec.path.find('.') == std::string::npos : spec.path.starts_with(section + ".");
    if (!inside) continue;
    const std::string standard = default_text(spec);
    rows += fmt::format("| `{}` | {} | {} | {} |\n", spec.path, cell(accepted_forms(spec.rule)),
                        standard.empty() ? "" : "`" + standard + "`", cell(spec.doc));
  }
  return rows;
}

std::string flag_rows(FlagGroup group) {
  std::string rows = "| flag | sets | meaning |\n|---|---|---|\n";
  for (const Flag& flag : flag_table()) {
    if (flag.group != group) continue;
    const std::string sets = flag.key.empty() ? "" : "`" + flag.key + "`";
    const std::string help = flag.no_effect.empty() ? flag.help : "no effect: " + flag.no_effect;
    rows +=
        cell(fmt::format("`{}{}`", flag.name, flag.value_name.empty() ? "" : " " + flag.value_name)).insert(0, "| ") +
        fmt::format(" | {} | {} |\n", sets, cell(help));
  }
  return rows;
}

}  // namespace

Json json_schema() {
  Json root{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
            {"title", "turbo profile"},
            {"type", "object"},
            {"additionalProperties", false},
            {"properties", Json::object()}};
  for (const KeySpec& spec : key_table()) {
    Json schema = value_schema(spec.rule);
    const std::string standard = default_text(spec);
    schema["description"] = standard.empty() ? spec.doc : fmt::format("{} Default: {}.", spec.doc, standard);
    add_property(root, spec.path, std::move(schema));
  }
  for (const DrafterOption& option : drafter_options()) {
    Json schema = value_schema(option.rule);
    schema["description"] = fmt::format("{} (drafter {})", option.doc, fmt::join(option.drafters, ", "));
    add_property(root, "drafter." + option.name, std::move(schema));
  }
  for (const SectionDoc& section : section_table()) root["properties"][section.name]["description"] = section.doc;
  return root;
}

std::string reference_markdown() {
  std::string page =
      "# Profile reference\n\n"
      "<!-- Generated from core/profile/keys.cpp and flags.cpp; a test keeps it up to date. -->\n\n"
      "A profile is one YAML file. Every key is optional. Relative paths start at the profile's folder, then at the\n"
      "install prefix; `~/` and `${NAME}` are replaced in paths. Anchors, aliases, tags and a second document are\n"
      "refused, and so are unknown keys. Command line beats environment beats profile beats default.\n\n"
      "## Top level\n\n" +
      key_rows("");
  for (const SectionDoc& section : section_table())
    page += fmt::format("\n## {}\n\n{}\n\n{}", section.name, section.doc, key_rows(section.name));
  page += "\n## Drafter options\n\n| option | drafters | value | meaning |\n|---|---|---|---|\n";
  for (const DrafterOption& option : drafter_options())
    page += fmt::format("| `{}` | {} | {} | {} |\n", option.name, fmt::join(option.drafters, ", "),
                        cell(accepted_forms(option.rule)), cell(option.doc));
  page += "\n## Options of all commands\n\nEach has an environment twin: `--kv-codec` is `TURBO_KV_CODEC`.\n\n" +
          flag_rows(FlagGroup::shared) + "\n## Flags of compatible command lines\n\n" +
          flag_rows(FlagGroup::compatible);
  return page;
}

}  // namespace turbo::profile
