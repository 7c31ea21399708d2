// Candidates of a slot: found in the catalog, opened, proved, probed, ordered.
#include <algorithm>

#include "loader/resolver.h"
#include "loader/text.h"

namespace turbo::loader {

bool Need::matches(const ManifestComponent& component) const {
  if (component.kind != kind || (!name.empty() && component.name != name)) return false;
  return !type || std::find(component.types.begin(), component.types.end(), *type) != component.types.end();
}

Result<std::vector<ComponentRef>> Resolver::installed(const Need& need, uint32_t tier) {
  std::vector<ComponentRef> refs;
  for (const ComponentRef& ref : catalog_.components(need.kind))
    if (ref.component->tier == tier && need.matches(*ref.component)) refs.push_back(ref);
  for (const ComponentRef& ref : catalog_.refused_components(need.kind))
    if (ref.component->tier == tier && need.matches(*ref.component)) {
      // Of two copies of one plugin the warnings tell; a row of its name here is about the one that is used.
      const bool replaced = std::any_of(refs.begin(), refs.end(), [&](const ComponentRef& other) {
        return other.plugin->manifest.id == ref.plugin->manifest.id && other.component->name == ref.component->name;
      });
      if (!replaced) reject(need.slot, ref.plugin->manifest.id, tier, advice(ref.plugin->refusal));
    }
  TURBO_RETURN_IF_ERROR(apply_prefer(need, tier, refs));
  return refs;
}

// Of several plugins with the same component only the preferred one stays.
Status Resolver::apply_prefer(const Need& need, uint32_t tier, std::vector<ComponentRef>& refs) {
  for (size_t i = 0; i < refs.size(); ++i) {
    const std::string& name = refs[i].component->name;
    std::vector<std::string> owners;
    for (const ComponentRef& ref : refs)
      if (ref.component->name == name) owners.push_back(ref.plugin->manifest.id);
    if (owners.size() < 2) continue;
    const std::string key = need.kind + ":" + name;
    const auto preferred = request_.prefer.find(key);
    if (preferred == request_.prefer.end() ||
        std::find(owners.begin(), owners.end(), preferred->second) == owners.end())
      return Status(
          Code::invalid_argument,
          fmt::format("{} '{}' of tier {} comes from several plugins: '{}'", need.kind, name, tier_name(tier),
                      fmt::join(owners, "' and '")),
          fmt::format("choose one in the profile: plugins: {{ prefer: {{ \"{}\": {} }} }}", key, owners.front()));
    for (const std::string& owner : owners)
      if (owner != preferred->second)
        reject(need.slot, owner, tier, fmt::format("plugins.prefer names '{}'", preferred->second));
    std::erase_if(refs, [&](const ComponentRef& ref) {
      return ref.component->name == name && ref.plugin->manifest.id != preferred->second;
    });
    i = static_cast<size_t>(-1);  // the list has changed: look again from its start
  }
  return Status::ok();
}

// Texts for the candidate's schema: the slot's own, and what is said to the whole kind as far as it is known.
Status Resolver::bind_options(const Need& need, Candidate& candidate) const {
  const std::string what = describe(candidate.ref);
  TURBO_ASSIGN(const OptionSchema schema, OptionSchema::parse(candidate.component->option_schema, what));
  OptionTexts texts;
  const auto given = [&](const std::string& slot) -> const OptionTexts* {
    const auto found = request_.options.find(slot);
    return found == request_.options.end() ? nullptr : &found->second;
  };
  if (const auto found = request_.options_if_known.find(need.slot); found != request_.options_if_known.end())
    for (const auto& [key, text] : found->second)
      if (schema.knows(key)) texts[key] = text;
  const bool has_shared = need.slot != need.kind && need.kind != TURBO_KIND_DRAFTER;
  if (const OptionTexts* shared = has_shared ? given(need.kind) : nullptr)
    for (const auto& [key, text] : *shared)
      if (schema.knows(key)) texts[key] = text;
  // A weight format is one instance for all the types it serves: the options of each of them reach it.
  std::map<std::string, std::string> exact;
  for (const Need& other : needs_) {
    const bool same =
        need.type ? other.kind == need.kind && other.matches(*candidate.ref.component) : other.slot == need.slot;
    if (const OptionTexts* own = same ? given(other.slot) : nullptr)
      for (const auto& [key, text] : *own) {
        if (const auto [at, fresh] = exact.emplace(key, text); !fresh && at->second != text) {
          candidate.option_status =
              error(Code::invalid_argument, "{}: option '{}': two values for one instance: '{}' and '{}'", what,
                    clean_text(key, 64), clean_text(at->second, 64), clean_text(text, 64))
                  .with_hint("give it one value, under weight_format, for all types");
        }
        texts[key] = text;
      }
  }
  if (need.kind == TURBO_KIND_DRAFTER)
    if (const OptionTexts* own = given(need.slot)) texts = *own;
  if (need.spare)
    std::erase_if(texts, [&](const auto& option) { return !schema.knows(option.first) || !schema.bind({option}, what); });
  for (const auto& [key, text] : texts)
    if (!schema.knows(key) && request_.option_words.count(need.slot)) candidate.option_status = unknown_option(need.slot, key, schema.keys());
  Result<OptionValues> values = schema.bind(texts, what);
  if (!values) {
    if (candidate.option_status.is_ok()) candidate.option_status = with_side_hint(need, values.status());
    values = schema.bind({}, what);
  }
  if (values) candidate.options = *std::move(values);
  return Status::ok();
}

// What is said to both of two different codecs may fit only one of them.
Status Resolver::with_side_hint(const Need& need, const Status& status) const {
  const auto words = request_.option_words.find(need.slot);
  if (need.kind != TURBO_KIND_KV_CODEC || request_.kv_k == request_.kv_v || words == request_.option_words.end()) return status;
  const std::string hint = fmt::format("a value for this side alone goes into {}", words->second.name);
  return status.with_hint(status.hint().empty() ? hint : status.hint() + "; " + hint);
}

std::optional<Candidate> Resolver::probe(const Need& need, const ComponentRef& ref) {
  const auto refuse = [&](std::string reason) {
    reject(need.slot, ref.plugin->manifest.id, ref.component->tier, std::move(reason));
    return std::nullopt;
  };
  Candidate candidate;
  candidate.ref = ref;
  const Result<const turbo_component*> opened = catalog_.open(ref);
  if (!opened) return refuse(advice(opened.status()));
  candidate.component = *opened;
  candidate.files.push_back(ref.plugin->folder);
  if (const auto files = request_.files.find(need.slot); files != request_.files.end())
    candidate.files.insert(candidate.files.end(), files->second.begin(), files->second.end());
  if (const Status status = bind_options(need, candidate); !status.is_ok()) return refuse(status.message());

  ComponentHost::Settings settings;
  settings.label = instance_label(ref);
  settings.services = state_->services;
  settings.options = candidate.options;
  settings.compute_threads = request_.compute_threads;
  settings.files = candidate.files;
  ComponentHost host(std::move(settings));
  candidate.probe = probe_here(*candidate.component, host.host(), request_.model);
  if (!candidate.probe.warning.empty()) report().warnings.push_back(describe(ref) + ": " + candidate.probe.warning);
  if (candidate.probe.score <= 0) return refuse(candidate.probe.reason);
  return candidate;
}

std::vector<Candidate> Resolver::usable(const Need& need, const std::vector<ComponentRef>& refs) {
  std::vector<Candidate> candidates;
  for (const ComponentRef& ref : refs)
    if (std::optional<Candidate> candidate = probe(need, ref)) candidates.push_back(*std::move(candidate));
  // refs come in order of plugin id, and a stable sort keeps it among equal scores.
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.probe.score > b.probe.score; });
  return candidates;
}

}  // namespace turbo::loader
