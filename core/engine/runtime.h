// A model made ready: file, tokenizer, template, resolved plugins, weights, KV cache and a running engine.
// Built on one thread; afterwards everything but the engine is read-only and may be used from any thread.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "engine/engine.h"
#include "engine/kv_plan.h"
#include "model/config.h"
#include "model/files/model_file.h"
#include "profile/profile.h"
#include "text/template/chat_template.h"
#include "text/tokenizer.h"

namespace turbo::engine {

class HostProgram;

struct MemoryReport {
  uint64_t weights_bytes = 0;
  uint64_t kv_bytes_per_token = 0;
  uint64_t kv_pool_bytes = 0;
  uint64_t draft_weights_bytes = 0;  // of a draft model, beside the target's
  uint64_t draft_kv_pool_bytes = 0;
  uint64_t workspace_bytes = 0;
  uint64_t device_bytes = 0;  // that weights, workspace and cache share; 0: host memory
  uint64_t peak_rss_bytes = 0;
};
nlohmann::ordered_json to_json(const MemoryReport& memory);

/// The resolution of a profile: `json` is the object of `turbo plan --json`, `text` the table for people.
struct PlanReport {
  nlohmann::ordered_json json;
  std::string text;
};

/// What was being done when loading failed.
enum class LoadStage {
  settings,  // the profile by itself, or for this model and these plugins
  model,
  plugins,
  weights,
  engine,
};

/// Resolve plugins for a profile without loading weights. Code::unsupported when no tier (or not the required one)
/// works; the message then carries every reason.
/// `losses`, when given, is filled then too.
Result<PlanReport> plan(const profile::Profile& profile, LoadStage* failed_at = nullptr, PlanReport* losses = nullptr);

/// Bytes of KV cache that one position takes with the profile's codecs. Loads plugins but no weights.
Result<KvTokenBytes> kv_bytes_per_token(const profile::Profile& profile, LoadStage* failed_at = nullptr);

class Runtime {
 public:
  /// Stage ("weights") and fraction done in [0, 1]; called on the loading thread.
  using Progress = std::function<void(const char* stage, double fraction)>;

  static Result<std::unique_ptr<Runtime>> load(const profile::Profile& profile, const Progress& progress = {},
                                               LoadStage* failed_at = nullptr);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const profile::Profile& profile() const;
  const model::ModelFile& file() const;
  const model::ModelConfig& config() const;
  /// Id that clients see: the profile's model.name or the file's name without its ending.
  const std::string& model_name() const;
  /// Positions of one sequence: the profile's context, or the model's, capped by the KV pool.
  uint32_t context() const;

  /// The model's tokenizer, or why it has none (ids still work).
  Result<const text::Tokenizer*> tokenizer() const;
  /// The model's chat template, or why it has none.
  Result<const text::ChatTemplate*> chat_template() const;

  /// What requests get when they say nothing: the profile's sampler section over what the model file recommends
  /// over the neutral values.
  Sampling default_sampling() const;

  Engine& engine();
  /// What the drafter works with. For the engine thread; another may use it while the engine has no requests.
  HostProgram& host_program();
  const PlanReport& resolved() const;
  /// The engine's numbers and those of plugins. [any thread]
  std::vector<prometheus::MetricFamily> metrics() const;
  MemoryReport memory() const;
  uint64_t load_ms() const;

 private:
  friend Result<PlanReport> plan(const profile::Profile&, LoadStage*, PlanReport*);
  friend Result<KvTokenBytes> kv_bytes_per_token(const profile::Profile&, LoadStage*);
  struct Impl;
  explicit Runtime(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace turbo::engine
