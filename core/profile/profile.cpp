#include "profile/profile.h"

#include <algorithm>

#include <fmt/format.h>

#include <exception>
#include <nlohmann/json.hpp>

#include "profile/keys.h"
#include "profile/merge.h"
#include "profile/yaml_tree.h"

namespace turbo::profile {
namespace {

using nlohmann::json;

json value_to_json(const KeySpec& spec, const Value& value) {
  if (spec.secret) {
    json masked = json::array();
    for (size_t i = 0; i < std::get<std::vector<std::string>>(value).size(); ++i) masked.push_back("***");
    return masked;
  }
  return std::visit(
      [](const auto& held) -> json {
        if constexpr (std::is_same_v<std::decay_t<decltype(held)>, std::monostate>)
          return nullptr;
        else
          return held;
      },
      value);
}

Result<Profile> finish(Merger& merger, std::span<const Override> overrides) {
  TURBO_RETURN_IF_ERROR(merger.apply_overrides(overrides));
  TURBO_RETURN_IF_ERROR(validate(merger.profile(), merger.origins()));
  return std::move(merger.profile());
}

Result<Profile> parse(std::string_view text, const std::filesystem::path& source, std::span<const Override> overrides,
                      const SearchPaths& search) {
  TURBO_ASSIGN(const YamlNode root, parse_yaml(text, source.string()));
  Merger merger(source, search);
  TURBO_RETURN_IF_ERROR(merger.apply_file(root));
  return finish(merger, overrides);
}

Result<Profile> load(const std::optional<std::string>& name_or_path, std::span<const Override> overrides,
                     const SearchPaths& search) {
  if (name_or_path) {
    TURBO_ASSIGN(const std::filesystem::path file, find_profile(*name_or_path, search));
    TURBO_ASSIGN(const std::string text, read_regular_file(file, max_profile_bytes));
    return parse(text, file, overrides, search);
  }
  for (const std::filesystem::path& folder : search.config_folders) {
    const std::filesystem::path file = folder / "default.yaml";
    auto text = read_regular_file(file, max_profile_bytes);
    if (!text && text.status().code() == Code::not_found) continue;
    if (!text) return text.status();
    return parse(*text, file, overrides, search);
  }
  Merger merger({}, search);
  merger.profile().adjustments.push_back("no configs/default.yaml was found; the built-in defaults are used");
  return finish(merger, overrides);
}

// The libraries used may throw on allocation failure or odd file names; callers see a Status.
template <typename Call>
Result<Profile> guarded(Call call) {
  try {
    return call();
  } catch (const std::exception& failure) {
    return error(Code::resource_exhausted, "profile: loading failed: {}", failure.what());
  }
}

}  // namespace

Result<Profile> parse_profile(std::string_view text, const std::filesystem::path& source,
                              std::span<const Override> overrides, const SearchPaths& search) {
  return guarded([&] { return parse(text, source, overrides, search); });
}

Result<Profile> load_profile(const std::optional<std::string>& name_or_path, std::span<const Override> overrides,
                             const SearchPaths& search) {
  return guarded([&] { return load(name_or_path, overrides, search); });
}

json to_json(const Profile& profile) {
  json root = json::object();
  for (const KeySpec& spec : key_table()) {
    if (spec.get == nullptr) continue;
    json* parent = &root;
    size_t start = 0;
    for (size_t dot; (dot = spec.path.find('.', start)) != std::string::npos; start = dot + 1)
      parent = &(*parent)[spec.path.substr(start, dot - start)];
    (*parent)[spec.path.substr(start)] = value_to_json(spec, spec.get(profile));
  }
  return root;
}

uint64_t fingerprint(const Profile& profile) {
  json settings = to_json(profile);
  settings["server"].erase("api_keys");
  const std::string text = settings.dump(-1, ' ', false, json::error_handler_t::replace);
  uint64_t hash = 14695981039346656037ull;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return hash;
}

std::vector<std::string> Profile::Drafter::members() const {
  std::vector<std::string> names{name};
  names.insert(names.end(), over.begin(), over.end());
  if (outcome_cache) names.push_back(outcome_cache_name);
  return names;
}

bool Profile::Drafter::has_member(const std::string& drafter) const {
  const std::vector<std::string> names = members();
  return std::find(names.begin(), names.end(), drafter) != names.end();
}

}  // namespace turbo::profile
