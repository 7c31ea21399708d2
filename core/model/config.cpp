#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/nearest.h"
#include "model/config_parts.h"
#include "model/files/utf8.h"

namespace turbo::model {
namespace {

// Far above every known model; products of any three stay well inside 64 bits.
constexpr uint64_t kMaxLayers = 1024, kMaxWidth = 1u << 20, kMaxHeads = 4096, kMaxHeadDim = 4096, kMaxVocab = 1u << 24,
                   kMaxContext = 1u << 30;

}  // namespace

std::span<const std::string> supported_architectures() {
  static const std::vector<std::string> names = {"llama", "qwen2", "qwen3"};
  return names;
}

Status unknown_architecture(const std::string& where, const std::string& found) {
  const auto names = supported_architectures();
  const std::string near = nearest_name(found, names);
  return error(Code::unsupported, "{}: expected one of the architectures {} but found '{}'", where,
               fmt::join(names, ", "), printable(found))
      .with_hint(near.empty() || near == found ? "use a model of a supported architecture"
                                               : fmt::format("the nearest supported name is '{}'", near));
}

Status check_hyper_parameters(const ModelConfig& c, const std::string& where) {
  const auto refuse = [&](std::string_view what, const std::string& why) {
    return error(Code::corrupt_input, "{}: {}: {}", where, what, why)
        .with_hint("the model's hyper-parameters are wrong; convert or download it again");
  };
  const struct {
    const char* what;
    uint64_t value, limit;
  } ranges[] = {
      {"layer count", c.n_layers, kMaxLayers},           {"embedding length", c.n_embd, kMaxWidth},
      {"feed-forward length", c.n_ff, kMaxWidth},        {"attention head count", c.n_heads, kMaxHeads},
      {"key-value head count", c.n_kv_heads, kMaxHeads}, {"key head size", c.head_dim_k, kMaxHeadDim},
      {"value head size", c.head_dim_v, kMaxHeadDim},    {"vocabulary size", c.vocab_size, kMaxVocab},
      {"context length", c.context_length, kMaxContext},
  };
  for (const auto& range : ranges) {
    if (range.value == 0 || range.value > range.limit) {
      return refuse(range.what, fmt::format("expected 1 to {} but found {}", range.limit, range.value));
    }
  }
  if (c.n_kv_heads > c.n_heads || c.n_heads % c.n_kv_heads != 0) {
    return refuse("key-value head count",
                  fmt::format("expected a divisor of the {} attention heads but found {}", c.n_heads, c.n_kv_heads));
  }
  if (!(c.norm_eps > 0.0f && c.norm_eps < 1.0f)) {
    return refuse("norm epsilon", fmt::format("expected a number over 0 and under 1 but found {}", c.norm_eps));
  }
  const RopeConfig& rope = c.rope;
  if (rope.dims == 0 || rope.dims % 2 != 0 || rope.dims > c.head_dim_k) {
    return refuse(
        "rope dimension count",
        fmt::format("expected an even number from 2 to the key head size {} but found {}", c.head_dim_k, rope.dims));
  }
  if (!(rope.base > 1.0f && rope.base <= 1e15f)) {
    return refuse("rope base", fmt::format("expected a number over 1 and up to 1e15 but found {}", rope.base));
  }
  const auto in = [](double value, double low, double high) { return value >= low && value <= high; };
  const bool scaled = rope.scaling != RopeScaling::none;
  if (scaled && !in(rope.factor, 1e-3, 1e6)) {
    return refuse("rope scaling factor",
                  fmt::format("expected a number from 0.001 to 1000000 but found {}", rope.factor));
  }
  if (rope.scaling == RopeScaling::yarn || rope.scaling == RopeScaling::llama3) {
    if (rope.original_context == 0 || rope.original_context > kMaxContext) {
      return refuse("rope scaling original context length",
                    fmt::format("expected 1 to {} but found {}", kMaxContext, rope.original_context));
    }
  }
  if (rope.scaling == RopeScaling::yarn) {
    if (!in(rope.beta_slow, 1e-6, 1e6) || !in(rope.beta_fast, 1e-6, 1e6) || !in(rope.extrapolation, 0, 1) ||
        !in(rope.log_multiplier, 0, 100) || !in(rope.attention_factor, 1e-3, 1e3)) {
      return refuse(
          "rope scaling (yarn)",
          fmt::format("expected ordinary factors but found beta_fast {}, beta_slow {}, ext_factor {}, attn_factor {}, "
                      "log_multiplier {}",
                      rope.beta_fast, rope.beta_slow, rope.extrapolation, rope.attention_factor, rope.log_multiplier));
    }
  }
  if (rope.scaling == RopeScaling::llama3 &&
      (!in(rope.low_freq_factor, 1e-6, 1e6) || !in(rope.high_freq_factor, 1e-6, 1e6) ||
       rope.high_freq_factor <= rope.low_freq_factor)) {
    return refuse("rope scaling (llama3)",
                  fmt::format("expected low_freq_factor under high_freq_factor but found {} and {}",
                              rope.low_freq_factor, rope.high_freq_factor));
  }
  return Status::ok();
}

Result<ModelConfig> read_config(const ModelFile& file) {
  ModelConfig config;
  try {
    if (file.format() == Format::gguf) {
      TURBO_RETURN_IF_ERROR(read_gguf_keys(file, &config));
    } else {
      TURBO_RETURN_IF_ERROR(read_hf_keys(file, &config));
    }
    TURBO_RETURN_IF_ERROR(check_hyper_parameters(config, file.name()));
    TURBO_RETURN_IF_ERROR(bind_tensors(file, &config));
  } catch (const std::exception& failure) {
    return error(Code::internal, "{}: reading the model's configuration failed: {}", file.name(), failure.what());
  }
  return config;
}

}  // namespace turbo::model
