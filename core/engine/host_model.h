// What plugins may know of the target: facts, tensors of its file, its tokenizer (turbo.host.model/1).
#pragma once

#include "loader/host.h"
#include "model/config.h"
#include "model/files/model_file.h"
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

}  // namespace turbo::engine
