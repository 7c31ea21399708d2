#include "engine/host_model.h"

#include <turbo/plugin.hpp>

namespace turbo::engine {

turbo_model_facts model_facts(const model::ModelConfig& config, const text::Tokenizer* tokenizer, uint32_t context) {
  turbo_model_facts facts{};
  facts.struct_size = sizeof facts;
  facts.n_layers = config.n_layers;
  facts.architecture = config.architecture.c_str();
  facts.n_embd = config.n_embd;
  facts.n_ff = config.n_ff;
  facts.n_heads = config.n_heads;
  facts.n_kv_heads = config.n_kv_heads;
  facts.head_dim_k = config.head_dim_k;
  facts.head_dim_v = config.head_dim_v;
  facts.vocab_size = config.vocab_size;
  facts.context = context;
  facts.tokenizer_fingerprint = tokenizer ? tokenizer->fingerprint() : 0;
  return facts;
}

Status HostModel::tensor(const std::string& name, turbo_view& view) {
  const model::Tensor* tensor = file_.find(name);
  if (!tensor) return error(Code::not_found, "{}: no tensor '{}'", file_.name(), name);
  view.struct_size = sizeof view;
  view.type = tensor->type;
  view.data = const_cast<std::byte*>(tensor->data);
  view.bytes = tensor->bytes;
  view.rank = 2;
  view.memory = TURBO_MEMORY_HOST;
  view.device = -1;
  view.shape[0] = tensor->n_elements() / tensor->dims[0];
  view.shape[1] = tensor->dims[0];
  view.stride[0] = tensor->row_bytes();
  return Status::ok();
}

Result<std::vector<int32_t>> HostModel::encode(std::string_view text) {
  if (!tokenizer_) return Status(Code::not_found, "the model has no tokenizer");
  return tokenizer_->encode(text);
}

Result<std::string_view> HostModel::token_bytes(int32_t id) {
  if (!tokenizer_) return Status(Code::not_found, "the model has no tokenizer");
  if (id < 0 || id >= tokenizer_->vocab_size()) return error(Code::not_found, "no token {}", id);
  return tokenizer_->token_bytes(id);
}

}  // namespace turbo::engine
