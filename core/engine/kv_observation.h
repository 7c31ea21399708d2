// What attention reads while the model works through a short text: rotated queries and keys of every layer. For choosing
// centers and codecs of the KV cache at load, before the pool exists. Loading thread only.
#pragma once

#include <span>
#include <vector>

#include "engine/parts.h"
#include "text/tokenizer.h"

namespace turbo::engine {

struct KvObservation {
  uint32_t n_tokens = 0, n_layers = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0;
  std::vector<std::vector<float>> queries;  // by layer: [token][n_heads][head_dim]
  std::vector<std::vector<float>> keys;     // by layer: [token][n_kv_heads][head_dim]

  const float* query(uint32_t layer, uint32_t token, uint32_t head) const {
    return &queries[layer][(uint64_t{token} * n_heads + head) * head_dim];
  }
  const float* key(uint32_t layer, uint32_t token, uint32_t kv_head) const {
    return &keys[layer][(uint64_t{token} * n_kv_heads + kv_head) * head_dim];
  }
};

/// At most this many tokens are looked at.
inline constexpr uint32_t kObservedTokens = 256;

/// The fixed text's tokens: as many as are observed, without a tokenizer arbitrary ids.
std::vector<int32_t> observed_tokens(const text::Tokenizer* tokenizer, uint32_t vocab_size);

/// Runs the tokens through the model over a cache of its own, whose codecs are what the registry gives now.
Result<KvObservation> observe_attention(const model::Pack& pack, const model::ModelConfig& config, const model::WeightSet& weights,
                                        model::BuildStep build_step, std::span<const int32_t> tokens);

}  // namespace turbo::engine
