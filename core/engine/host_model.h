// What plugins may know of the target: facts, tensors of its file, its tokenizer (turbo.host.model/1), and for
// drafters with a network its weights, KV pools and block tables (turbo.host.program/draft2).
#pragma once

#include <turbo/abi/draft/arch_pack.h>

#include <functional>
#include <memory>

#include "kv/cache.h"
#include "loader/host.h"
#include "model/config.h"
#include "model/files/model_file.h"
#include "model/weights.h"
#include "text/tokenizer.h"

namespace turbo::engine {

turbo_model_facts model_facts(const model::ModelConfig& config, const text::Tokenizer* tokenizer, uint32_t context);

/// Borrows everything; outlives the plugins it serves.
class HostModel : public loader::ModelProvider {
 public:
  HostModel(const model::ModelFile& file, const model::ModelConfig& config, const text::Tokenizer* tokenizer, uint32_t context)
      : file_(file), tokenizer_(tokenizer), facts_(model_facts(config, tokenizer, context)) {}

  const turbo_model_facts* facts() override { return &facts_; }
  Status tensor(const std::string& name, turbo_view& view) override;
  Result<std::vector<int32_t>> encode(std::string_view text) override;
  Result<std::string_view> token_bytes(int32_t id) override;

 private:
  const model::ModelFile& file_;
  const text::Tokenizer* tokenizer_;
  turbo_model_facts facts_;
};

/// The program service. The engine sets find_sequence before its first step.
class HostProgram {
 public:
  HostProgram(model::Pack pack, const model::WeightSet& weights, const kv::KvCache& cache);
  ~HostProgram();
  HostProgram(const HostProgram&) = delete;
  HostProgram& operator=(const HostProgram&) = delete;

  const turbo_host_program* table() const { return &table_; }
  /// Blocks of a live sequence as a drafter knows it, or null. [engine]
  std::function<const kv::SequenceBlocks*(uint32_t sequence)> find_sequence;

 private:
  turbo_host_program table_{};
  model::Pack pack_;
  const model::WeightSet& weights_;
  const kv::KvCache& cache_;
  std::vector<turbo_kv_pool*> pools_;
};

}  // namespace turbo::engine
