// The profile: every setting of a run, typed and validated whole before any weight is read.
//
// load_profile() merges, lowest first: built-in defaults, one YAML file, then overrides (environment before command
// line). The answer is either a Profile that holds together or one error that names the file, line and column (or the
// flag) and says what was expected. Names of codecs, drafters and samplers are kept as text: the loader checks them
// against what is installed. Everything here is plain data; any thread may read a const Profile.
//
// Which keys exist, their types, ranges and documentation is decided by the one table in keys.cpp; docs/profiles.md
// and configs/profile.schema.json are generated from it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "profile/search.h"

namespace turbo::profile {

struct Profile {
  int schema = 1;

  struct Model {
    std::filesystem::path path;  // resolved; may be empty, may not exist
    uint32_t context = 0;        // tokens; 0 = the model's own
    std::string name;            // id that the server reports; empty = the file's name
  } model;

  struct Compute {
    int threads = 0;                   // 0 = every usable processor
    std::string activations = "int8";  // "int8", or "f32" for the reference path
    std::string device = "auto";       // number or part of the name; of tiers that use a device
    bool graphs = true;                // a device's steps are replayed as recorded graphs
    bool fuse = true;                  // formats and codecs do several operations in one call
    bool step_kernel = false;          // the layers of a step in one launch, where a device has a kernel for it
  } compute;

  std::vector<std::string> tiers{"hip", "generic", "cpu"};  // best first; exactly {*require} when require is set
  std::optional<std::string> require;

  struct Kv {
    std::string k = "f16", v = "f16";            // codec names; kv.codec sets both
    std::map<std::string, std::string> options;  // checked against the codecs' own schemas later
    std::map<std::string, std::string> k_options, v_options;  // of one side, over `options`
    uint64_t pool_bytes = 0;                     // 0 = sized from what memory is left
    uint32_t pool_tokens = 0;                    // 0 = not limited by count
  } kv;

  struct Drafter {
    std::string name = "off";
    std::vector<std::string> over;       // drafters that it works over, in order; empty for one that stands alone
    std::filesystem::path model;         // resolved; empty when none
    int draft_tokens = 0;                // slots including the root; 0 = the drafter's default
    int steps = 0;                       // draft forward passes; 0 = the drafter's default
    int topk = 0;                        // branches per step; 0 = the drafter's default
    bool adaptive = true;                // draft length follows what pays
    bool lossless = true;                // refuse everything that could change the output
    double accept_threshold_single = 1;  // below 1 only when lossless is false
    double accept_threshold_acc = 1;
    std::filesystem::path token_map;             // hot-vocabulary file; exists when set
    bool outcome_cache = false;                  // draft ahead for likely outcomes of the running verify
    /// Checked against the drafters' own schemas later. "KEY" is the drafter's, "NAME.KEY" that of one it works over.
    std::map<std::string, std::string> options;

    /// Wraps the selected drafter when outcome_cache is set.
    static constexpr const char* outcome_cache_name = "saguaro";
    /// All drafters that take part: the selected one, those it works over, and the outcome cache.
    std::vector<std::string> members() const;
    bool has_member(const std::string& drafter) const;
  } drafter;

  /// Defaults for requests that do not say otherwise; an unset field means the API's default.
  struct Sampler {
    std::string name = "standard";
    std::optional<double> temperature, top_p, min_p, typical_p;
    std::optional<int64_t> top_k, seed;
    std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  } sampler;

  struct Server {
    std::string host = "127.0.0.1";
    int port = 30000;                   // 0 = any free port
    std::vector<std::string> api_keys;  // never printed: to_json shows "***"
    int max_queue = 256;                // requests waiting; more are answered 429
    int max_connections = 1024;
    uint64_t body_limit_bytes = 32ull << 20;
    uint64_t header_limit_bytes = 32ull << 10;
    int header_limit_count = 100;
    uint64_t request_line_limit_bytes = 8ull << 10;
    int json_depth_limit = 64;
    uint64_t idle_timeout_ms = 60000;
    uint64_t drain_timeout_ms = 30000;
    uint64_t request_timeout_ms = 0;  // 0 = none
    uint64_t sse_ping_ms = 15000;     // 0 = never
    std::vector<std::string> cors_origins;
    bool lenient_model = true;
    bool expose_slots = false;
    bool expose_slot_prompts = false;
    bool expose_paths = false;
    bool allow_cache_flush = false;
    std::filesystem::path prefix_dir;  // where clients may save and restore prefixes; empty = nowhere
    bool reload_on_device_loss = false;
    bool web_page = true;
  } server;

  struct Engine {
    int max_running = 32;       // requests computed at once
    int max_step_tokens = 512;  // row budget of one engine step
    int prefill_chunk = 0;      // most prompt rows of one request in one step; 0: what suits the tier
    uint64_t step_ms = 100;     // how long prompts may make one step while others stream; 0 = no bound
    bool prefix_cache = true;
  } engine;

  struct Plugins {
    std::vector<std::filesystem::path> paths;   // searched before the installed plugins
    std::map<std::string, std::string> prefer;  // "kind:name" -> plugin id
    bool allow_unsafe = false;                  // load libraries from folders that others can write to
  } plugins;

  struct Log {
    std::string level = "info";
    std::string format = "text";
  } log;

  /// Automatic adjustments and warnings, one sentence each, to be listed once at start.
  std::vector<std::string> adjustments;
  /// The file this came from; empty for built-in defaults.
  std::filesystem::path source;
};

/// One setting that outranks the file.
struct Override {
  std::string key_path;  // "kv.k"; empty for a flag that is accepted without effect
  std::string value;     // as typed; lists are comma-separated
  std::string origin;    // how the user gave it, for messages: "--set kv.k", "TURBO_THREADS", "--kv-cache-dtype"
  /// The setting belongs to these drafters: with another one selected it is dropped with a warning. Empty = always.
  std::vector<std::string> for_drafters{};
  std::string note{};  // copied to Profile::adjustments, for flags that are accepted without effect
  bool from_environment = false;  // the command line comes after all of these
};

/// The profile named by a path or a bare name (search.h), or configs/default.yaml when there is no name, with the
/// overrides applied in order (so: environment first, then command line). Reads no weights. Errors: not_found,
/// invalid_argument (contents or an override), resource_exhausted (over the size, depth or node limits), unsupported.
Result<Profile> load_profile(const std::optional<std::string>& name_or_path, std::span<const Override> overrides,
                             const SearchPaths& search);

/// As load_profile, from text in memory. `source` names it in messages, and its folder is the base of relative paths.
Result<Profile> parse_profile(std::string_view text, const std::filesystem::path& source,
                              std::span<const Override> overrides, const SearchPaths& search);

/// The effective profile as nested JSON with the keys of the YAML form. API keys are masked.
nlohmann::json to_json(const Profile& profile);

/// 64-bit hash of every setting but the API keys, the source and the adjustments: equal profiles, equal fingerprints.
uint64_t fingerprint(const Profile& profile);

}  // namespace turbo::profile
