#include "profile/merge.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/nearest.h"
#include "profile/flags.h"
#include "profile/printable.h"
#include "profile/scalar.h"

namespace turbo::profile {
namespace fs = std::filesystem;
namespace {

constexpr size_t most_list_items = 256;
constexpr size_t most_map_entries = 256;

const char* kind_name(YamlNode::Kind kind) {
  switch (kind) {
    case YamlNode::Kind::null: return "nothing";
    case YamlNode::Kind::scalar: return "plain text";
    case YamlNode::Kind::list: return "a list";
    case YamlNode::Kind::map: return "a map";
  }
  return "nothing";
}

Scalar scalar_of(const YamlNode& node) { return {node.text, node.quoted, node.kind == YamlNode::Kind::null}; }

std::string join_path(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

// The rule of one item of a list key.
ValueRule item_rule(const ValueRule& list) {
  ValueRule rule = list;
  rule.kind = list.kind == KeyKind::path_list ? KeyKind::path : list.choices.empty() ? KeyKind::text : KeyKind::choice;
  return rule;
}

std::string full_path_of_leaf(const std::string& leaf) {
  for (const KeySpec& spec : key_table())
    if (spec.path.ends_with("." + leaf)) return spec.path;
  return find_drafter_option(leaf) != nullptr ? "drafter." + leaf : "";
}

// "speculative_num_steps" and "--speculative-num-steps" as keys: people paste flag names.
std::string key_of_flag_name(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  name.erase(0, name.find_first_not_of('-'));
  const Flag* flag = find_flag("--" + name);
  return flag == nullptr ? "" : flag->key;
}

std::vector<std::string> split_list(std::string_view text) {
  if (text.starts_with('[') && text.ends_with(']') && text.size() >= 2) text = text.substr(1, text.size() - 2);
  std::vector<std::string> items;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    std::string_view item = text.substr(0, end);
    while (item.starts_with(' ')) item.remove_prefix(1);
    while (item.ends_with(' ')) item.remove_suffix(1);
    items.emplace_back(item);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return items;
}

}  // namespace

Status unknown_key(const std::string& where, const std::string& path) {
  const size_t dot = path.rfind('.');
  const std::string section = dot == std::string::npos ? "" : path.substr(0, dot);
  const std::string leaf = dot == std::string::npos ? path : path.substr(dot + 1);
  std::vector<std::string> names = names_under(section);
  if (section == "drafter")
    for (const DrafterOption& option : drafter_options()) names.push_back(option.name);
  std::string hint;
  if (const std::string full = full_path_of_leaf(leaf); !full.empty() && full != path) {
    hint = fmt::format("did you mean '{}'?", full);
  } else if (const std::string key = key_of_flag_name(leaf); !key.empty()) {
    hint = fmt::format("in a profile this is '{}'", key);
  } else if (const std::string near = nearest_name(leaf, names); !near.empty()) {
    hint = fmt::format("did you mean '{}'?", join_path(section, near));
  } else if (!names.empty()) {
    hint = fmt::format("keys {}: {}", section.empty() ? "at the top" : "under " + section, fmt::join(names, ", "));
  } else {
    hint = fmt::format("keys at the top: {}", fmt::join(names_under(""), ", "));
  }
  return Status(Code::invalid_argument, fmt::format("{}: {}: unknown key", where, printable(path)), hint);
}

Merger::Merger(const fs::path& source, const SearchPaths& search)
    : search_(search), base_(source.parent_path()), file_(source.string()) {
  if (base_.empty() || base_.is_relative()) base_ = search.working_folder / base_;
  profile_.source = source;
}

std::string Merger::place(Position at) const { return fmt::format("{}:{}:{}", file_, at.line, at.column); }

Status Merger::at(Position position, const std::string& path, const Status& status) const {
  return status.with_context(path).with_context(place(position));
}

Result<Value> Merger::read(const KeySpec& spec, const Scalar& scalar, bool from_file) const {
  TURBO_ASSIGN(Value value, read_scalar(spec.rule, scalar));
  if (spec.rule.kind != KeyKind::path) return value;
  const fs::path& base = from_file ? base_ : search_.working_folder;
  return Value(resolve_path(std::get<std::string>(value), base, search_).string());
}

Status Merger::apply_file(const YamlNode& root) { return apply_map(root, ""); }

Status Merger::apply_map(const YamlNode& map, const std::string& prefix) {
  // kv.codec is both sides: it goes first, wherever it stands, so that kv.k and kv.v can override theirs.
  const auto first = [&](const YamlNode::Entry& entry) { return prefix == "kv" && entry.key == "codec"; };
  for (const bool now : {true, false})
    for (const YamlNode::Entry& entry : map.entries)
      if (first(entry) == now) TURBO_RETURN_IF_ERROR(apply_entry(entry, join_path(prefix, entry.key)));
  return Status::ok();
}

Status Merger::apply_entry(const YamlNode::Entry& entry, const std::string& path) {
  const bool dotted = entry.key.find('.') != std::string::npos;
  if (const KeySpec* spec = dotted ? nullptr : find_key(path)) {
    if (Status status = apply_value(*spec, entry.value); !status) return status;
    origins_[path] = {place(entry.at), true};
    return Status::ok();
  }
  if (!dotted && is_section(path)) {
    if (entry.value.kind == YamlNode::Kind::null) return Status::ok();  // all of its lines are commented out
    if (entry.value.kind == YamlNode::Kind::map) return apply_map(entry.value, path);
    const std::string example = names_under(path).front();
    return at(entry.value.at, path,
              Status(Code::invalid_argument,
                     fmt::format("expected settings but found {}", entry.value.kind == YamlNode::Kind::scalar
                                                                       ? printable(entry.value.text)
                                                                       : kind_name(entry.value.kind)),
                     fmt::format("write {}: {{ {}: ... }}", path, example)));
  }
  if (const DrafterOption* option = find_drafter_option(entry.key); option && path == "drafter." + entry.key)
    return apply_short_option(*option, entry);
  if (dotted && find_key(path) != nullptr)
    return Status(Code::invalid_argument, fmt::format("{}: {}: unknown key", place(entry.at), printable(path)),
                  "in a profile the parts of a key are nested maps, not joined with points");
  return unknown_key(place(entry.at), path);
}

Status Merger::apply_value(const KeySpec& spec, const YamlNode& value) {
  const ValueRule& rule = spec.rule;
  if (rule.kind == KeyKind::text_map) return apply_map_value(spec, value);
  const bool list = rule.kind == KeyKind::text_list || rule.kind == KeyKind::path_list;
  const YamlNode::Kind wanted = list ? YamlNode::Kind::list : YamlNode::Kind::scalar;
  const bool null_scalar = !list && value.kind == YamlNode::Kind::null;
  if (value.kind != wanted && !null_scalar)
    return at(value.at, spec.path,
              error(Code::invalid_argument, "expected {} but found {}", accepted_forms(rule),
                    value.kind == YamlNode::Kind::scalar ? printable(value.text) : kind_name(value.kind)));
  if (!list) {
    auto read_value = read(spec, scalar_of(value), true);
    if (!read_value) return at(value.at, spec.path, read_value.status());
    spec.set(profile_, *read_value);
    return Status::ok();
  }
  if (value.items.size() > most_list_items)
    return at(
        value.at, spec.path,
        error(Code::resource_exhausted, "expected at most {} items but found {}", most_list_items, value.items.size()));
  std::vector<std::string> texts;
  for (const YamlNode& item : value.items) {
    if (item.kind == YamlNode::Kind::list || item.kind == YamlNode::Kind::map)
      return at(
          item.at, spec.path,
          error(Code::invalid_argument, "expected {} but found {} in it", accepted_forms(rule), kind_name(item.kind)));
    auto text = read_scalar(item_rule(rule), scalar_of(item));
    if (!text) return at(item.at, spec.path, text.status());
    std::string read_text = std::get<std::string>(*text);
    if (rule.kind == KeyKind::path_list) read_text = resolve_path(read_text, base_, search_).string();
    texts.push_back(std::move(read_text));
  }
  spec.set(profile_, Value(std::move(texts)));
  return Status::ok();
}

Status Merger::apply_map_value(const KeySpec& spec, const YamlNode& value) {
  if (value.kind == YamlNode::Kind::null) return Status::ok();
  if (value.kind != YamlNode::Kind::map)
    return at(value.at, spec.path,
              error(Code::invalid_argument, "expected {} but found {}", accepted_forms(spec.rule),
                    value.kind == YamlNode::Kind::scalar ? printable(value.text) : kind_name(value.kind)));
  for (const YamlNode::Entry& entry : value.entries) {
    const std::string path = spec.path + "." + entry.key;
    // Options of one drafter of several: a map under its name.
    if (spec.path == "drafter.options" && entry.value.kind == YamlNode::Kind::map && entry.key.find('.') == std::string::npos) {
      YamlNode flat = entry.value;
      for (YamlNode::Entry& inner : flat.entries) {
        if (inner.value.kind == YamlNode::Kind::map)
          return at(inner.value.at, path + "." + inner.key,
                    error(Code::invalid_argument, "expected a single value but found {}", kind_name(inner.value.kind)));
        inner.key = entry.key + "." + inner.key;
      }
      TURBO_RETURN_IF_ERROR(apply_map_value(spec, flat));
      continue;
    }
    if (entry.value.kind != YamlNode::Kind::scalar)
      return at(entry.value.at, path,
                error(Code::invalid_argument, "expected a single value but found {}", kind_name(entry.value.kind)));
    if (Status status = set_map_entry(spec, entry.key, entry.value.text); !status)
      return at(entry.value.at, path, status);
    if (!origins_.emplace(path, Origin{place(entry.at), true}).second)
      return at(entry.at, path, Status(Code::invalid_argument, "the option is given twice", "keep one of the two"));
  }
  return Status::ok();
}

// `drafter: { ghosts: 4 }` is short for `drafter: { options: { ghosts: 4 } }`.
Status Merger::apply_short_option(const DrafterOption& option, const YamlNode::Entry& entry) {
  const std::string path = "drafter." + option.name;
  if (entry.value.kind == YamlNode::Kind::list || entry.value.kind == YamlNode::Kind::map)
    return at(entry.value.at, path,
              error(Code::invalid_argument, "expected {} but found {}", accepted_forms(option.rule),
                    kind_name(entry.value.kind)));
  if (auto value = read_scalar(option.rule, scalar_of(entry.value)); !value)
    return at(entry.value.at, path, value.status());
  const std::string full = "drafter.options." + option.name;
  if (!origins_.emplace(full, Origin{place(entry.at), true}).second)
    return at(entry.at, path, Status(Code::invalid_argument, "the option is given twice", "keep one of the two"));
  origins_[path] = origins_[full];
  profile_.drafter.options[option.name] = entry.value.text;
  return Status::ok();
}

Status Merger::set_map_entry(const KeySpec& spec, const std::string& entry, const std::string& value) {
  auto map = std::get<std::map<std::string, std::string>>(spec.get(profile_));
  if (entry.size() > 128 || value.size() > 4096) return Status(Code::invalid_argument, "the name or value is too long");
  map[entry] = value;
  if (map.size() > most_map_entries)
    return error(Code::resource_exhausted, "expected at most {} entries", most_map_entries);
  spec.set(profile_, Value(std::move(map)));
  return Status::ok();
}

// A drafter chosen by a flag or the environment makes the file's settings for another drafter meaningless.
void Merger::forget_other_drafter(std::span<const Override> overrides) {
  const Override* chosen = nullptr;
  for (const Override& setting : overrides)
    if (setting.key_path == "drafter.name") chosen = &setting;
  if (chosen == nullptr || chosen->value == profile_.drafter.name) return;
  std::vector<std::string> dropped;
  for (auto it = origins_.begin(); it != origins_.end();) {
    const std::string& path = it->first;
    const bool general =
        path == "drafter.name" || path == "drafter.adaptive" || path == "drafter.lossless" || path == "drafter.options";
    if (path.starts_with("drafter.") && !general) dropped.push_back(path);
    it = path.starts_with("drafter.") && !general ? origins_.erase(it) : std::next(it);
  }
  Profile::Drafter fresh;
  fresh.name = profile_.drafter.name;
  fresh.adaptive = profile_.drafter.adaptive;
  fresh.lossless = profile_.drafter.lossless;
  const std::string before = profile_.drafter.name;
  profile_.drafter = fresh;
  if (!dropped.empty())
    profile_.adjustments.push_back(fmt::format("{} selects drafter {}: the profile's settings for {} are not used ({})",
                                               chosen->origin, printable(chosen->value), printable(before),
                                               fmt::join(dropped, ", ")));
}

bool Merger::fits_drafter(const Override& setting) {
  const std::string& name = profile_.drafter.name;
  const auto& wanted = setting.for_drafters;
  const auto at_work = [&](const std::string& drafter) { return profile_.drafter.has_member(drafter); };
  if (std::any_of(wanted.begin(), wanted.end(), at_work)) return true;
  profile_.adjustments.push_back(fmt::format("{} has no effect: it belongs to drafter {}, and {} is selected",
                                             setting.origin, fmt::join(wanted, " or "),
                                             name == "off" ? "none" : printable(name)));
  return false;
}

Status Merger::apply_overrides(std::span<const Override> given) {
  // As in the file: of one source, kv.codec goes before kv.k and kv.v. The environment's settings are the first ones.
  std::vector<Override> overrides(given.begin(), given.end());
  const auto both_sides = [](const Override& setting) { return setting.key_path == "kv.codec"; };
  const auto typed = std::find_if(overrides.begin(), overrides.end(), [](const Override& o) { return !o.from_environment; });
  std::stable_partition(overrides.begin(), typed, both_sides);
  std::stable_partition(typed, overrides.end(), both_sides);
  forget_other_drafter(overrides);
  for (const Override& setting : overrides) {
    if (!setting.note.empty()) profile_.adjustments.push_back(setting.note);
    if (setting.key_path.empty() || !setting.for_drafters.empty()) continue;
    TURBO_RETURN_IF_ERROR(apply_override(setting));
  }
  for (const Override& setting : overrides) {  // now the drafter is known
    if (setting.key_path.empty() || setting.for_drafters.empty() || !fits_drafter(setting)) continue;
    TURBO_RETURN_IF_ERROR(apply_override(setting));
  }
  return Status::ok();
}

Status Merger::apply_override(const Override& setting) {
  std::string path = setting.key_path;
  const bool short_option = path.starts_with("drafter.") && find_drafter_option(path.substr(8)) != nullptr;
  if (short_option && find_key(path) == nullptr) path = "drafter.options." + path.substr(8);
  const Origin origin{setting.origin, false};
  std::string entry;
  if (const KeySpec* map = find_map_key(path, entry)) {
    TURBO_RETURN_IF_ERROR(set_map_entry(*map, entry, setting.value).with_context(path).with_context(setting.origin));
    origins_[path] = origin;
    if (path != setting.key_path) origins_[setting.key_path] = origin;
    return Status::ok();
  }
  const KeySpec* spec = find_key(path);
  if (spec == nullptr) return unknown_key(setting.origin, path);
  const ValueRule& rule = spec->rule;
  if (rule.kind == KeyKind::text_map)
    return Status(Code::invalid_argument,
                  fmt::format("{}: {}: expected one entry but found the whole map", setting.origin, path),
                  fmt::format("name the entry: {}.NAME=VALUE", path));
  if (rule.kind == KeyKind::text_list || rule.kind == KeyKind::path_list) {
    TURBO_RETURN_IF_ERROR(override_list(*spec, setting));
  } else {
    const bool unset = rule.optional && (setting.value.empty() || setting.value == "null");
    auto value = read(*spec, {setting.value, false, unset}, false);
    if (!value) return value.status().with_context(path).with_context(setting.origin);
    spec->set(profile_, *value);
  }
  if (path == "kv.codec") {
    origins_.erase("kv.k");
    origins_.erase("kv.v");
  }
  // A later layer replaces the file's choice of tiers whole: `--tier cpu` over `tiers: [hip]` is no contradiction.
  if (path == "require" && origins_.contains("tiers") && origins_["tiers"].from_file) {
    origins_.erase("tiers");
    if (profile_.require) profile_.tiers = {*profile_.require};
  }
  if (path == "tiers" && origins_.contains("require") && origins_["require"].from_file) {
    origins_.erase("require");
    profile_.require.reset();
  }
  origins_[path] = origin;
  return Status::ok();
}

Status Merger::override_list(const KeySpec& spec, const Override& setting) {
  std::vector<std::string> texts;
  for (const std::string& item : split_list(setting.value)) {
    auto text = read_scalar(item_rule(spec.rule), {item, false, false});
    if (!text) return text.status().with_context(spec.path).with_context(setting.origin);
    std::string read_text = std::get<std::string>(*text);
    if (spec.rule.kind == KeyKind::path_list)
      read_text = resolve_path(read_text, search_.working_folder, search_).string();
    texts.push_back(std::move(read_text));
  }
  if (texts.size() > most_list_items)
    return error(Code::resource_exhausted, "{}: {}: expected at most {} items", setting.origin, spec.path,
                 most_list_items);
  if (spec.secret && texts.empty()) TURBO_RETURN_IF_ERROR(check_emptied_keys(spec, setting));
  spec.set(profile_, Value(std::move(texts)));
  return Status::ok();
}

// No keys means no check: what another setting protects must not come open unnoticed.
Status Merger::check_emptied_keys(const KeySpec& spec, const Override& setting) {
  const auto before = std::get<std::vector<std::string>>(spec.get(profile_));
  const auto origin = origins_.find(spec.path);
  if (before.empty() || origin == origins_.end()) return Status::ok();
  if (!origin->second.from_file)
    return Status(Code::invalid_argument,
                  fmt::format("{}: {}: an empty list contradicts {}, which asks for a key", setting.origin, spec.path,
                              origin->second.where),
                  "keep one of the two");
  profile_.adjustments.push_back(fmt::format("{} removes the keys of {}: clients need none", setting.origin, origin->second.where));
  return Status::ok();
}

}  // namespace turbo::profile
