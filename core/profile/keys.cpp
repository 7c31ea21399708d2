#include "profile/keys.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <type_traits>

namespace turbo::profile {
namespace {

constexpr double no_limit = 9.3e18;  // integers without a range of their own
constexpr double max_bytes = 1ull << 50;
constexpr double day_ms = 24.0 * 3600 * 1000;

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};

// Conversions between a field and a Value. The rule of the row has already ensured type and range.
template <typename T>
void store(T& field, const Value& value) {
  if constexpr (IsOptional<T>::value) {
    if (std::holds_alternative<std::monostate>(value)) {
      field.reset();
    } else {
      store(field.emplace(), value);
    }
  } else if constexpr (std::is_same_v<T, std::filesystem::path>) {
    if (std::holds_alternative<std::monostate>(value)) field.clear();
    else field = std::get<std::string>(value);
  } else if constexpr (std::is_same_v<T, std::vector<std::filesystem::path>>) {
    const auto& texts = std::get<std::vector<std::string>>(value);
    field.assign(texts.begin(), texts.end());
  } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    field = static_cast<T>(std::get<int64_t>(value));
  } else {
    field = std::get<T>(value);
  }
}

template <typename T>
Value load(const T& field) {
  if constexpr (IsOptional<T>::value) {
    return field ? load(*field) : Value();
  } else if constexpr (std::is_same_v<T, std::filesystem::path>) {
    return field.empty() ? Value() : Value(field.string());
  } else if constexpr (std::is_same_v<T, std::vector<std::filesystem::path>>) {
    std::vector<std::string> texts;
    for (const auto& path : field) texts.push_back(path.string());
    return texts;
  } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    return static_cast<int64_t>(field);
  } else {
    return field;
  }
}

// Binds a row to Profile::Section::field, or to a field of Profile itself.
template <auto Section, auto Field>
KeySpec row(std::string path, ValueRule rule, std::string doc) {
  return {std::move(path),
          std::move(rule),
          [](Profile& p, const Value& v) { store(p.*Section.*Field, v); },
          [](const Profile& p) { return load(p.*Section.*Field); },
          false,
          std::move(doc)};
}
template <auto Field>
KeySpec row(std::string path, ValueRule rule, std::string doc) {
  return {std::move(path),
          std::move(rule),
          [](Profile& p, const Value& v) { store(p.*Field, v); },
          [](const Profile& p) { return load(p.*Field); },
          false,
          std::move(doc)};
}

ValueRule boolean() { return {KeyKind::boolean}; }
ValueRule integer(double minimum, double maximum, std::string zero_word = {}) {
  return {KeyKind::integer, minimum, maximum, false, {}, std::move(zero_word)};
}
ValueRule number(double minimum, double maximum) { return {KeyKind::number, minimum, maximum}; }
ValueRule fraction_above_zero() { return {KeyKind::number, 0, 1, true}; }
ValueRule text() { return {KeyKind::text}; }
ValueRule choice(std::vector<std::string> choices) { return {KeyKind::choice, 0, 0, false, std::move(choices)}; }
ValueRule bytes(double minimum, std::string zero_word = {}) {
  return {KeyKind::bytes, minimum, max_bytes, false, {}, std::move(zero_word)};
}
ValueRule duration(double minimum, std::string zero_word = {}) {
  return {KeyKind::duration_ms, minimum, day_ms, false, {}, std::move(zero_word)};
}
ValueRule path(KeyKind kind = KeyKind::path) {
  ValueRule rule{kind};
  rule.environment = true;
  return rule;
}
ValueRule text_list(std::vector<std::string> choices = {}) {
  return {KeyKind::text_list, 0, 0, false, std::move(choices)};
}
ValueRule text_map() { return {KeyKind::text_map}; }
ValueRule optional(ValueRule rule) {
  rule.optional = true;
  return rule;
}

const std::vector<std::string>& tier_names() {
  static const std::vector<std::string> names{"hip", "generic", "cpu"};
  return names;
}

using P = Profile;

void add_model_rows(std::vector<KeySpec>& table) {
  table.push_back(row<&P::schema>("schema", integer(1, 1), "Version of the profile format."));
  table.push_back(row<&P::model, &P::Model::path>(
      "model.path", path(), "The model: a GGUF file, or a folder with config.json and safetensors files."));
  table.push_back(row<&P::model, &P::Model::context>(
      "model.context", integer(16, 16'777'216, "auto"),
      "Longest sequence, in tokens. auto takes the model's own limit, or less when memory asks for it."));
  table.push_back(row<&P::model, &P::Model::name>(
      "model.name", text(), "The id under which the server offers the model; the file's name when left out."));
  table.push_back(row<&P::compute, &P::Compute::threads>("compute.threads", integer(1, 1024, "auto"),
                                                         "CPU threads; auto is every processor that affinity and quota leave."));
  table.push_back(row<&P::compute, &P::Compute::activations>(
      "compute.activations", choice({"int8", "f32"}),
      "Precision of activations in matrix products: int8 is fast, f32 is the reference path."));
  table.push_back(row<&P::compute, &P::Compute::device>(
      "compute.device", text(),
      "The device of a tier that uses one: its number, or a part of its name, instruction set or bus address; turbo doctor lists them. auto takes the "
      "one with most memory."));
  table.push_back(row<&P::compute, &P::Compute::graphs>(
      "compute.graphs", boolean(), "Replay a device's steps as recorded graphs. false makes each call anew, for a runtime whose graphs are in doubt."));
  table.push_back(row<&P::compute, &P::Compute::fuse>(
      "compute.fuse", boolean(), "Let a device do several operations in one call. false takes them apart; results are the same."));
  table.push_back(row<&P::compute, &P::Compute::step_kernel>(
      "compute.step_kernel", boolean(), "Run the layers of a step of one row as one launch, where a device has a kernel for it (needs graphs and fuse). Results are the same; measured slower than launches that begin early."));
  table.push_back(
      row<&P::tiers>("tiers", text_list(tier_names()),
                     "Tiers to try, best first. The first one that has everything the model needs is used."));
  table.push_back(row<&P::require>("require", optional(choice(tier_names())),
                                   "The one tier to use; not getting it is an error rather than a fallback."));
}

void add_kv_rows(std::vector<KeySpec>& table) {
  table.push_back({"kv.codec", text(), [](Profile& p, const Value& v) { p.kv.k = p.kv.v = std::get<std::string>(v); },
                   nullptr, false, "Codec of the KV cache, for keys and values both; kv.k and kv.v beside it, in either order, override their side."});
  table.push_back(row<&P::kv, &P::Kv::k>("kv.k", text(), "Codec of the keys; what kv.codec says when left out."));
  table.push_back(row<&P::kv, &P::Kv::v>("kv.v", text(), "Codec of the values; what kv.codec says when left out."));
  table.push_back(
      row<&P::kv, &P::Kv::options>("kv.options", text_map(), "Options of the codecs and of the cache around them; docs/kv-codecs.md and the codecs' READMEs list them. Of two codecs, each takes the ones it has."));
  table.push_back(row<&P::kv, &P::Kv::k_options>("kv.k_options", text_map(), "Options of the keys' codec alone; they go before kv.options."));
  table.push_back(row<&P::kv, &P::Kv::v_options>("kv.v_options", text_map(), "Options of the values' codec alone; they go before kv.options."));
  table.push_back(row<&P::kv, &P::Kv::pool_bytes>(
      "kv.pool_bytes", bytes(1 << 20, "auto"),
      "Memory for the KV cache of all requests together; auto takes a share of what is free."));
  table.push_back(row<&P::kv, &P::Kv::pool_tokens>("kv.pool_tokens", integer(64, 4e9, "auto"),
                                                   "Upper bound of the KV cache in tokens."));
}

void add_drafter_rows(std::vector<KeySpec>& table) {
  using D = P::Drafter;
  table.push_back(row<&P::drafter, &D::name>("drafter.name", text(), "Drafter for speculation, or off."));
  table.push_back(row<&P::drafter, &D::over>(
      "drafter.over", text_list(),
      "Drafters that a composing one (first, merge) works over, in order. Options of one of them are written as "
      "options: { NAME: { KEY: VALUE } }, or --set drafter.options.NAME.KEY=VALUE."));
  table.push_back(row<&P::drafter, &D::model>("drafter.model", path(), "Weights of a drafter that has a network."));
  table.push_back(row<&P::drafter, &D::draft_tokens>(
      "drafter.draft_tokens", integer(2, 64, "auto"),
      "Slots of one draft, the root included: a chain of 4 drafted tokens is 5. auto is the drafter's default."));
  table.push_back(row<&P::drafter, &D::steps>("drafter.steps", integer(1, 63, "auto"),
                                              "Draft passes per round of a learned drafter."));
  table.push_back(row<&P::drafter, &D::topk>("drafter.topk", integer(1, 64, "auto"),
                                             "Branches that a learned drafter keeps per pass."));
  table.push_back(row<&P::drafter, &D::adaptive>("drafter.adaptive", boolean(),
                                                 "Let the draft length follow what pays; false keeps it fixed."));
  table.push_back(row<&P::drafter, &D::lossless>(
      "drafter.lossless", boolean(), "Refuse every setting that could make the output differ from plain decoding."));
  table.push_back(row<&P::drafter, &D::accept_threshold_single>(
      "drafter.accept_threshold_single", number(0, 1),
      "Accept a draft whose target probability is at least this. Below 1 needs lossless: false."));
  table.push_back(row<&P::drafter, &D::accept_threshold_acc>(
      "drafter.accept_threshold_acc", number(0, 1),
      "Divide the acceptance probability by this. Below 1 needs lossless: false."));
  table.push_back(row<&P::drafter, &D::token_map>("drafter.token_map", path(),
                                                  "File of the token ids that the drafter may propose."));
  table.push_back(row<&P::drafter, &D::outcome_cache>(
      "drafter.outcome_cache", boolean(), "Draft ahead for likely outcomes while the target verifies (experimental)."));
  table.push_back(row<&P::drafter, &D::options>(
      "drafter.options", text_map(),
      "Options of the drafter; the drafter says which it has. The ones listed below may also stand directly under "
      "drafter, and go to those of the drafters at work that have them."));
}

void add_sampler_rows(std::vector<KeySpec>& table) {
  using S = P::Sampler;
  table.push_back(row<&P::sampler, &S::name>("sampler.name", text(), "The sampler."));
  table.push_back(row<&P::sampler, &S::temperature>("sampler.temperature", optional(number(0, 2)),
                                                    "Default temperature; 0 is greedy."));
  table.push_back(row<&P::sampler, &S::top_p>("sampler.top_p", optional(number(0, 1)), "Default nucleus mass."));
  table.push_back(row<&P::sampler, &S::top_k>("sampler.top_k", optional(integer(-1, 1'000'000)),
                                              "Default number of candidates; 0 or -1 is no limit."));
  table.push_back(row<&P::sampler, &S::min_p>("sampler.min_p", optional(number(0, 1)),
                                              "Default least probability, relative to the likeliest token."));
  table.push_back(row<&P::sampler, &S::typical_p>("sampler.typical_p", optional(fraction_above_zero()),
                                                  "Default mass of typical sampling."));
  table.push_back(row<&P::sampler, &S::repetition_penalty>("sampler.repetition_penalty",
                                                           optional({KeyKind::number, 0, 10, true}),
                                                           "Default repetition penalty; 1 is none."));
  table.push_back(row<&P::sampler, &S::presence_penalty>("sampler.presence_penalty", optional(number(-2, 2)),
                                                         "Default presence penalty."));
  table.push_back(row<&P::sampler, &S::frequency_penalty>("sampler.frequency_penalty", optional(number(-2, 2)),
                                                          "Default frequency penalty."));
  table.push_back(row<&P::sampler, &S::seed>("sampler.seed", optional(integer(-no_limit, no_limit)),
                                             "Default seed; left out, each request gets its own."));
}

void add_server_rows(std::vector<KeySpec>& table) {
  using S = P::Server;
  ValueRule key_list = text_list();
  key_list.environment = true;
  table.push_back(row<&P::server, &S::host>("server.host", text(), "Address to listen on; 0.0.0.0 is every one."));
  table.push_back(row<&P::server, &S::port>("server.port", integer(0, 65535), "Port to listen on; 0 is any free one."));
  table.push_back(row<&P::server, &S::api_keys>(
      "server.api_keys", key_list, "Keys that clients must send; none means no check. ${NAME} reads the environment."));
  table.back().secret = true;
  table.push_back(row<&P::server, &S::max_queue>("server.max_queue", integer(1, 65536),
                                                 "Requests that may wait; more are answered 429."));
  table.push_back(row<&P::server, &S::max_connections>("server.max_connections", integer(1, 65536),
                                                       "Open connections; more are refused."));
  table.push_back(row<&P::server, &S::body_limit_bytes>("server.body_limit_bytes", bytes(1024),
                                                        "Largest request body; larger is answered 413."));
  table.push_back(row<&P::server, &S::header_limit_bytes>("server.header_limit_bytes", bytes(1024),
                                                          "All headers of a request; larger is answered 431."));
  table.push_back(row<&P::server, &S::header_limit_count>("server.header_limit_count", integer(8, 10000),
                                                          "Headers of a request; more are answered 431."));
  table.push_back(row<&P::server, &S::request_line_limit_bytes>("server.request_line_limit_bytes", bytes(256),
                                                                "Longest request line; longer is answered 414."));
  table.push_back(row<&P::server, &S::json_depth_limit>("server.json_depth_limit", integer(8, 512),
                                                        "Deepest nesting of a request body."));
  table.push_back(row<&P::server, &S::idle_timeout_ms>("server.idle_timeout_ms", duration(100),
                                                       "A connection that sends nothing for so long is closed."));
  table.push_back(row<&P::server, &S::drain_timeout_ms>("server.drain_timeout_ms", duration(0),
                                                        "How long running requests may finish after a stop signal."));
  table.push_back(row<&P::server, &S::request_timeout_ms>(
      "server.request_timeout_ms", duration(1, "none"), "Longest time of a request that sets no timeout of its own."));
  table.push_back(row<&P::server, &S::sse_ping_ms>("server.sse_ping_ms", duration(100, "none"),
                                                   "Interval of keep-alive comments in a silent stream."));
  table.push_back(row<&P::server, &S::cors_origins>(
      "server.cors_origins", text_list(), "Browser origins that may call the API besides loopback ones; * is any."));
  table.push_back(row<&P::server, &S::lenient_model>("server.lenient_model", boolean(),
                                                     "Answer requests that name another model than the loaded one."));
  table.push_back(row<&P::server, &S::expose_slots>("server.expose_slots", boolean(), "Offer the /slots route."));
  table.push_back(
      row<&P::server, &S::expose_slot_prompts>("server.expose_slot_prompts", boolean(), "Show prompt text in /slots."));
  table.push_back(row<&P::server, &S::expose_paths>("server.expose_paths", boolean(),
                                                    "Show file paths in /props and similar routes."));
  table.push_back(row<&P::server, &S::allow_cache_flush>("server.allow_cache_flush", boolean(),
                                                         "Let clients drop the prefix cache with /flush_cache."));
  table.push_back(row<&P::server, &S::prefix_dir>("server.prefix_dir", path(),
                                                  "Folder where clients may save and restore prefixes; none keeps /prefix off."));
  table.push_back(row<&P::server, &S::reload_on_device_loss>(
      "server.reload_on_device_loss", boolean(), "Load the model again when the device was lost, instead of exiting."));
  table.push_back(row<&P::server, &S::web_page>("server.web_page", boolean(), "Serve the small page at /."));
}

void add_remaining_rows(std::vector<KeySpec>& table) {
  table.push_back(row<&P::engine, &P::Engine::max_running>("engine.max_running", integer(1, 1024),
                                                           "Requests that are computed at once."));
  table.push_back(row<&P::engine, &P::Engine::max_step_tokens>("engine.max_step_tokens", integer(1, 65536),
                                                               "Rows that one engine step may compute."));
  table.push_back(row<&P::engine, &P::Engine::prefill_chunk>("engine.prefill_chunk", integer(1, 65536, "auto"),
                                                             "Prompt tokens of one request in one engine step. auto is 512 on the hip tier, 128 on others and where prefill is exact."));
  table.push_back(row<&P::engine, &P::Engine::step_ms>(
      "engine.step_ms", duration(1, "none"),
      "Longest step that prompts may cause, so that running streams keep their rhythm; none puts no bound."));
  table.push_back(row<&P::engine, &P::Engine::prefix_cache>("engine.prefix_cache", boolean(),
                                                            "Reuse the KV cache of equal prompt beginnings."));
  table.push_back(row<&P::plugins, &P::Plugins::paths>("plugins.paths", path(KeyKind::path_list),
                                                       "Folders searched for plugins before the installed ones."));
  table.push_back(row<&P::plugins, &P::Plugins::prefer>(
      "plugins.prefer", text_map(), "Which plugin to take where several offer the same: `kind:name` to plugin id."));
  table.push_back(row<&P::plugins, &P::Plugins::allow_unsafe>(
      "plugins.allow_unsafe", boolean(), "Load plugins even from folders that other users can write to."));
  table.push_back(row<&P::log, &P::Log::level>("log.level", choice({"trace", "debug", "info", "warn", "error", "off"}),
                                               "Least important messages to log."));
  table.push_back(row<&P::log, &P::Log::format>("log.format", choice({"text", "json"}), "Form of log lines."));
}

std::vector<KeySpec> make_key_table() {
  std::vector<KeySpec> table;
  add_model_rows(table);
  add_kv_rows(table);
  add_drafter_rows(table);
  add_sampler_rows(table);
  add_server_rows(table);
  add_remaining_rows(table);
  return table;
}

std::vector<DrafterOption> make_drafter_options() {
  const std::vector<std::string> corpus{"ngram", "phantom", "cascade", "chimera"};
  return {
      {"ghosts", {"phantom"}, integer(1, 8), "Ways of drafting that are merged, and most threads that draft ahead."},
      {"buffers", {"phantom"}, integer(1, 4), "Packs of four finished drafts that each thread keeps ready."},
      {"max_trie_depth", corpus, integer(2, 256), "Longest token sequence that the corpus remembers."},
      {"match_type", corpus, choice({"BFS", "PROB"}), "Order in which continuations are taken: recency or frequency."},
      {"min_bfs_breadth", corpus, integer(1, 64), "Fewest children that a draft node gets."},
      {"max_bfs_breadth", corpus, integer(1, 64), "Most children that a draft node gets."},
      {"capacity", corpus, integer(3, 1'000'000'000), "Nodes that the corpus may hold, 32 bytes each."},
      {"suffix", {"ngram"}, choice({"on", "off"}), "Continue the longest repeat of a sequence where the corpus is not deep enough."},
      {"corpus", {"ngram"}, text(), "File of token ids, or of a saved corpus, to start from; a saved one is saved again at the end."},
      {"mode",
       {"eagle3"},
       text(),
       "Way of drafting: p_eagle drafts all tokens in one pass and needs a checkpoint made for it."},
      {"heads", {"medusa"}, integer(1, 64), "Number of heads; must equal the checkpoint's."},
      {"head_topk", {"medusa"}, integer(1, 10), "Candidates of each head."},
      {"tree", {"medusa"}, choice({"linear", "mc_sim_63", "auto"}), "Shape of the draft tree."},
      {"typical_acceptance",
       {"medusa"},
       choice({"off", "draft", "target"}),
       "draft samples drafts among typical tokens; target accepts typical tokens, which needs lossless: false."},
      {"posterior_threshold", {"medusa"}, fraction_above_zero(), "Threshold of typical acceptance."},
      {"posterior_alpha", {"medusa"}, fraction_above_zero(), "Entropy weight of typical acceptance."},
      {"screen_heads", {"medusa"}, text(), "Heads that screen drafts: auto, none, or indices such as 3,4."},
      {"level", {"chimera", "cascade"}, integer(1, 3, "dynamic"), "Fixes the level of the cascade."},
  };
}

}  // namespace

std::span<const KeySpec> key_table() {
  static const std::vector<KeySpec> table = make_key_table();
  return table;
}

const KeySpec* find_key(std::string_view path) {
  for (const KeySpec& spec : key_table())
    if (spec.path == path) return &spec;
  return nullptr;
}

const KeySpec* find_map_key(std::string_view path, std::string& entry) {
  for (const KeySpec& spec : key_table()) {
    if (spec.rule.kind != KeyKind::text_map || path.size() <= spec.path.size() + 1) continue;
    if (!path.starts_with(spec.path) || path[spec.path.size()] != '.') continue;
    entry = path.substr(spec.path.size() + 1);
    return &spec;
  }
  return nullptr;
}

bool is_section(std::string_view path) {
  const std::string prefix = std::string(path) + '.';
  return std::any_of(key_table().begin(), key_table().end(),
                     [&](const KeySpec& spec) { return spec.path.starts_with(prefix); });
}

std::vector<std::string> names_under(std::string_view section) {
  const std::string prefix = section.empty() ? "" : std::string(section) + '.';
  std::vector<std::string> names;
  for (const KeySpec& spec : key_table()) {
    if (!spec.path.starts_with(prefix)) continue;
    const std::string name = spec.path.substr(prefix.size(), spec.path.find('.', prefix.size()) - prefix.size());
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  return names;
}

std::span<const SectionDoc> section_table() {
  static const std::vector<SectionDoc> sections{
      {"model", "What to run."},
      {"compute", "What computes, and how."},
      {"kv", "The cache of keys and values. Either `codec`, or `k` and `v` apart."},
      {"drafter", "Speculation: a drafter proposes tokens and the model checks them. The output does not change."},
      {"sampler", "Defaults for requests that do not set these themselves."},
      {"server", "The HTTP server and its limits."},
      {"engine", "How requests share the machine."},
      {"plugins", "Where plugins come from."},
      {"log", "Messages on stderr."},
  };
  return sections;
}

std::span<const DrafterOption> drafter_options() {
  static const std::vector<DrafterOption> options = make_drafter_options();
  return options;
}

const DrafterOption* find_drafter_option(std::string_view name) {
  for (const DrafterOption& option : drafter_options())
    if (option.name == name) return &option;
  return nullptr;
}

std::span<const DrafterFacts> known_drafters() {
  static const std::vector<DrafterFacts> drafters{
      {.name = "ngram"},
      {.name = "phantom"},
      {.name = "eagle", .needs_model = true, .takes_steps = true},
      {.name = "eagle3", .needs_model = true, .takes_steps = true},
      {.name = "standalone", .needs_model = true, .takes_steps = true, .whole_model = true},
      {.name = "medusa", .needs_model = true},
      {.name = "cascade", .needs_model = true, .takes_steps = true},
      {.name = "chimera", .needs_model = true, .takes_steps = true},
      {.name = "self_spec", .takes_steps = true, .first_layers = true},
      {.name = "first", .composes = true},
      {.name = "merge", .composes = true},
      {.name = Profile::Drafter::outcome_cache_name, .composes = true},
  };
  return drafters;
}

const DrafterFacts* find_member(const Profile::Drafter& drafter, bool DrafterFacts::*fact) {
  for (const std::string& name : drafter.members())
    if (const DrafterFacts* facts = find_drafter(name); facts != nullptr && facts->*fact) return facts;
  return nullptr;
}

Status check_drafter_weights(const Profile::Drafter& drafter) {
  for (const std::string& name : drafter.members()) {
    const DrafterFacts* facts = find_drafter(name);
    if (facts == nullptr || !facts->needs_model || !drafter.model.empty() || (!facts->whole_model && drafter.options.count(name + ".model") != 0)) continue;
    return error(Code::invalid_argument, "{}: drafter '{}' needs weights but drafter.model is not set", name == drafter.name ? "drafter.name" : "drafter.over", name)
        .with_hint("set drafter.model, or --speculative-draft-model-path");
  }
  return Status::ok();
}

const DrafterFacts* find_drafter(std::string_view name) {
  for (const DrafterFacts& facts : known_drafters())
    if (facts.name == name) return &facts;
  return nullptr;
}

}  // namespace turbo::profile
