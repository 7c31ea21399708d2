// What drafters with a network work with on the target's tier: its weights, KV pools and block tables, and second models
// that draft (turbo.host.program/draft3).
#pragma once

#include <turbo/abi/draft/arch_pack.h>

#include <functional>
#include <memory>
#include <vector>

#include "engine/draft_model.h"
#include "kv/cache.h"
#include "model/weights.h"
#include "sched/sequence.h"

namespace turbo::engine {

/// What draft models are made of. Everything is borrowed.
struct DraftSettings {
  const model::ModelConfig* target = nullptr;
  std::filesystem::path path;        // drafter.model of the profile
  const DraftFile* file = nullptr;   // the same, when it was opened before
  const text::Tokenizer* tokenizer = nullptr;  // the target's; null: none
  DraftModelLimits limits;
  DraftModel::WithCodecs exact_codecs;
};

/// The program service. The engine sets find_sequence before its first step.
class HostProgram {
 public:
  HostProgram(model::Pack pack, const model::WeightSet& weights, const kv::KvCache& cache) : HostProgram(pack, &weights, &cache) {}
  /// Before the target is loaded: models are found and checked as they will be, and their facts told, but none is loaded
  /// and nothing runs.
  explicit HostProgram(model::Pack pack) : HostProgram(pack, nullptr, nullptr) {}
  ~HostProgram();
  HostProgram(const HostProgram&) = delete;
  HostProgram& operator=(const HostProgram&) = delete;

  const turbo_host_program* table() const { return &table_; }
  /// [load] From here on models can be opened.
  void offer_models(DraftSettings settings) { settings_ = std::move(settings); }
  /// A live sequence as a drafter knows it, or null. [engine]
  std::function<const sched::Sequence*(uint32_t sequence)> find_sequence;

  /// A drafter writes into blocks under the target's ids.
  bool fills_blocks() const { return !pools_.empty(); }
  /// Something was asked for that only a loaded target has: what a drafter made of the refusal means nothing.
  bool lacked_target() const { return lacked_target_; }
  /// Why drafter.model could not be opened; ok when it was, or nobody asked.
  const Status& model_status() const { return model_status_; }
  /// [any, after load] Bytes of draft models beside the target's.
  uint64_t draft_weights_bytes() const;
  uint64_t draft_kv_pool_bytes() const;
  /// [engine] As KvCache's, of the caches of draft models.
  void flush();
  Status check_idle() const;

 private:
  // What a source means: a file, or with null the target.
  struct Found {
    const DraftFile* file;
    model::ModelConfig config;  // of the layers that run
    uint32_t shared_vocab;
  };

  HostProgram(model::Pack pack, const model::WeightSet* weights, const kv::KvCache* cache);
  Status open(const turbo_draft_source& source, turbo_draft_model*& model, turbo_draft_facts& facts);
  Result<Found> find_source(const turbo_draft_source& source);
  Result<std::unique_ptr<DraftModel>> make(const Found& found);
  turbo_status lacks_target(turbo_error* error);
  /// The model of a handle, or null.
  DraftModel* find(const turbo_draft_model* handle) const;
  void fill_target_calls();
  void fill_model_calls();

  turbo_host_program table_{};
  model::Pack pack_;
  const model::WeightSet* const weights_;  // null, and so is the cache: the target is not loaded yet
  const kv::KvCache* const cache_;
  bool lacked_target_ = false;
  DraftSettings settings_;
  DraftFile opened_;  // when it was not opened before
  Status model_status_;
  std::vector<turbo_kv_pool*> pools_;
  std::vector<std::unique_ptr<DraftModel>> models_;
};

}  // namespace turbo::engine
