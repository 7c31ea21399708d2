#include "engine/kv_observation.h"

#include <algorithm>
#include <cstring>

#include "base/abi_error.h"
#include "engine/kv_observation_text.h"
#include "engine/run_step.h"
#include "text/tokenizer.h"

namespace turbo::engine {
namespace {

constexpr uint32_t kRows = kv::kBlock;  // of a step: rows of one step stay inside one block

// One sequence, one program of kRows rows, and the cache they run over.
class Observer {
 public:
  Observer(const model::Pack& pack, const model::ModelConfig& config) : pack_(pack), config_(config) {}
  ~Observer() {
    if (plan_) pack_.api->plan_free(pack_.self, plan_);
    if (table_) pack_.api->table_free(pack_.self, table_);
    if (cache_) cache_->release(blocks_);
  }
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;

  Status open(const model::WeightSet& weights, model::BuildStep build_step, uint32_t n_tokens) {
    const uint32_t n_blocks = kv::blocks_for(n_tokens);
    TURBO_ASSIGN(cache_, kv::KvCache::create(pack_.api, pack_.self, {config_.n_layers, config_.n_kv_heads, config_.head_dim_k, config_.head_dim_v, n_blocks, 1}));
    if (!cache_->grow(blocks_, n_tokens)) return Status(Code::internal, "observing attention: the cache is too small");
    model::StepShape shape;
    shape.max_rows = kRows;
    shape.kv = cache_->pool();
    shape.tap_attention = true;
    program_ = build_step(config_, weights, shape);
    const turbo_program program = program_.builder->program();
    AbiError failure;
    TURBO_RETURN_IF_ERROR(failure.check(pack_.api->compile(pack_.self, &program, &plan_, failure.out()), "observing attention"));
    turbo_step_caps caps{};
    caps.struct_size = sizeof caps;
    caps.rows = kRows;
    caps.sequences = caps.logit_rows = caps.path = 1;
    caps.blocks_per_sequence = n_blocks;
    return failure.check(pack_.api->table_create(pack_.self, &caps, &table_, failure.out()), "observing attention");
  }

  Status run(std::span<const int32_t> tokens, uint32_t first, uint32_t n) {
    table_->n_rows = n;
    table_->n_seqs = 1;
    table_->n_logit_rows = 0;
    table_->committed[0] = static_cast<int32_t>(first);
    for (uint32_t i = 0; i < n; ++i) {
      table_->token[i] = tokens[first + i];
      table_->position[i] = table_->slot[i] = static_cast<int32_t>(first + i);
      table_->row_seq[i] = 0;
      table_->path_length[i] = 0;
    }
    std::copy(blocks_.packed.begin(), blocks_.packed.end(), table_->block_table);
    std::copy(blocks_.open.begin(), blocks_.open.end(), table_->open_table);
    TURBO_RETURN_IF_ERROR(run_step(*pack_.api, pack_.self, plan_, table_, "observing attention", [] { return Status::ok(); }));
    return cache_->commit(blocks_, first + n);
  }

  // Rows [0, n) of a tap, width floats each.
  Status read(uint32_t tap, uint64_t width, uint32_t n, float* to) {
    AbiError failure;
    turbo_view view{};
    view.struct_size = sizeof view;
    TURBO_RETURN_IF_ERROR(failure.check(pack_.api->plan_buffer(pack_.self, plan_, tap, &view, failure.out()), "observing attention"));
    if (view.memory != TURBO_MEMORY_HOST) {
      if (!pack_.api->plan_read) return Status(Code::unsupported, "the arch pack cannot copy buffers to the host");
      return failure.check(pack_.api->plan_read(pack_.self, plan_, tap, 0, n, to, failure.out()), "observing attention");
    }
    for (uint32_t i = 0; i < n; ++i)
      std::memcpy(to + i * width, static_cast<const char*>(view.data) + i * view.stride[0], width * sizeof(float));
    return Status::ok();
  }

  const model::StepProgram& program() const { return program_; }

 private:
  const model::Pack pack_;
  const model::ModelConfig& config_;
  std::unique_ptr<kv::KvCache> cache_;
  kv::SequenceBlocks blocks_;
  model::StepProgram program_;
  turbo_plan* plan_ = nullptr;
  turbo_step_table* table_ = nullptr;
};

}  // namespace

std::vector<int32_t> observed_tokens(const text::Tokenizer* tokenizer, uint32_t vocab_size) {
  std::vector<int32_t> tokens;
  if (tokenizer) tokens = tokenizer->encode(kObservedText);
  std::erase_if(tokens, [&](int32_t id) { return id < 0 || static_cast<uint32_t>(id) >= vocab_size; });
  // A tokenizer of long pieces, or none: the rest is arbitrary.
  for (uint32_t i = 0; tokens.size() < kObservedTokens; ++i) tokens.push_back(static_cast<int32_t>((i * 7919u + 13u) % vocab_size));
  tokens.resize(kObservedTokens);
  return tokens;
}

Result<KvObservation> observe_attention(const model::Pack& pack, const model::ModelConfig& config, const model::WeightSet& weights,
                                        model::BuildStep build_step, std::span<const int32_t> tokens) {
  KvObservation seen;
  seen.n_tokens = static_cast<uint32_t>(tokens.size());
  seen.n_layers = config.n_layers;
  seen.n_heads = config.n_heads;
  seen.n_kv_heads = config.n_kv_heads;
  seen.head_dim = config.head_dim_k;
  const uint64_t query_width = uint64_t{config.n_heads} * config.head_dim_k, key_width = uint64_t{config.n_kv_heads} * config.head_dim_k;
  seen.queries.assign(config.n_layers, std::vector<float>(query_width * tokens.size()));
  seen.keys.assign(config.n_layers, std::vector<float>(key_width * tokens.size()));
  Observer observer(pack, config);
  TURBO_RETURN_IF_ERROR(observer.open(weights, build_step, seen.n_tokens));
  if (observer.program().key_taps.size() != config.n_layers) return Status(Code::unsupported, "observing attention: the model family keeps no keys");
  for (uint32_t first = 0; first < seen.n_tokens; first += kRows) {
    const uint32_t n = std::min(kRows, seen.n_tokens - first);
    TURBO_RETURN_IF_ERROR(observer.run(tokens, first, n));
    for (uint32_t layer = 0; layer < config.n_layers; ++layer) {
      TURBO_RETURN_IF_ERROR(observer.read(observer.program().query_taps[layer], query_width, n, &seen.queries[layer][first * query_width]));
      TURBO_RETURN_IF_ERROR(observer.read(observer.program().key_taps[layer], key_width, n, &seen.keys[layer][first * key_width]));
    }
  }
  return seen;
}

}  // namespace turbo::engine
