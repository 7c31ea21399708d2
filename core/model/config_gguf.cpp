// ModelConfig from GGUF metadata.
#include <cmath>

#include "model/config_parts.h"
#include "model/files/utf8.h"

namespace turbo::model {
namespace {

class GgufKeys {
 public:
  GgufKeys(const ModelFile& file, ModelConfig* config) : file_(file), meta_(file.metadata()), config_(*config) {}

  Status read() {
    TURBO_ASSIGN(config_.architecture, meta_.get_string("general.architecture"));
    bool known = false;
    for (const std::string& name : supported_architectures()) known |= name == config_.architecture;
    if (!known) return unknown_architecture(file_.name() + ": key 'general.architecture'", config_.architecture);
    if (const std::string* name = meta_.find_string("general.name")) config_.name = *name;
    TURBO_RETURN_IF_ERROR(read_sizes());
    TURBO_RETURN_IF_ERROR(read_heads());
    TURBO_RETURN_IF_ERROR(refuse_unsupported());
    TURBO_RETURN_IF_ERROR(read_rope());
    TURBO_RETURN_IF_ERROR(read_vocabulary());
    return read_sampling();
  }

 private:
  std::string key(std::string_view name) const { return config_.architecture + "." + std::string(name); }

  Status refuse(std::string_view key, std::string_view why, Code code = Code::corrupt_input) const {
    return error(code, "{}: key '{}': {}", meta_.source(), key, why)
        .with_hint(code == Code::unsupported
                       ? "use a plain model of this architecture"
                       : "the file was written by a faulty converter; convert or download it again");
  }

  /// A count that must be there and at least 1; the upper limits come later, for all formats alike.
  Status read_count(std::string_view name, uint32_t* value) const {
    TURBO_ASSIGN(*value, meta_.get_u32(key(name)));
    return *value > 0 ? Status::ok() : refuse(key(name), "expected a number over 0 but found 0");
  }

  /// A number, or an array with the same number for every layer.
  Status read_layer_count(std::string_view name, uint32_t* value) const {
    const Value* found = meta_.find(key(name));
    if (!found || found->type != ValueType::array) return read_count(name, value);
    TURBO_ASSIGN(const auto per_layer, meta_.get_unsigneds(key(name)));
    if (per_layer.size() != config_.n_layers) {
      return refuse(key(name), fmt::format("expected {} elements, one per layer, but found {}", config_.n_layers,
                                           per_layer.size()));
    }
    for (uint64_t element : per_layer) {
      if (element != per_layer[0]) {
        return refuse(key(name), "expected the same value for every layer", Code::unsupported);
      }
    }
    if (per_layer[0] == 0 || per_layer[0] > UINT32_MAX) {
      return refuse(key(name), fmt::format("expected a number over 0 but found {}", per_layer[0]));
    }
    *value = uint32_t(per_layer[0]);
    return Status::ok();
  }

  Status read_sizes() {
    TURBO_RETURN_IF_ERROR(read_count("block_count", &config_.n_layers));
    TURBO_RETURN_IF_ERROR(read_count("context_length", &config_.context_length));
    TURBO_RETURN_IF_ERROR(read_count("embedding_length", &config_.n_embd));
    TURBO_RETURN_IF_ERROR(read_layer_count("feed_forward_length", &config_.n_ff));
    TURBO_ASSIGN(config_.norm_eps, meta_.get_f32(key("attention.layer_norm_rms_epsilon")));
    return Status::ok();
  }

  Status read_heads() {
    TURBO_RETURN_IF_ERROR(read_layer_count("attention.head_count", &config_.n_heads));
    config_.n_kv_heads = config_.n_heads;
    if (meta_.contains(key("attention.head_count_kv"))) {
      TURBO_RETURN_IF_ERROR(read_layer_count("attention.head_count_kv", &config_.n_kv_heads));
    }
    TURBO_ASSIGN(const auto key_length, meta_.optional_u32(key("attention.key_length")));
    TURBO_ASSIGN(const auto value_length, meta_.optional_u32(key("attention.value_length")));
    if ((!key_length || !value_length) && config_.n_embd % config_.n_heads != 0) {
      return refuse(
          key("attention.head_count"),
          fmt::format("expected a divisor of the embedding length {} but found {}", config_.n_embd, config_.n_heads));
    }
    config_.head_dim_k = key_length.value_or(config_.n_embd / config_.n_heads);
    config_.head_dim_v = value_length.value_or(config_.n_embd / config_.n_heads);
    return Status::ok();
  }

  Status refuse_unsupported() const {
    for (const char* name : {"attention.sliding_window", "expert_count"}) {
      TURBO_ASSIGN(const auto value, meta_.optional_unsigned(key(name)));
      if (value.value_or(0) != 0) {
        return refuse(key(name),
                      fmt::format("expected none but found {}: turbo does not run this kind of {} model", *value,
                                  config_.architecture),
                      Code::unsupported);
      }
    }
    return Status::ok();
  }

  Status read_float(std::string_view name, double* value) const {
    TURBO_ASSIGN(const auto found, meta_.optional_f32(key(name)));
    if (found) *value = *found;
    return Status::ok();
  }

  Status read_rope() {
    RopeConfig& rope = config_.rope;
    rope.style = config_.architecture == "llama" ? RopeStyle::interleaved : RopeStyle::halves;
    TURBO_ASSIGN(const auto dims, meta_.optional_u32(key("rope.dimension_count")));
    rope.dims = dims.value_or(config_.head_dim_k);
    TURBO_ASSIGN(const auto base, meta_.optional_f32(key("rope.freq_base")));
    rope.base = base.value_or(10000.0f);

    double factor = 0;
    TURBO_RETURN_IF_ERROR(read_float("rope.scale_linear", &factor));  // older name
    TURBO_RETURN_IF_ERROR(read_float("rope.scaling.factor", &factor));
    rope.factor = factor == 0 ? 1 : factor;
    TURBO_ASSIGN(const auto scaling, meta_.optional_string(key("rope.scaling.type")));
    const std::string kind = scaling.value_or("linear");
    if (kind == "none") {
      rope.factor = 1;
    } else if (kind == "linear") {
      rope.scaling = rope.factor == 1 ? RopeScaling::none : RopeScaling::linear;
    } else if (kind == "yarn") {
      rope.scaling = RopeScaling::yarn;
      return read_yarn();
    } else {
      return refuse(key("rope.scaling.type"),
                    fmt::format("expected none, linear or yarn but found '{}'", printable(kind)), Code::unsupported);
    }
    return Status::ok();
  }

  Status read_yarn() {
    RopeConfig& rope = config_.rope;
    TURBO_ASSIGN(const auto original, meta_.optional_u32(key("rope.scaling.original_context_length")));
    rope.original_context = original.value_or(config_.context_length);
    double attention = 1, yarn_attention = 1;
    TURBO_RETURN_IF_ERROR(read_float("rope.scaling.attn_factor", &attention));
    TURBO_RETURN_IF_ERROR(read_float("rope.scaling.yarn_attn_factor", &yarn_attention));
    rope.attention_factor = attention * yarn_attention;
    TURBO_RETURN_IF_ERROR(read_float("rope.scaling.yarn_ext_factor", &rope.extrapolation));
    TURBO_RETURN_IF_ERROR(read_float("rope.scaling.yarn_beta_fast", &rope.beta_fast));
    TURBO_RETURN_IF_ERROR(read_float("rope.scaling.yarn_beta_slow", &rope.beta_slow));
    return read_float("rope.scaling.yarn_log_multiplier", &rope.log_multiplier);
  }

  /// Rows of the embedding; the token list and A.vocab_size must agree with them.
  Status read_vocabulary() {
    const Tensor* embedding = file_.find("token_embd.weight");
    if (!embedding)
      return missing_tensor(file_, "token_embd.weight", {}, "", "the file holds no model weights; give the model itself");
    if (embedding->dims.size() != 2 || embedding->dims[1] > UINT32_MAX)
      return error(Code::corrupt_input, "{}: tensor 'token_embd.weight': expected a matrix but found shape {}", file_.name(),
                   shape_text(embedding->dims))
          .with_hint("the file is damaged or belongs to another model; convert or download it again");
    const uint64_t rows = embedding->dims[1];
    config_.vocab_size = uint32_t(rows);
    TURBO_ASSIGN(const auto declared, meta_.optional_u32(key("vocab_size")));
    if (declared && *declared != rows) {
      return refuse(key("vocab_size"),
                    fmt::format("expected {}, the rows of token_embd.weight, but found {}", rows, *declared));
    }
    for (const char* name : {"tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.scores"}) {
      const Value* value = meta_.find(name);
      if (!value) continue;
      uint64_t size = 0;
      if (const auto* strings = std::get_if<StringArray>(&value->data))
        size = strings->size();
      else if (const auto* numbers = std::get_if<NumberArray>(&value->data))
        size = numbers->size();
      else
        return refuse(name, fmt::format("expected an array but found {}", value->type_text()));
      if (size != rows) {
        return refuse(name,
                      fmt::format("expected {} elements, the rows of token_embd.weight, but found {}", rows, size));
      }
    }
    return read_special_ids();
  }

  Status read_special_ids() {
    for (const char* name : {"bos", "eos", "eot", "eom", "padding", "unknown", "seperator", "separator", "mask"}) {
      const std::string full = fmt::format("tokenizer.ggml.{}_token_id", name);
      TURBO_ASSIGN(const auto id, meta_.optional_unsigned(full));
      if (!id) continue;
      if (*id >= config_.vocab_size) {
        return refuse(full, fmt::format("expected a token id under {} but found {}", config_.vocab_size, *id));
      }
      if (std::string_view(name) == "bos") config_.bos_id = uint32_t(*id);
      if (std::string_view(name) == "eos") config_.eos_ids = {uint32_t(*id)};
    }
    return Status::ok();
  }

  Status read_sampling() {
    const auto read = [&](const char* name, double low, double high, std::optional<float>* into) -> Status {
      const std::string full = fmt::format("general.sampling.{}", name);
      TURBO_ASSIGN(const auto value, meta_.optional_f32(full));
      if (value && !(*value >= low && *value <= high)) {
        return refuse(full, fmt::format("expected a number from {} to {} but found {}", low, high, *value));
      }
      *into = value;
      return Status::ok();
    };
    TURBO_RETURN_IF_ERROR(read("temp", 0, 100, &config_.sampling.temperature));
    TURBO_RETURN_IF_ERROR(read("top_p", 0, 1, &config_.sampling.top_p));
    TURBO_RETURN_IF_ERROR(read("min_p", 0, 1, &config_.sampling.min_p));
    TURBO_RETURN_IF_ERROR(read("penalty_repeat", 0, 100, &config_.sampling.repeat_penalty));
    TURBO_ASSIGN(const auto top_k, meta_.optional_unsigned("general.sampling.top_k"));
    if (top_k && *top_k > UINT32_MAX) return refuse("general.sampling.top_k", "expected a 32-bit number");
    if (top_k) config_.sampling.top_k = uint32_t(*top_k);
    return Status::ok();
  }

  const ModelFile& file_;
  const Metadata& meta_;
  ModelConfig& config_;
};

}  // namespace

Status read_gguf_keys(const ModelFile& file, ModelConfig* config) { return GgufKeys(file, config).read(); }

}  // namespace turbo::model
