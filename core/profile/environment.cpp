// Settings from environment variables: the twins of all flags, and the variables of the compatible engine.
#include <algorithm>
#include <cstdlib>

#include "profile/flags.h"
#include "profile/printable.h"

namespace turbo::profile {
namespace {

using Overrides = std::vector<Override>;

// Variables whose effect turbo has always, never, or elsewhere. `inert` is the value that asks for nothing.
struct Inert {
  const char* name;
  const char* inert;
  const char* why;
};
constexpr Inert inert_variables[] = {
    {"SGLANG_ENABLE_SPEC_V2", "0", "there is one speculation path"},
    {"SGLANG_EAGLE_SKIP_TARGET_EMBED_SHARE", "", "a drafter uses the target's embeddings when its file has none"},
    {"SGLANG_MEDUSA_PREFILTER", "0", "drafts are not filtered before verification"},
    {"SGLANG_PREFILTER_SURPRISAL", "", "drafts are not filtered before verification"},
    {"SGLANG_PREFILTER_SCREEN_CONF", "", "drafts are not filtered before verification"},
    {"SGLANG_PREFILTER_TELEMETRY", "0", "drafts are not filtered before verification"},
    {"SGLANG_KV_CACHE_TURBOQUANT_QJL", "0", "the QJL residual is not offered"},
    {"SGLANG_KV_CACHE_TURBOQUANT_ROPE", "0", "the rope part always stays in f16"},
    {"PHANTOM_VERIFY_SYNC", "0", "use --log-level trace to follow rounds"},
    {"PHANTOM_QUANT_TELEM_DIR", "", "statistics are served at /metrics and by turbo bench"},
};

// Asked for a length of accepted drafts that is made up: benchmarks would lie.
Status refuse_simulated_acceptance(const Environment& environment) {
  const auto value = environment("SGLANG_SIMULATE_ACC_LEN");
  if (!value || value->empty() || value->starts_with('-') || *value == "0") return Status::ok();
  return Status(Code::unsupported,
                fmt::format("SGLANG_SIMULATE_ACC_LEN={}: simulated acceptance does not exist", printable(*value)),
                "unset the variable");
}

// What the variables of a group's flags set.
Result<Overrides> twins(const Environment& environment, FlagGroup group) {
  Overrides settings;
  for (const Flag& flag : flag_table()) {
    if (flag.command || flag.group != group) continue;
    const std::string name = environment_name(flag.name);
    const auto value = environment(name);
    if (!value || value->empty()) continue;
    TURBO_ASSIGN(const Overrides own, flag_to_overrides(flag.name, *value, name));
    settings.insert(settings.end(), own.begin(), own.end());
  }
  return settings;
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  };
}

Result<Overrides> environment_overrides(const Environment& environment) {
  TURBO_RETURN_IF_ERROR(refuse_simulated_acceptance(environment));
  Overrides settings;
  for (const Inert& variable : inert_variables) {
    const auto value = environment(variable.name);
    if (!value || value->empty() || *value == variable.inert) continue;
    settings.push_back({"", "", variable.name, {}, fmt::format("{} has no effect: {}", variable.name, variable.why)});
  }
  const auto greedy = environment("SGLANG_NGRAM_FORCE_GREEDY_VERIFY");
  if (greedy && !greedy->empty() && *greedy != "0" && *greedy != "false")
    settings.push_back({"drafter.options.force_greedy_verify", "true", "SGLANG_NGRAM_FORCE_GREEDY_VERIFY", {"ngram"}});
  TURBO_ASSIGN(const Overrides compatible, twins(environment, FlagGroup::compatible));
  TURBO_ASSIGN(const Overrides native, twins(environment, FlagGroup::shared));
  // A variable has no place in an order: of two names for one setting, turbo's own counts.
  for (const Override& setting : compatible) {
    const auto same = std::find_if(native.rbegin(), native.rend(), [&](const Override& own) { return !own.key_path.empty() && own.key_path == setting.key_path; });
    if (same == native.rend()) settings.push_back(setting);
    else if (same->value != setting.value)
      settings.push_back({"", "", setting.origin, {}, fmt::format("{} has no effect: {} sets {}", setting.origin, same->origin, setting.key_path)});
  }
  settings.insert(settings.end(), native.begin(), native.end());
  for (Override& setting : settings) setting.from_environment = true;
  return settings;
}

}  // namespace turbo::profile
