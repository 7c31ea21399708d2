// Everything a forward pass needs to know about a model, read from its file and checked.
//
// read_config() accepts GGUF metadata and Hugging Face config.json (the spellings of transformers 4 and 5). A config
// that it returns is consistent: hyper-parameters are inside fixed limits, and every tensor that the architecture needs
// is there with the shape and kind of type that follow from them. Plain data, usable from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/files/model_file.h"

namespace turbo::model {

/// halves: pair i is (i, i + dims/2). interleaved: pair i is (2i, 2i + 1).
enum class RopeStyle { halves, interleaved };
enum class RopeScaling { none, linear, yarn, llama3 };

struct RopeConfig {
  uint32_t dims = 0;  // rotated dimensions of a head; even
  float base = 10000.0f;
  RopeStyle style = RopeStyle::halves;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1.0;
  uint32_t original_context = 0;  // tokens; yarn and llama3
  // YaRN (arXiv 2309.00071)
  double extrapolation = 1.0;  // weight of the unscaled frequencies
  double attention_factor = 1.0;
  double beta_fast = 32.0, beta_slow = 1.0;
  double log_multiplier = 0.0;
  bool truncate_range = true;  // correction range rounded to whole pairs
  // Llama 3
  double low_freq_factor = 1.0, high_freq_factor = 4.0;
  std::vector<float> divisors;  // of the frequencies (rope_freqs.weight), dims / 2 or none

  /// Angle per position of each of the dims / 2 pairs, all scaling applied; computed in double and rounded once.
  std::vector<float> inverse_frequencies() const;
  /// Factor of cosine and sine: 1 without YaRN. Queries and keys both get it, so scores scale by its square.
  float magnitude() const;
};

/// What the file recommends for sampling when the user sets nothing.
struct SamplingDefaults {
  std::optional<float> temperature, top_p, min_p, repeat_penalty;
  std::optional<uint32_t> top_k;
};

struct ModelConfig {
  std::string architecture;  // "qwen3", "qwen2" or "llama"
  std::string name;          // may be empty
  uint32_t n_layers = 0, n_embd = 0, n_ff = 0;
  uint32_t n_heads = 0, n_kv_heads = 0;  // n_heads is a multiple of n_kv_heads
  uint32_t head_dim_k = 0, head_dim_v = 0;
  uint32_t vocab_size = 0;      // rows of the embedding
  uint32_t context_length = 0;  // tokens the model was trained for
  float norm_eps = 0;
  RopeConfig rope;
  bool tied_head = false;    // no output.weight: the head is token_embd.weight
  bool qk_norm = false;      // attn_q_norm.weight, attn_k_norm.weight
  bool qkv_bias = false;     // attn_q.bias, attn_k.bias, attn_v.bias
  bool output_bias = false;  // output.bias
  uint64_t n_parameters = 0;
  std::map<uint32_t, uint64_t> bytes_by_type;  // type number -> bytes of all tensors in it
  SamplingDefaults sampling;
  std::optional<uint32_t> bos_id;
  std::vector<uint32_t> eos_ids;
};

/// Names that read_config accepts, sorted.
std::span<const std::string> supported_architectures();

/// Errors: unsupported (architecture, rope scaling, extra tensors), corrupt_input (a value or shape is wrong),
/// not_found (a key or tensor is missing).
Result<ModelConfig> read_config(const ModelFile& file);

/// A tensor that an architecture has, as its shape follows from a config.
struct ExpectedTensor {
  std::string name;
  std::vector<uint64_t> dims;
  bool required = true;
  bool matrix = true;  // may be quantized; others are kept in a floating type
};
/// In file order of a usual model. `config` needs only its sizes and flags.
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config);

}  // namespace turbo::model
