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

HostProgram::HostProgram(model::Pack pack, const model::WeightSet& weights, const kv::KvCache& cache)
    : pack_(pack), weights_(weights), cache_(cache) {
  table_.struct_size = sizeof table_;
  table_.ctx = this;
  table_.pack = pack.api;
  table_.pack_instance = pack.self;
  table_.target_weight = [](void* ctx, const char* name, const turbo_weight** weight, turbo_error* error) -> turbo_status {
    *weight = static_cast<HostProgram*>(ctx)->weights_.find(name ? name : "");
    return *weight ? TURBO_OK : fill_error(error, TURBO_NOT_FOUND, "the target has no weight of that name");
  };
  table_.kv_create = [](void* ctx, uint32_t n_layers, uint32_t n_kv_heads, uint32_t head_dim_k, uint32_t head_dim_v,
                        turbo_kv_pool** pool, turbo_error* error) -> turbo_status {
    auto& self = *static_cast<HostProgram*>(ctx);
    const turbo_kv_pool_desc desc{sizeof desc, n_layers, n_kv_heads, head_dim_k, head_dim_v, self.cache_.n_blocks(),
                                  self.cache_.n_open_blocks()};
    const turbo_status status = self.pack_.api->kv_create(self.pack_.self, &desc, pool, error);
    return status == TURBO_OK ? guarded(error, [&] { self.pools_.push_back(*pool); }) : status;
  };
  table_.block_table = [](void* ctx, uint32_t sequence, const int32_t** blocks, const int32_t** open_blocks,
                          uint32_t* n) -> turbo_status {
    auto& self = *static_cast<HostProgram*>(ctx);
    const kv::SequenceBlocks* found = self.find_sequence ? self.find_sequence(sequence) : nullptr;
    if (!found) return TURBO_NOT_FOUND;
    *blocks = found->packed.data();
    *open_blocks = found->open.data();
    *n = static_cast<uint32_t>(found->packed.size());
    return TURBO_OK;
  };
}

HostProgram::~HostProgram() {
  for (turbo_kv_pool* pool : pools_) pack_.api->kv_free(pack_.self, pool);
}

}  // namespace turbo::engine
