#include "engine/resolve.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "base/machine.h"
#include "engine/kv_setup.h"
#include "model/files/tensor_types.h"
#include "profile/keys.h"

namespace turbo::engine {

uint32_t compute_threads(const profile::Profile& profile) {
  return profile.compute.threads > 0 ? static_cast<uint32_t>(profile.compute.threads) : usable_cpus();
}

uint32_t self_draft_layers(const profile::Profile& profile, uint32_t n_layers) {
  const profile::DrafterFacts* facts = profile::find_member(profile.drafter, &profile::DrafterFacts::first_layers);
  if (!facts) return 0;
  uint32_t layers = 0;
  auto option = profile.drafter.options.find(facts->name + ".layers");
  if (option == profile.drafter.options.end()) option = profile.drafter.options.find("layers");
  if (option != profile.drafter.options.end()) {
    const std::string& text = option->second;
    const auto [rest, failed] = std::from_chars(text.data(), text.data() + text.size(), layers);
    if (failed != std::errc() || rest != text.data() + text.size()) return 0;  // the drafter refuses it
  }
  return layers > 0 ? layers : std::max(1u, n_layers / 3);
}

void add_drafters(const profile::Profile& profile, uint32_t n_layers, loader::Request& request) {
  const profile::Profile::Drafter& drafter = profile.drafter;
  const auto slot_of = [&](const std::string& name) { return name == request.drafter ? "drafter" : "drafter:" + name; };
  request.drafter = drafter.outcome_cache ? profile::Profile::Drafter::outcome_cache_name : drafter.name;
  if (drafter.outcome_cache) request.drafter_over[request.drafter] = {drafter.name};
  if (!drafter.over.empty()) request.drafter_over[drafter.name] = drafter.over;
  const bool composed = !request.drafter_over.empty();
  for (const std::string& name : drafter.members()) {
    const std::string slot = slot_of(name);
    const profile::DrafterFacts* facts = profile::find_drafter(name);
    loader::OptionTexts options;
    for (const auto& [key, text] : drafter.options) {
      if (key.find('.') != std::string::npos) continue;
      const profile::DrafterOption* known = profile::find_drafter_option(key);
      const auto has = [&](const std::string& member) {
        return known != nullptr && std::find(known->drafters.begin(), known->drafters.end(), member) != known->drafters.end();
      };
      const std::vector<std::string> members = drafter.members();
      const bool others = std::any_of(members.begin(), members.end(), has);
      // An option that the profile does not know is the selected drafter's.
      if (others ? has(name) : name == drafter.name) options[key] = text;
    }
    // A drafter that stands alone gets these even if nothing is known about it.
    const bool alone = !composed || (drafter.over.empty() && name == drafter.name);
    if (!drafter.model.empty() && (alone || (facts && facts->needs_model))) options["model"] = drafter.model.string();
    if (!drafter.token_map.empty() && (alone || (facts && (facts->needs_model || facts->takes_steps)))) options["token_map"] = drafter.token_map.string();
    if (drafter.steps > 0 && (alone || (facts && facts->takes_steps))) options["steps"] = std::to_string(drafter.steps);
    if (drafter.topk > 0 && (alone || (facts && facts->takes_steps))) options["topk"] = std::to_string(drafter.topk);
    for (const auto& [key, text] : drafter.options)
      if (key.starts_with(name + ".")) options[key.substr(name.size() + 1)] = text;
    // Said to the drafter as well, so that what it runs is what the memory is planned for.
    if (const uint32_t layers = facts && facts->first_layers ? self_draft_layers(profile, n_layers) : 0) options["layers"] = std::to_string(layers);
    if (const auto model = options.find("model"); model != options.end()) request.files[slot].push_back(model->second);
    if (slot != "drafter") request.option_words[slot] = {"drafter.options." + name, {}};
    if (!options.empty() || slot == "drafter") request.options[slot] = std::move(options);
  }
}

loader::Request make_request(const profile::Profile& profile, const kv::CodecPolicy& policy, const model::ModelFile& file,
                             const model::ModelFile* draft_file, const turbo_model_facts* facts) {
  loader::Request request;
  request.tiers = profile.tiers;
  request.require = profile.require;
  // Vectors (norms, biases) are decoded by the arch pack itself; only matrices need a format.
  std::set<uint32_t> types;
  for (const model::ModelFile* one : {&file, draft_file}) {
    if (!one) continue;
    for (const model::Tensor& tensor : one->tensors())
      if (tensor.dims.size() > 1) types.insert(tensor.type);
  }
  for (const uint32_t type : types) request.weight_types.push_back({type, std::string(model::find_type(type)->name)});
  request.kv_k = profile.kv.k;
  request.kv_v = profile.kv.v;
  request.drafter = profile.drafter.name;
  request.sampler = profile.sampler.name;
  request.plugin_paths = profile.plugins.paths;
  request.prefer = profile.plugins.prefer;
  request.allow_unsafe = profile.plugins.allow_unsafe;
  request.model = facts;
  request.compute_threads = compute_threads(profile);
  request.options["weight_format"] = {{"activations", profile.compute.activations}};
  request.options["arch_pack"] = {{"threads", std::to_string(request.compute_threads)}};
  request.options_if_known["arch_pack"] = {{"device", profile.compute.device},
                                           {"graphs", profile.compute.graphs ? "true" : "false"},
                                           {"fuse", profile.compute.fuse ? "true" : "false"},
                                           {"step_kernel", profile.compute.step_kernel ? "true" : "false"}};
  ask_for_spare_codecs(request, policy);
  const auto add_codec_options = [&](const char* slot, const char* name, const loader::OptionTexts& texts, std::vector<std::string> more = {}) {
    if (!texts.empty()) request.options[slot] = texts;
    request.option_words[slot] = {name, std::move(more)};
  };
  add_codec_options("kv_codec", "kv.options", profile.kv.options, kv::policy_keys());
  add_codec_options("kv_codec:k", "kv.k_options", profile.kv.k_options);
  add_codec_options("kv_codec:v", "kv.v_options", profile.kv.v_options);
  if (profile.drafter.name != "off") add_drafters(profile, facts->n_layers, request);
  return request;
}

nlohmann::ordered_json plan_json(const profile::Profile& profile, const model::ModelFile& file,
                                 const model::ModelConfig& config, const loader::Report& report) {
  nlohmann::ordered_json json;
  json["profile"] = profile.source.string();
  nlohmann::ordered_json types = nlohmann::ordered_json::object();
  for (const auto& [type, bytes] : config.bytes_by_type) types[std::string(model::find_type(type)->name)] = bytes;
  json["model"] = {{"path", file.path().string()},
                   {"architecture", config.architecture},
                   {"parameters", config.n_parameters},
                   {"tensor_types", std::move(types)}};
  const nlohmann::json resolved = report.json();
  for (const auto& [key, value] : resolved.items()) json[key] = value;
  return json;
}

}  // namespace turbo::engine
