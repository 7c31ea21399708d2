#include "profile/flags.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/nearest.h"
#include "profile/printable.h"
#include "profile/scalar.h"

namespace turbo::profile {
namespace {

using Overrides = std::vector<Override>;

// Values of --speculative-algorithm. SAGUARO is missing on purpose: it wraps another drafter.
struct Algorithm {
  const char* name;
  const char* drafter;
  const char* mode = nullptr;  // drafter.options.mode
};
constexpr Algorithm algorithms[] = {
    {"NGRAM", "ngram"},       {"PHANTOM", "phantom"},           {"EAGLE", "eagle"},           {"NEXTN", "eagle"},
    {"EAGLE3", "eagle3"},     {"P_EAGLE", "eagle3", "p_eagle"}, {"STANDALONE", "standalone"}, {"MEDUSA", "medusa"},
    {"P_CASCADE", "cascade"}, {"CHIMERA", "chimera"},           {"SELF_SPEC", "self_spec"},
};

struct Gone {
  const char* name;
  const char* why;
};
constexpr Gone gone_flags[] = {
    {"--speculative-ngram-min-match-window-size", "it no longer exists: every suffix length is tried"},
    {"--speculative-ngram-max-match-window-size", "it no longer exists: every suffix length is tried"},
    {"--speculative-ngram-branch-length", "it no longer exists: use --speculative-ngram-max-trie-depth"},
    {"--speculative-ngram-external-sam-budget", "it does not exist"},
    {"--speculative-simulate-acc-len", "simulated acceptance does not exist: figures are measured"},
    {"--simulate-acc-len", "simulated acceptance does not exist: figures are measured"},
};

Result<bool> toggle_value(const std::string& value, const std::string& origin) {
  if (value.empty() || value == "true" || value == "1") return true;
  if (value == "false" || value == "0") return false;
  return error(Code::invalid_argument, "{}: expected no value, true or false but found {}", origin, printable(value));
}

// An empty key would mean "no check" to a server that was asked to check.
Result<Overrides> api_key(const Flag& flag, const std::string& value, const std::string& origin) {
  if (value.empty()) return error(Code::invalid_argument, "{}: expected a key but found an empty text", origin);
  return Overrides{{flag.key, value, origin}};
}

Result<Overrides> set_any_key(const Flag&, const std::string& value, const std::string& origin) {
  // The environment twin holds one assignment per line or between semicolons.
  Overrides settings;
  const bool variable = !origin.starts_with("--");
  size_t start = 0;
  while (start <= value.size()) {
    const size_t end = variable ? std::min(value.find_first_of(";\n", start), value.size()) : value.size();
    const std::string assignment = value.substr(start, end - start);
    start = end + 1;
    if (assignment.empty() && variable) continue;
    const size_t equals = assignment.find('=');
    if (equals == std::string::npos || equals == 0)
      return Status(Code::invalid_argument,
                    fmt::format("{}: expected key.path=value but found {}", origin, printable(assignment)),
                    variable ? "for example " + origin + "=server.port=8080" : "for example --set server.port=8080");
    const std::string key = assignment.substr(0, equals);
    settings.push_back({key, assignment.substr(equals + 1), origin + " " + key});
  }
  return settings;
}

Result<Overrides> choose_algorithm(const Flag&, const std::string& value, const std::string& origin) {
  std::vector<std::string> names;
  for (const Algorithm& algorithm : algorithms) {
    names.push_back(algorithm.name);
    if (value != algorithm.name) continue;
    Overrides settings{{"drafter.name", algorithm.drafter, origin}};
    if (algorithm.mode != nullptr)
      settings.push_back({"drafter.options.mode", algorithm.mode, origin, {algorithm.drafter}});
    return settings;
  }
  if (value == "SAGUARO")
    return Status(Code::invalid_argument, origin + ": SAGUARO wraps another drafter and cannot be chosen alone",
                  fmt::format("choose one of {} and add --ssd-enable", fmt::join(names, ", ")));
  const std::string near = nearest_name(value, names);
  return Status(Code::invalid_argument,
                fmt::format("{}: expected one of {} but found {}", origin, fmt::join(names, ", "), printable(value)),
                near.empty() ? "" : fmt::format("did you mean '{}'? names are upper case", near));
}

Result<Overrides> choose_kv_codec(const Flag&, const std::string& value, const std::string& origin) {
  if (value == "fp4_e2m1")
    return Status(Code::invalid_argument, origin + ": there is no codec 'fp4_e2m1'",
                  "choose one of auto, bf16, bfloat16, fp8_e5m2, fp8_e4m3, tq4, tq3, tq2, rq3_planar, rq4_planar, "
                  "rq3_iso, rq4_iso, or another that `turbo plugins list` shows");
  const std::string codec = value == "auto" ? "f16" : value == "bfloat16" ? "bf16" : value;
  return Overrides{{"kv.codec", codec, origin}};
}

Result<Overrides> choose_backend(const Flag&, const std::string& value, const std::string& origin) {
  static const std::vector<std::string> tiers{"hip", "generic", "cpu"};
  static const std::vector<std::string> others{"triton", "torch_native", "aiter", "wave", "flashinfer", "fa3"};
  if (std::find(tiers.begin(), tiers.end(), value) != tiers.end()) return Overrides{{"require", value, origin}};
  if (std::find(others.begin(), others.end(), value) == others.end())
    return error(Code::invalid_argument, "{}: expected one of {}, {} but found {}", origin, fmt::join(tiers, ", "),
                 fmt::join(others, ", "), printable(value));
  return Overrides{
      {"", "", origin, {}, fmt::format("{} {} has no effect: the tiers decide which kernels run", origin, value)}};
}

Result<Overrides> typical_acceptance(const Flag& flag, const std::string& value, const std::string& origin) {
  TURBO_ASSIGN(const bool on, toggle_value(value, origin));
  return Overrides{{flag.key, on ? "draft" : "off", origin, flag.for_drafters}};
}

Result<Overrides> quantization(const Flag&, const std::string& value, const std::string& origin) {
  if (value.empty()) return error(Code::invalid_argument, "{}: expected a name or unquant but found nothing", origin);
  return Overrides{{"", "", origin, {}, origin + " has no effect: the file's own tensor types are used"}};
}

ValueRule one_of(std::vector<std::string> choices) { return {KeyKind::choice, 0, 0, false, std::move(choices)}; }

std::vector<Flag> shared_flags() {
  const FlagGroup shared = FlagGroup::shared;
  return {
      {"--profile", "P", "", "profile to load: a path, or a name looked up in the config folders", shared, false, true},
      {"--model", "FILE|FOLDER", "model.path", "a GGUF file, or a folder with config.json and safetensors", shared},
      {"--set",
       "KEY=VALUE",
       "",
       "any profile key, such as kv.options.sinks=64",
       shared,
       true,
       false,
       {},
       {},
       {},
       set_any_key},
      {"--tier", "hip|generic|cpu", "require", "require this tier", shared},
      {"--threads", "N", "compute.threads", "CPU threads, or auto", shared},
      {"--context", "N", "model.context", "longest sequence in tokens, or auto", shared},
      {"--kv-codec", "NAME", "kv.codec", "codec of the KV cache", shared},
      {"--drafter", "NAME|off", "drafter.name", "drafter for speculation", shared},
      {"--draft-tokens", "N", "drafter.draft_tokens", "slots of a draft, the root included", shared},
      {"--log-level", "LEVEL", "log.level", "trace, debug, info, warn, error or off", shared},
      {"--log-format", "text|json", "log.format", "form of log lines", shared},
      {"--json", "", "", "machine-readable output", shared, false, true},
      {"--quiet", "", "", "no progress", shared, false, true},
  };
}

void add_speculation_flags(std::vector<Flag>& table) {
  const FlagGroup group = FlagGroup::compatible;
  const auto keyed = [&](const char* name, const char* value, const char* key, const char* help,
                         std::vector<std::string> drafters = {}) {
    table.push_back({name, value, key, help, group, false, false, std::move(drafters)});
  };
  const auto inert = [&](const char* name, const char* value, ValueRule rule, const char* why) {
    table.push_back({name, value, "", "accepted without effect", group, false, false, {}, why, std::move(rule)});
  };
  table.push_back({"--speculative-algorithm",
                   "NAME",
                   "drafter.name",
                   "drafter: NGRAM, PHANTOM, EAGLE3, ...",
                   group,
                   false,
                   false,
                   {},
                   {},
                   {},
                   choose_algorithm});
  keyed("--speculative-draft-model-path", "PATH", "drafter.model", "weights of the drafter");
  keyed("--speculative-draft-model", "PATH", "drafter.model", "same as --speculative-draft-model-path");
  inert("--speculative-draft-model-revision", "REV", {KeyKind::text}, "only local files are read");
  inert("--speculative-draft-load-format", "FORMAT", one_of({"auto", "gguf", "safetensors"}),
        "the format is read from the file");
  table.push_back({"--speculative-draft-model-quantization",
                   "NAME",
                   "",
                   "accepted without effect",
                   group,
                   false,
                   false,
                   {},
                   {},
                   {},
                   quantization});
  keyed("--speculative-num-steps", "N", "drafter.steps", "draft passes per round");
  keyed("--speculative-eagle-topk", "N", "drafter.topk", "branches per draft pass");
  keyed("--speculative-num-draft-tokens", "N", "drafter.draft_tokens", "slots of a draft, the root included");
  keyed("--speculative-accept-threshold-single", "X", "drafter.accept_threshold_single",
        "below 1 needs lossless: false");
  keyed("--speculative-accept-threshold-acc", "X", "drafter.accept_threshold_acc", "below 1 needs lossless: false");
  keyed("--speculative-token-map", "FILE", "drafter.token_map", "token ids that the drafter may propose");
  inert("--speculative-attention-mode", "MODE", one_of({"prefill", "decode"}), "verification has one attention path");
  inert("--speculative-draft-attention-backend", "NAME", {KeyKind::text}, "the drafter runs on the target's tier");
  const std::vector<std::string> corpus = find_drafter_option("capacity")->drafters;
  keyed("--speculative-ngram-max-trie-depth", "N", "drafter.options.max_trie_depth", "longest remembered sequence",
        corpus);
  keyed("--speculative-ngram-match-type", "BFS|PROB", "drafter.options.match_type", "order of continuations", corpus);
  keyed("--speculative-ngram-min-bfs-breadth", "N", "drafter.options.min_bfs_breadth", "fewest children", corpus);
  keyed("--speculative-ngram-max-bfs-breadth", "N", "drafter.options.max_bfs_breadth", "most children", corpus);
  keyed("--speculative-ngram-capacity", "N", "drafter.options.capacity", "nodes of the corpus", corpus);
  keyed("--phantom-num-ghosts", "N", "drafter.options.ghosts", "worker threads, 1 to 8", {"phantom"});
  keyed("--phantom-num-buffers", "N", "drafter.options.buffers", "drafts kept ready, 1 to 4", {"phantom"});
  keyed("--ssd-enable", "", "drafter.outcome_cache", "draft ahead for likely outcomes (experimental)");
  keyed("--medusa-model-path", "PATH", "drafter.model", "checkpoint with the heads", {"medusa"});
  keyed("--medusa-num-heads", "N", "drafter.options.heads", "must equal the checkpoint", {"medusa"});
  keyed("--medusa-topk", "N", "drafter.options.head_topk", "candidates per head, 1 to 10", {"medusa"});
  keyed("--medusa-tree-structure", "NAME", "drafter.options.tree", "linear, mc_sim_63 or auto", {"medusa"});
  table.push_back({"--medusa-typical-acceptance",
                   "",
                   "drafter.options.typical_acceptance",
                   "sample drafts among typical tokens",
                   group,
                   false,
                   false,
                   {"medusa"},
                   {},
                   {},
                   typical_acceptance});
  keyed("--medusa-posterior-threshold", "X", "drafter.options.posterior_threshold", "above 0, at most 1", {"medusa"});
  keyed("--medusa-posterior-alpha", "X", "drafter.options.posterior_alpha", "above 0, at most 1", {"medusa"});
  inert("--medusa-no-step0", "", {}, "drafting never runs the extra pass that this skips");
  keyed("--medusa-paltrow-heads", "LIST", "drafter.options.screen_heads", "auto, none or head indices", {"medusa"});
  inert("--sam-enabled", "WHEN", one_of({"auto", "true", "false"}), "memory is placed by the tier");
  inert("--gtt-pool-mb", "N", {KeyKind::integer, 0, 1e9}, "memory is placed by the tier");
  inert("--paltrow-pin-memory", "", {}, "memory is placed by the tier");
  inert("--no-paltrow-pin-memory", "", {}, "memory is placed by the tier");
  keyed("--chimera-num-steps", "N", "drafter.steps", "draft passes per round", {"chimera"});
  keyed("--chimera-ssd-enable", "", "drafter.outcome_cache", "draft ahead for likely outcomes", {"chimera"});
  keyed("--chimera-level", "N", "drafter.options.level", "1 to 3, or dynamic", {"chimera"});
}

void add_general_flags(std::vector<Flag>& table) {
  const FlagGroup group = FlagGroup::compatible;
  const auto keyed = [&](const char* name, const char* value, const char* key, const char* help) {
    table.push_back({name, value, key, help, group});
  };
  const auto inert = [&](const char* name, const char* value, ValueRule rule, const char* why) {
    table.push_back({name, value, "", "accepted without effect", group, false, false, {}, why, std::move(rule)});
  };
  table.push_back({"--kv-cache-dtype",
                   "NAME",
                   "kv.codec",
                   "codec of the KV cache; auto is f16",
                   group,
                   false,
                   false,
                   {},
                   {},
                   {},
                   choose_kv_codec});
  keyed("--model-path", "FILE|FOLDER", "model.path", "same as --model");
  inert("--load-format", "FORMAT", one_of({"auto", "gguf", "safetensors"}), "the format is read from the file");
  table.push_back({"--attention-backend",
                   "NAME",
                   "require",
                   "hip, generic or cpu require that tier",
                   group,
                   false,
                   false,
                   {},
                   {},
                   {},
                   choose_backend});
  inert("--disable-overlap-schedule", "", {}, "turbo sets what each drafter needs by itself");
  inert("--disable-cuda-graph", "", {}, "the tier decides how steps are launched");
  inert("--dtype", "NAME", one_of({"auto", "half", "float16", "bfloat16", "float", "float32"}),
        "the tier's own precision is used, float16 on RDNA2");
  inert("--mem-fraction-static", "X", {KeyKind::number, 0, 1, true}, "set kv.pool_bytes to bound the KV cache");
  keyed("--max-running-requests", "N", "engine.max_running", "requests computed at once");
  inert("--trust-remote-code", "", {}, "no code is ever taken from a model");
  keyed("--host", "ADDRESS", "server.host", "address to listen on");
  keyed("--port", "N", "server.port", "port to listen on");
  table.push_back({"--api-key", "KEY", "server.api_keys", "keys that clients must send, separated by commas", group});
  table.back().translate = api_key;
  keyed("--served-model-name", "NAME", "model.name", "id that the server reports");
}

}  // namespace

std::span<const Flag> flag_table() {
  static const std::vector<Flag> table = [] {
    std::vector<Flag> flags = shared_flags();
    add_speculation_flags(flags);
    add_general_flags(flags);
    return flags;
  }();
  return table;
}

const Flag* find_flag(std::string_view name) {
  for (const Flag& flag : flag_table())
    if (flag.name == name) return &flag;
  return nullptr;
}

Result<Overrides> flag_to_overrides(const std::string& name, const std::string& value, const std::string& origin) {
  const std::string& shown = origin.empty() ? name : origin;
  const Flag* flag = find_flag(name);
  if (flag == nullptr) return unknown_flag(name);
  if (flag->command) return Overrides{};
  if (flag->translate != nullptr) return flag->translate(*flag, value, shown);
  if (flag->value_name.empty()) {
    TURBO_ASSIGN(const bool on, toggle_value(value, shown));
    if (!flag->key.empty()) return Overrides{{flag->key, on ? "true" : "false", shown, flag->for_drafters}};
    if (!on) return Overrides{};
  } else if (!flag->key.empty()) {
    return Overrides{{flag->key, value, shown, flag->for_drafters}};
  } else if (auto checked = read_scalar(flag->rule, {value, false, false}); !checked) {
    return checked.status().with_context(shown);
  }
  return Overrides{{"", "", shown, {}, fmt::format("{} has no effect: {}", shown, flag->no_effect)}};
}

Status unknown_flag(const std::string& name, std::span<const std::string> other_names) {
  for (const Gone& gone : gone_flags)
    if (name == gone.name) return error(Code::invalid_argument, "{}: {}", name, gone.why).with_hint("remove the option");
  std::vector<std::string> names(other_names.begin(), other_names.end());
  for (const Flag& flag : flag_table()) names.push_back(flag.name);
  std::vector<std::string> longer;
  for (const std::string& known : names)
    if (name.size() > 3 && known.starts_with(name)) longer.push_back(known);
  std::string hint;
  if (!longer.empty()) {
    hint = fmt::format("names cannot be shortened; did you mean {}?", fmt::join(longer, ", "));
  } else if (const std::string near = nearest_name(name, names); !near.empty()) {
    hint = fmt::format("did you mean '{}'?", near);
  } else {
    hint = "turbo --help lists the options; --set KEY=VALUE sets any profile key";
  }
  return Status(Code::invalid_argument, fmt::format("{}: unknown option", printable(name)), hint);
}

std::string environment_name(std::string_view flag) {
  std::string name = "TURBO_";
  for (const char c : flag.substr(std::min(flag.find_first_not_of('-'), flag.size())))
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

}  // namespace turbo::profile
