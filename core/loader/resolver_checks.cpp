// The request against what is installed: everything that only the user can correct.
#include <algorithm>
#include <set>

#include "base/nearest.h"
#include "loader/resolver.h"
#include "loader/text.h"

namespace turbo::loader {
namespace {

std::string did_you_mean(const std::string& name, const std::vector<std::string>& known, std::string otherwise) {
  const std::string near = nearest_name(name, known);
  return near.empty() ? std::move(otherwise) : fmt::format("did you mean '{}'?", near);
}

}  // namespace

Status Resolver::check_request() {
  TURBO_RETURN_IF_ERROR(check_tiers());
  TURBO_RETURN_IF_ERROR(check_name(TURBO_KIND_KV_CODEC, request_.kv_k));
  TURBO_RETURN_IF_ERROR(check_name(TURBO_KIND_KV_CODEC, request_.kv_v));
  TURBO_RETURN_IF_ERROR(check_name(TURBO_KIND_SAMPLER, request_.sampler));
  if (request_.drafter != "off") TURBO_RETURN_IF_ERROR(check_drafters());
  TURBO_RETURN_IF_ERROR(check_prefer());
  return check_option_slots();
}

Status Resolver::check_tiers() {
  std::vector<std::string> names = request_.tiers;
  if (request_.require) names = {*request_.require};
  if (names.empty()) return error(Code::invalid_argument, "tiers: expected at least one of hip, generic, cpu").with_hint("remove tiers to try all of them");
  for (const std::string& name : names) {
    const auto tier = tier_number(name);
    if (!tier)
      return Status(Code::invalid_argument,
                    fmt::format("{}: expected hip, generic or cpu but found '{}'",
                                request_.require ? "require" : "tiers", clean_text(name, 64)),
                    did_you_mean(name, {"hip", "generic", "cpu"}, "name one of them"));
    if (std::find(tiers_.begin(), tiers_.end(), *tier) == tiers_.end()) tiers_.push_back(*tier);
  }
  return Status::ok();
}

Status Resolver::check_name(const std::string& kind, const std::string& name) const {
  std::set<std::string> names;
  for (const ComponentRef& ref : catalog_.components(kind)) names.insert(ref.component->name);
  if (names.count(name)) return Status::ok();
  // Only in a plugin that was refused: then the reason is what helps.
  for (const ComponentRef& ref : catalog_.refused_components(kind))
    if (ref.component->name == name)
      return Status(Code::unsupported,
                    fmt::format("{} '{}': its plugin '{}' was refused: {}", kind, name, ref.plugin->manifest.id,
                                ref.plugin->refusal.message()),
                    ref.plugin->refusal.hint());
  const std::vector<std::string> known(names.begin(), names.end());
  std::string why = fmt::format("{} '{}': no plugin provides it; installed: {}", kind, clean_text(name, 64),
                                known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
  std::string what_to_do = catalog_.install_hint();
  if (const PluginEntry* unread = unread_plugin()) {
    why += fmt::format("; a plugin whose components are not known was refused: {}", unread->refusal.message());
    what_to_do = unread->refusal.hint().empty() ? "mend that plugin; `turbo plugins list` names every refusal" : unread->refusal.hint();
  }
  return Status(Code::invalid_argument, std::move(why), did_you_mean(name, known, what_to_do));
}

// A refused plugin, or search folder, that might provide anything: its manifest was not read.
const PluginEntry* Resolver::unread_plugin() const {
  for (const PluginEntry& plugin : catalog_.plugins())
    if (!plugin.refusal.is_ok() && !plugin.replaced && plugin.manifest.id.empty()) return &plugin;
  return nullptr;
}

// A tree of distinct names, each of them installed.
Status Resolver::check_drafters() const {
  constexpr size_t most = 16;
  std::vector<std::pair<std::string, std::string>> found{{request_.drafter, ""}};  // name, and over which it stands below
  for (size_t i = 0; i < found.size(); ++i) {
    const auto [name, outer] = found[i];
    const std::string shown = clean_text(name, 64);
    if (const Status status = check_name(TURBO_KIND_DRAFTER, name); !status.is_ok())
      return outer.empty() ? status : status.with_context(fmt::format("drafter '{}' over others", clean_text(outer, 64)));
    const auto over = request_.drafter_over.find(name);
    if (over == request_.drafter_over.end()) continue;
    for (const std::string& inner : over->second) {
      if (inner == name)
        return Status(Code::invalid_argument, fmt::format("drafter '{}': it cannot work over itself", shown),
                      "name another drafter for it to work over");
      const bool twice = std::any_of(found.begin(), found.end(), [&](const auto& other) { return other.first == inner; });
      if (twice)
        return Status(Code::invalid_argument, fmt::format("drafter '{}': it is in the composition twice", clean_text(inner, 64)),
                      "name each drafter once");
      found.emplace_back(inner, name);
    }
    if (found.size() > most)
      return error(Code::invalid_argument, "drafter '{}': over {} drafters in one composition", shown, most).with_hint("name fewer drafters");
  }
  return Status::ok();
}

Status Resolver::check_prefer() const {
  for (const auto& [key, id] : request_.prefer) {
    const std::string where = fmt::format("plugins.prefer: '{}'", clean_text(key, 128));
    const size_t colon = key.find(':');
    const std::string kind = key.substr(0, colon),
                      name = colon == std::string::npos ? std::string() : key.substr(colon + 1);
    const std::vector<std::string>& kinds = component_kinds();
    if (name.empty() || std::find(kinds.begin(), kinds.end(), kind) == kinds.end())
      return Status(Code::invalid_argument,
                    fmt::format("{}: expected kind:name with a kind of {}", where, fmt::join(kinds, ", ")),
                    "write for example kv_codec:f16");
    std::vector<std::string> providers;
    for (const ComponentRef& ref : catalog_.components(kind))
      if (ref.component->name == name && (providers.empty() || providers.back() != ref.plugin->manifest.id))
        providers.push_back(ref.plugin->manifest.id);
    if (std::find(providers.begin(), providers.end(), id) == providers.end())
      return Status(Code::invalid_argument,
                    fmt::format("{}: plugin '{}' does not provide it; providers: {}", where, clean_text(id, 128),
                                providers.empty() ? "none" : fmt::format("{}", fmt::join(providers, ", "))),
                    did_you_mean(id, providers, "see `turbo plugins list`"));
  }
  return Status::ok();
}

Status Resolver::check_option_slots() const {
  std::vector<std::string> slots{TURBO_KIND_WEIGHT_FORMAT, TURBO_KIND_KV_CODEC};
  for (const Need& need : needs_) slots.push_back(need.slot);
  if (request_.drafter != "off") slots.push_back(TURBO_KIND_DRAFTER);
  for (const auto& [name, over] : request_.drafter_over)
    for (const std::string& inner : over) slots.push_back(TURBO_KIND_DRAFTER + (":" + inner));
  for (const auto& [slot, texts] : request_.options) {
    if (texts.empty() || std::find(slots.begin(), slots.end(), slot) != slots.end()) continue;
    if (slot == TURBO_KIND_DRAFTER)
      return Status(
          Code::invalid_argument,
          fmt::format("options for the drafter ('{}'), but the drafter is off", clean_text(texts.begin()->first, 64)),
          "name a drafter or remove its options");
    return Status(
        Code::invalid_argument,
        fmt::format("options for '{}': there is no such slot; slots: {}", clean_text(slot, 64), fmt::join(slots, ", ")),
        did_you_mean(slot, slots, "remove them"));
  }
  return Status::ok();
}

Status Resolver::check_shared_options(const std::string& kind,
                                      const std::vector<const turbo_component*>& chosen) const {
  const auto shared = request_.options.find(kind);
  if (shared == request_.options.end()) return Status::ok();
  std::set<std::string> known;
  for (const turbo_component* component : chosen) {
    const Result<OptionSchema> schema = OptionSchema::parse(component->option_schema, kind);
    if (!schema) continue;
    for (const std::string& key : schema->keys()) known.insert(key);
  }
  for (const auto& [key, text] : shared->second)
    if (!known.count(key)) return unknown_option(kind, key, {known.begin(), known.end()});
  return Status::ok();
}

Status Resolver::unknown_option(const std::string& slot, const std::string& key, std::vector<std::string> known) const {
  std::string name = slot;
  if (const auto words = request_.option_words.find(slot); words != request_.option_words.end()) {
    name = words->second.name;
    known.insert(known.end(), words->second.more.begin(), words->second.more.end());
    std::sort(known.begin(), known.end());
  }
  return Status(Code::invalid_argument,
                fmt::format("{}: unknown option '{}'; {}", name, clean_text(key, 64),
                            known.empty() ? "what was chosen has no options" : fmt::format("known: {}", fmt::join(known, ", "))),
                did_you_mean(key, known, "remove the option"));
}

}  // namespace turbo::loader
