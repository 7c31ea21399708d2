// A second model that drafts: its weights, its plans, and a KV cache whose blocks are its own. What
// turbo.host.program/draft3 calls a draft model. Built on the loading thread, then used by the engine thread only.
//
// A sequence is a text and a tree of nodes behind it. Node i lies at slot text + i until it is kept or forgotten. Closed
// blocks of a text are shared between sequences as those of the target are, but in a tree of this cache: that the target
// has a prefix says nothing about the draft model. Rows do not depend on their batch, so a text has the same bits however
// it was cut into runs and whether its tokens were nodes first.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/draft_file.h"
#include "engine/parts.h"
#include "engine/plan_cache.h"

namespace turbo::engine {

struct DraftModelLimits {
  uint32_t context = 0;        // of the target's sequences
  uint32_t n_blocks = 0;
  uint32_t max_sequences = 1;
};

class DraftModel {
 public:
  static constexpr uint32_t kMaxNodes = 64;
  static constexpr uint32_t kMaxLogitRows = 64;

  /// A model of its own file (borrowed). `config`: the file's, or of fewer layers. Loads the weights; `exact_codecs` runs
  /// the creation of the cache with codecs that keep 16 bits or more.
  using WithCodecs = std::function<Status(const std::function<Status()>&)>;
  static Result<std::unique_ptr<DraftModel>> load(model::Pack pack, const DraftFile& file, const model::ModelConfig& config, const DraftModelLimits& limits,
                                                  const WithCodecs& exact_codecs);
  /// The first layers of the target, those of `config`, with its weights (borrowed).
  static Result<std::unique_ptr<DraftModel>> borrow(model::Pack pack, const model::ModelConfig& config, const model::WeightSet& weights,
                                                    const DraftModelLimits& limits, const WithCodecs& exact_codecs);
  ~DraftModel();
  DraftModel(const DraftModel&) = delete;
  DraftModel& operator=(const DraftModel&) = delete;

  /// What is known of such a model without its weights: all but the bytes that it takes.
  static turbo_draft_facts facts(const model::ModelConfig& config, uint32_t shared_vocab, const DraftModelLimits& limits);
  /// The salt of a new sequence, or nothing for one that shares no blocks. Unset: none shares.
  std::function<std::optional<std::string>(uint32_t sequence)> find_salt;

  /// As turbo_host_program.model_run. Errors: invalid_argument for groups that break its rules.
  Status run(std::span<turbo_draft_group* const> groups, turbo_view& logits);
  Status keep(uint32_t sequence, std::span<const uint32_t> nodes);
  void drop(uint32_t sequence);

  uint64_t weights_bytes() const { return own_weights_ ? own_weights_->resident_bytes() : 0; }
  uint64_t kv_pool_bytes() const { return cache_->pool_bytes(); }
  const kv::KvCache& cache() const { return *cache_; }
  /// Forget shared blocks that no sequence holds.
  void flush() { cache_->flush(); }
  /// With no sequence: nothing leaked.
  Status check_idle() const;

 private:
  struct Sequence {
    std::vector<int32_t> text, nodes, parents;
    kv::SequenceBlocks blocks;
    bool is_new = true;
  };

  explicit DraftModel(model::Pack pack) { parts_.pack = pack; }
  Status create(const model::ModelConfig& config, const model::WeightSet& weights, const DraftModelLimits& limits, const WithCodecs& exact_codecs);
  Status check(std::span<turbo_draft_group* const> groups) const;
  Status run_all(std::span<turbo_draft_group* const> groups, turbo_view& logits);
  bool prepare(turbo_draft_group& group);
  Status run_beginning(const turbo_draft_group& group);
  uint32_t add_row(int32_t token, uint32_t position, uint32_t slot, uint32_t index);
  void begin_rows();
  void add_sequence(const Sequence& sequence, uint32_t committed);
  void add_group(turbo_draft_group& group);
  Status run_rows(turbo_view* logits);
  void finish(const turbo_draft_group& group);
  void undo(const turbo_draft_group& group);

  EngineParts parts_;  // of this model: what its plans are compiled from
  model::ModelConfig config_;
  std::unique_ptr<model::WeightSet> own_weights_;
  std::unique_ptr<kv::KvCache> cache_;
  std::unique_ptr<PlanCache> plans_;
  turbo_step_table* table_ = nullptr;
  uint32_t context_ = 0, shared_vocab_ = 0;
  std::vector<float> logits_copy_;  // of logits in device memory
  std::unordered_map<uint32_t, Sequence> sequences_;
};

}  // namespace turbo::engine
