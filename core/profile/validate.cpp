// Rules that involve more than one key. Contradictions are errors that name both settings and where they came from;
// what is adjusted instead is written to Profile::adjustments.
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "base/nearest.h"
#include "profile/merge.h"
#include "profile/printable.h"
#include "profile/scalar.h"

namespace turbo::profile {
namespace {

class Validator {
 public:
  Validator(Profile& profile, const Origins& origins) : p_(profile), origins_(origins) {}

  Status run() {
    TURBO_RETURN_IF_ERROR(tiers());
    TURBO_RETURN_IF_ERROR(names());
    TURBO_RETURN_IF_ERROR(engine_and_kv());
    TURBO_RETURN_IF_ERROR(drafter_known());
    TURBO_RETURN_IF_ERROR(drafter_over());
    TURBO_RETURN_IF_ERROR(drafter_fits());
    TURBO_RETURN_IF_ERROR(drafter_options_valid());
    TURBO_RETURN_IF_ERROR(drafter_shape());
    TURBO_RETURN_IF_ERROR(corpus_options());
    TURBO_RETURN_IF_ERROR(lossless());
    TURBO_RETURN_IF_ERROR(server());
    return plugins();
  }

 private:
  bool given(const std::string& key) const { return origins_.contains(key); }
  std::string where(const std::string& key) const {
    const auto it = origins_.find(key);
    if (it == origins_.end()) return p_.source.empty() ? key : p_.source.string() + ": " + key;
    return it->second.where + ": " + key;
  }
  Status fail(const std::string& key, std::string why, std::string hint = {},
              Code code = Code::invalid_argument) const {
    return Status(code, where(key) + ": " + why, std::move(hint));
  }
  void adjust(std::string sentence) { p_.adjustments.push_back(std::move(sentence)); }

  Status tiers() {
    if (p_.require && !given("tiers")) p_.tiers = {*p_.require};
    if (p_.tiers.empty()) return fail("tiers", "expected at least one of hip, generic, cpu but found none", "remove tiers to try all of them");
    for (size_t i = 0; i < p_.tiers.size(); ++i)
      if (std::find(p_.tiers.begin(), p_.tiers.begin() + i, p_.tiers[i]) != p_.tiers.begin() + i)
        return fail("tiers", fmt::format("'{}' is listed twice", p_.tiers[i]), "name each tier once");
    if (!p_.require) return Status::ok();
    if (std::find(p_.tiers.begin(), p_.tiers.end(), *p_.require) == p_.tiers.end())
      return fail(
          "require",
          fmt::format("'{}' is not among tiers [{}] ({})", *p_.require, fmt::join(p_.tiers, ", "), where("tiers")),
          "require one of the listed tiers, or leave out one of the two keys");
    p_.tiers = {*p_.require};
    return Status::ok();
  }

  // Component names end up in messages, metrics and file look-ups: keep them plain.
  Status names() const {
    const std::pair<const char*, const std::string*> names[] = {
        {"kv.k", &p_.kv.k}, {"kv.v", &p_.kv.v}, {"drafter.name", &p_.drafter.name}, {"sampler.name", &p_.sampler.name}};
    const auto plain = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-' || c == '.' || c == ':'; };
    for (const std::string& name : p_.drafter.over)
      if (name.empty() || name.size() > 64 || !std::all_of(name.begin(), name.end(), plain))
        return fail("drafter.over", fmt::format("expected names of letters, digits and _ - . : but found {}", printable(name)), "`turbo plugins list` shows the names");
    for (const auto& [key, name] : names) {
      if (name->empty() || name->size() > 64 || !std::all_of(name->begin(), name->end(), plain))
        return fail(given(key) || !given("kv.codec") || *key != 'k' ? key : "kv.codec",
                    fmt::format("expected a name of letters, digits and _ - . : but found {}", printable(*name)));
    }
    return Status::ok();
  }

  Status engine_and_kv() {
    if (p_.engine.prefill_chunk > p_.engine.max_step_tokens) {
      if (given("engine.max_step_tokens"))
        return fail("engine.prefill_chunk", fmt::format("{} rows do not fit engine.max_step_tokens {}",
                                                        p_.engine.prefill_chunk, p_.engine.max_step_tokens));
      p_.engine.max_step_tokens = p_.engine.prefill_chunk;
      adjust(fmt::format("engine.max_step_tokens raised to {} to fit engine.prefill_chunk", p_.engine.prefill_chunk));
    }
    if (p_.kv.pool_tokens != 0 && p_.model.context != 0 && p_.kv.pool_tokens < p_.model.context)
      return fail(
          "kv.pool_tokens",
          fmt::format("{} tokens cannot hold one sequence of model.context {}", p_.kv.pool_tokens, p_.model.context),
          "raise kv.pool_tokens or lower model.context");
    return Status::ok();
  }

  Status drafter_known() {
    const std::string& name = p_.drafter.name;
    for (const char* word : {"none", "no", "false", "null"})
      if (name == word)
        return fail("drafter.name", fmt::format("expected a drafter or off but found '{}'", name), "write off");
    std::string lower = name;
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
    if (lower != name && (find_drafter(lower) != nullptr || lower == "off"))
      return fail("drafter.name", fmt::format("unknown drafter '{}'", name), fmt::format("did you mean '{}'?", lower));
    if (name == "off" && p_.drafter.outcome_cache)
      return fail("drafter.outcome_cache", "expected a drafter to wrap but none is selected",
                  "select one with drafter.name, --drafter or --speculative-algorithm");
    facts_ = find_drafter(name);
    return Status::ok();
  }

  // What a drafter works over: at least one other, none twice, and none for a drafter that stands alone.
  Status drafter_over() {
    constexpr size_t most = 8;
    const auto& d = p_.drafter;
    const std::string cache = Profile::Drafter::outcome_cache_name;
    if (d.outcome_cache && d.name == cache)
      return fail("drafter.outcome_cache", "the outcome cache cannot wrap itself",
                  "name the drafter to wrap in drafter.name, with outcome_cache: true");
    if (facts_ != nullptr && facts_->composes && d.over.empty())
      return fail("drafter.name", fmt::format("drafter '{}' works over others, but drafter.over names none", d.name),
                  fmt::format("for example drafter: {{ name: {}, over: [ngram] }}", d.name));
    if (facts_ != nullptr && !facts_->composes && !d.over.empty())
      return fail("drafter.over", fmt::format("drafter '{}' works over no others", d.name),
                  "drafters that do are first and merge");
    if (d.over.size() > most) return fail("drafter.over", fmt::format("expected at most {} drafters but found {}", most, d.over.size()), "name fewer");
    for (size_t i = 0; i < d.over.size(); ++i) {
      const std::string& inner = d.over[i];
      const DrafterFacts* facts = find_drafter(inner);
      if (inner == d.name || (d.outcome_cache && inner == cache))
        return fail("drafter.over", fmt::format("drafter '{}' cannot work over itself", inner), "name another drafter");
      if (inner == "off") return fail("drafter.over", "expected drafters but found 'off'", "remove it");
      if (std::find(d.over.begin(), d.over.begin() + static_cast<std::ptrdiff_t>(i), inner) != d.over.begin() + static_cast<std::ptrdiff_t>(i))
        return fail("drafter.over", fmt::format("'{}' is listed twice", inner), "name each drafter once");
      if (facts != nullptr && facts->composes)
        return fail("drafter.over", fmt::format("drafter '{}' works over others itself and cannot stand there", inner),
                    inner == cache ? "set drafter.outcome_cache: true instead" : "list the drafters that it would work over");
    }
    if (d.name == cache && d.over.size() > 1)
      return fail("drafter.over", fmt::format("the outcome cache wraps one drafter, but {} are named", d.over.size()),
                  "use drafter: { name: first, over: [...], outcome_cache: true }");
    return Status::ok();
  }

  /// `fact` of one of the drafters at work; true when one of them is not known.
  bool any_member(bool DrafterFacts::*fact) const {
    const std::vector<std::string> members = p_.drafter.members();
    return std::any_of(members.begin(), members.end(), [&](const std::string& name) {
      const DrafterFacts* facts = find_drafter(name);
      return facts == nullptr || facts->*fact;
    });
  }
  bool has_member(const std::vector<std::string>& drafters) const {
    return std::any_of(drafters.begin(), drafters.end(), [&](const std::string& name) { return p_.drafter.has_member(name); });
  }

  // Whether a drafter at work reads this drafter.* key.
  bool meaningful(const std::string& key) const {
    if (key == "drafter.over") return p_.drafter.name != "off";
    if (key == "drafter.name" || key == "drafter.adaptive" || key == "drafter.lossless" || key == "drafter.options")
      return true;
    if (p_.drafter.name == "off") return false;
    if (facts_ == nullptr) return true;
    if (key == "drafter.steps" || key == "drafter.topk") return any_member(&DrafterFacts::takes_steps);
    if (key == "drafter.token_map") return any_member(&DrafterFacts::needs_model) || any_member(&DrafterFacts::takes_steps);
    if (key == "drafter.model") return any_member(&DrafterFacts::needs_model);
    const DrafterOption* option = key.starts_with("drafter.options.") ? nullptr : find_drafter_option(key.substr(8));
    const std::vector<std::string>& over = p_.drafter.over;
    const auto unknown = [](const std::string& name) { return find_drafter(name) == nullptr; };
    return option == nullptr || has_member(option->drafters) || std::any_of(over.begin(), over.end(), unknown);
  }

  // A key of the file that the drafter does not read is an error; one of the command line is dropped with a warning.
  Status drafter_fits() {
    for (const auto& [key, origin] : origins_) {
      if (!key.starts_with("drafter.") || meaningful(key)) continue;
      const bool off = p_.drafter.name == "off";
      const std::string why =
          off ? "no drafter is selected" : fmt::format("drafter '{}' does not have it", p_.drafter.name);
      if (origin.from_file)
        return fail(key, why, off ? "select a drafter with drafter.name, or remove the line" : "remove the line");
      adjust(fmt::format("{} has no effect: {}", origin.where, why));
      if (const KeySpec* spec = find_key(key)) {
        spec->set(p_, spec->get(Profile{}));
      } else {
        p_.drafter.options.erase(key.starts_with("drafter.options.") ? key.substr(16) : key.substr(8));
      }
    }
    if (!p_.drafter.token_map.empty()) {
      std::error_code ignored;
      if (!std::filesystem::is_regular_file(p_.drafter.token_map, ignored))
        return fail("drafter.token_map",
                    fmt::format("expected a file but {} is none", printable(p_.drafter.token_map.string())),
                    "check the path", Code::not_found);
    }
    return Status::ok();
  }

  Status drafter_options_valid() {
    for (const auto& [name, text] : p_.drafter.options) {
      const std::string key = "drafter.options." + name;
      const size_t point = name.find('.');
      const std::string owner = point == std::string::npos ? "" : name.substr(0, point), leaf = name.substr(point + 1);
      if (!owner.empty() && !p_.drafter.has_member(owner))
        return fail(key, fmt::format("{} is not one of the drafters at work", printable(owner)),
                    fmt::format("they are {}", fmt::join(p_.drafter.members(), ", ")));
      const DrafterOption* option = find_drafter_option(leaf);
      if (option == nullptr || !has_member(option->drafters)) continue;  // the plugin's own business
      if (!owner.empty() && std::find(option->drafters.begin(), option->drafters.end(), owner) == option->drafters.end()) continue;
      if (auto value = read_scalar(option->rule, {text, false, false}); !value)
        return value.status().with_context(where(key));
      if (leaf == "screen_heads") TURBO_RETURN_IF_ERROR(screen_heads(key, text));
    }
    return Status::ok();
  }

  // auto, none, or indices; an index beyond the heads is an error, not dropped.
  Status screen_heads(const std::string& key, const std::string& text) const {
    if (text == "auto" || text == "none") return Status::ok();
    const std::optional<int64_t> heads = option_number("heads");
    size_t start = 0;
    while (start <= text.size()) {
      const size_t end = std::min(text.find(',', start), text.size());
      const ValueRule rule{KeyKind::integer, 0, heads ? static_cast<double>(*heads - 1) : 63};
      if (auto index = read_scalar(rule, {text.substr(start, end - start), false, false}); !index)
        return fail(key, fmt::format("expected auto, none, or head indices such as 3,4 from 0 to {} but found {}",
                                     static_cast<int>(rule.maximum), printable(text)));
      start = end + 1;
    }
    return Status::ok();
  }

  // What is said to `member` alone goes before what is said to all.
  std::optional<int64_t> option_number(const std::string& name, const std::string& member = {}) const {
    auto it = p_.drafter.options.find(member + "." + name);
    if (it == p_.drafter.options.end()) it = p_.drafter.options.find(name);
    const DrafterOption* option = find_drafter_option(name);
    if (it == p_.drafter.options.end() || option == nullptr) return std::nullopt;
    auto value = read_scalar(option->rule, {it->second, false, false});
    if (!value || !std::holds_alternative<int64_t>(*value)) return std::nullopt;
    return std::get<int64_t>(*value);
  }

  // steps, topk and draft_tokens describe one tree: pool = 1 + t + (steps - 1) t^2 slots, of which draft_tokens are
  // kept.
  Status drafter_shape() {
    if (facts_ == nullptr || !facts_->takes_steps) return Status::ok();
    auto& d = p_.drafter;
    if (d.steps == 0 && d.topk > 1)
      return fail("drafter.topk", fmt::format("{} branches per step need drafter.steps, which is not set", d.topk),
                  "set drafter.steps (--speculative-num-steps)");
    if (d.steps == 0) {
      if (d.draft_tokens == 0) return Status::ok();
      d.steps = d.draft_tokens - 1;  // a chain
    }
    if (d.topk <= 1) {
      d.topk = 1;
      if (d.draft_tokens != 0 && d.draft_tokens != d.steps + 1)
        adjust(fmt::format(
            "drafter.draft_tokens set to {} instead of {}: with topk 1 a draft is a chain of {} steps and the root",
            d.steps + 1, d.draft_tokens, d.steps));
      d.draft_tokens = d.steps + 1;
      return Status::ok();
    }
    const int pool = 1 + d.topk + (d.steps - 1) * d.topk * d.topk;
    if (d.draft_tokens > pool)
      return fail("drafter.draft_tokens",
                  fmt::format("{} slots are more than the {} that {} steps with topk {} can fill", d.draft_tokens, pool,
                              d.steps, d.topk),
                  fmt::format("at most {} here; raise drafter.steps or drafter.topk for more", pool));
    return Status::ok();
  }

  Status corpus_options() {
    const auto& takers = find_drafter_option("capacity")->drafters;
    for (const std::string& member : p_.drafter.members())
      if (std::find(takers.begin(), takers.end(), member) != takers.end()) TURBO_RETURN_IF_ERROR(corpus_options(member));
    return Status::ok();
  }
  Status corpus_options(const std::string& member) {
    constexpr int64_t default_depth = 18, default_min_breadth = 1, default_max_breadth = 10, node_bytes = 32;
    const int64_t depth = option_number("max_trie_depth", member).value_or(default_depth);
    const int64_t least = option_number("min_bfs_breadth", member).value_or(default_min_breadth);
    const int64_t most = option_number("max_bfs_breadth", member).value_or(default_max_breadth);
    if (most < least)
      return fail(given("drafter.options.max_bfs_breadth") ? "drafter.options.max_bfs_breadth"
                                                           : "drafter.options.min_bfs_breadth",
                  fmt::format("max_bfs_breadth {} is below min_bfs_breadth {}", most, least));
    const std::optional<int64_t> capacity = option_number("capacity", member);
    if (!capacity) return Status::ok();
    if (*capacity < depth + 1)
      return fail("drafter.options.capacity",
                  fmt::format("{} nodes cannot hold one sequence of max_trie_depth {}: at least {} are needed",
                              *capacity, depth, depth + 1));
    adjust(fmt::format("drafter.options.capacity {}: the nodes take up to {} MiB when full", *capacity,
                       (*capacity * node_bytes + (1 << 20) - 1) >> 20));
    return Status::ok();
  }

  // What lossless: true promises, it also enforces.
  Status lossless() {
    const auto greedy = p_.drafter.options.find("force_greedy_verify");
    const bool force_greedy =
        greedy != p_.drafter.options.end() && p_.drafter.name == "ngram" && greedy->second == "true";
    if (!p_.drafter.lossless) {
      if (force_greedy) adjust("force_greedy_verify has no effect: verification follows each request's own sampling");
      if (force_greedy) p_.drafter.options.erase(greedy);
      return Status::ok();
    }
    const std::string hint = "keep the default, or set drafter.lossless: false to allow different output";
    const std::pair<const char*, double> thresholds[] = {
        {"drafter.accept_threshold_single", p_.drafter.accept_threshold_single},
        {"drafter.accept_threshold_acc", p_.drafter.accept_threshold_acc}};
    for (const auto& [key, value] : thresholds)
      if (value < 1)
        return fail(key, fmt::format("{} can change the output, but drafter.lossless is true", value), hint);
    if (force_greedy)
      return fail("drafter.options.force_greedy_verify",
                  "greedy verification changes the output of sampled requests, but drafter.lossless is true",
                  "unset it; greedy requests are verified greedily anyway");
    for (const auto& [name, text] : p_.drafter.options)
      if ((name == "typical_acceptance" || name.ends_with(".typical_acceptance")) && text == "target")
        return fail("drafter.options." + name, "'target' can change the output, but drafter.lossless is true",
                    hint);
    return Status::ok();
  }

  // A name, or an address of either family; whether it is this machine's shows when it is bound.
  Status host() const {
    const std::string& host = p_.server.host;
    const auto plain = [](unsigned char c) { return std::isalnum(c) || std::string_view("-._:%[]").find(c) != std::string_view::npos; };
    if (host.empty() || host.size() > 253 || !std::all_of(host.begin(), host.end(), plain))
      return fail("server.host", fmt::format("expected an address or the name of a machine but found {}", printable(host)),
                  "for example 127.0.0.1, or 0.0.0.0 for every address of this machine; the port is server.port");
    return Status::ok();
  }

  Status server() {
    TURBO_RETURN_IF_ERROR(host());
    const auto& s = p_.server;
    for (const std::string& key : s.api_keys) {
      const auto visible = [](char c) { return c > 0x20 && c < 0x7F; };
      if (key.empty() || key.size() > 512 || !std::all_of(key.begin(), key.end(), visible))
        return fail("server.api_keys", "expected keys of 1 to 512 visible ASCII characters but one is different");
    }
    if (s.expose_slot_prompts && !s.expose_slots)
      return fail("server.expose_slot_prompts", "true needs server.expose_slots, which is false");
    for (const std::string& origin : s.cors_origins)
      if (origin != "*" && !origin.starts_with("http://") && !origin.starts_with("https://"))
        return fail("server.cors_origins",
                    fmt::format("expected an origin such as https://example.org but found {}", printable(origin)));
    const bool loopback = s.host.starts_with("127.") || s.host == "localhost" || s.host == "::1" || s.host == "[::1]";
    if (!loopback && s.api_keys.empty())
      adjust(fmt::format("server.host {} can be reached from other machines and server.api_keys is empty",
                         printable(s.host)));
    return Status::ok();
  }

  Status plugins() const {
    static const std::vector<std::string> kinds{"weight_format", "kv_codec", "drafter", "sampler", "arch_pack"};
    for (const auto& [component, plugin] : p_.plugins.prefer) {
      const std::string key = "plugins.prefer." + component;
      const size_t colon = component.find(':');
      const std::string kind = component.substr(0, colon);
      if (colon == std::string::npos || colon + 1 == component.size() ||
          std::find(kinds.begin(), kinds.end(), kind) == kinds.end())
        return fail(key,
                    fmt::format("expected kind:name, the kind one of {}, but found {}", fmt::join(kinds, ", "),
                                printable(component)),
                    "for example kv_codec:f16");
      if (plugin.empty()) return fail(key, "expected a plugin id but found nothing");
    }
    return Status::ok();
  }

  Profile& p_;
  const Origins& origins_;
  const DrafterFacts* facts_ = nullptr;
};

}  // namespace

Status validate(Profile& profile, const Origins& origins) { return Validator(profile, origins).run(); }

}  // namespace turbo::profile
