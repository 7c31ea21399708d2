// Hugging Face tensor names of the qwen and llama families -> GGUF names.
#include <algorithm>
#include <string>
#include <string_view>

#include "model/files/model_readers.h"

namespace turbo::model {
namespace {

struct NamePair {
  std::string_view from, to;
};

constexpr NamePair kLayerModules[] = {
    {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"}, {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
};
constexpr NamePair kModules[] = {
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
};

}  // namespace

std::string canonical_tensor_name(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == name.npos) return {};
  const std::string_view module = name.substr(0, dot), suffix = name.substr(dot);  // ".weight" or ".bias"
  if (suffix != ".weight" && suffix != ".bias") return {};
  for (const NamePair& pair : kModules) {
    if (module == pair.from) return std::string(pair.to) + std::string(suffix);
  }
  constexpr std::string_view kLayers = "model.layers.";
  if (!module.starts_with(kLayers)) return {};
  const std::string_view rest = module.substr(kLayers.size());
  const size_t end = rest.find('.');
  if (end == rest.npos || end == 0 || end > 6) return {};
  const std::string_view number = rest.substr(0, end);
  const bool plain = number.find_first_not_of("0123456789") == number.npos && (number.size() == 1 || number[0] != '0');
  if (!plain) return {};
  for (const NamePair& pair : kLayerModules) {
    if (rest.substr(end + 1) == pair.from) {
      return "blk." + std::string(number) + "." + std::string(pair.to) + std::string(suffix);
    }
  }
  return {};
}

}  // namespace turbo::model
