// ModelConfig from a Hugging Face config.json (spellings of transformers 4 and 5).
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/config_parts.h"
#include "model/files/strict_json.h"
#include "model/files/utf8.h"

namespace turbo::model {
namespace {

using nlohmann::json;

class HfKeys {
 public:
  HfKeys(const ModelFile& file, const json& root, ModelConfig* config)
      : file_(file), root_(root), config_(*config), where_(file.name() + ": config.json") {}

  Status read() {
    TURBO_RETURN_IF_ERROR(read_text(root_, "model_type", &config_.architecture));
    bool known = false;
    for (const std::string& name : supported_architectures()) known |= name == config_.architecture;
    if (!known) return unknown_architecture(where_ + ": key 'model_type'", config_.architecture);
    config_.name = file_.name();
    TURBO_RETURN_IF_ERROR(read_sizes());
    TURBO_RETURN_IF_ERROR(refuse_unsupported());
    TURBO_RETURN_IF_ERROR(read_rope());
    return read_special_ids();
  }

 private:
  Status refuse(std::string_view key, std::string_view want, const json& found, Code code = Code::corrupt_input) const {
    std::string shown = found.is_structured() ? std::string(found.type_name())
                                              : found.dump(-1, ' ', false, json::error_handler_t::replace);
    return error(code, "{}: key '{}': expected {} but found {}", where_, key, want, printable(shown))
        .with_hint(code == Code::unsupported ? "use a plain model of this architecture"
                                             : "config.json is damaged or belongs to another model; download it again");
  }

  /// Null when the key is absent or null.
  static const json* get(const json& object, std::string_view key) {
    const auto at = object.find(key);
    return at == object.end() || at->is_null() ? nullptr : &*at;
  }

  Status missing(std::string_view key) const {
    return error(Code::not_found, "{}: key '{}' is missing", where_, key)
        .with_hint("config.json is incomplete or belongs to another model; download it again");
  }

  Status read_text(const json& object, const char* key, std::string* value) const {
    const json* found = get(object, key);
    if (!found) return missing(key);
    if (!found->is_string()) return refuse(key, "a string", *found);
    *value = found->get<std::string>();
    return Status::ok();
  }

  /// An integer from 1 to 2^32 - 1. Absent: leaves the value alone.
  Status read_count(const char* key, uint32_t* value, const json* object = nullptr) const {
    const json* found = get(object ? *object : root_, key);
    if (!found) return Status::ok();
    if (!found->is_number_unsigned()) return refuse(key, "a whole number over 0", *found);
    const uint64_t number = found->get<uint64_t>();
    if (number == 0 || number > UINT32_MAX) return refuse(key, "a whole number over 0 of 32 bits", *found);
    *value = uint32_t(number);
    return Status::ok();
  }
  Status require_count(const char* key, uint32_t* value) const {
    return get(root_, key) ? read_count(key, value) : missing(key);
  }

  Status read_number(const json& object, const char* key, double* value) const {
    const json* found = get(object, key);
    if (!found) return Status::ok();
    if (!found->is_number()) return refuse(key, "a number", *found);
    *value = found->get<double>();
    return std::isfinite(*value) ? Status::ok() : refuse(key, "a finite number", *found);
  }

  Status read_flag(const json& object, const char* key, bool* value) const {
    const json* found = get(object, key);
    if (!found) return Status::ok();
    if (!found->is_boolean()) return refuse(key, "true or false", *found);
    *value = found->get<bool>();
    return Status::ok();
  }

  Status read_sizes() {
    ModelConfig& c = config_;
    TURBO_RETURN_IF_ERROR(require_count("num_hidden_layers", &c.n_layers));
    TURBO_RETURN_IF_ERROR(require_count("hidden_size", &c.n_embd));
    TURBO_RETURN_IF_ERROR(require_count("intermediate_size", &c.n_ff));
    TURBO_RETURN_IF_ERROR(require_count("num_attention_heads", &c.n_heads));
    TURBO_RETURN_IF_ERROR(require_count("max_position_embeddings", &c.context_length));
    TURBO_RETURN_IF_ERROR(require_count("vocab_size", &c.vocab_size));
    c.n_kv_heads = c.n_heads;
    TURBO_RETURN_IF_ERROR(read_count("num_key_value_heads", &c.n_kv_heads));
    if (get(root_, "head_dim")) {
      TURBO_RETURN_IF_ERROR(read_count("head_dim", &c.head_dim_k));
    } else if (c.architecture == "qwen3") {
      c.head_dim_k = 128;  // the default of this architecture, whatever the width
    } else if (c.n_embd % c.n_heads != 0) {
      return refuse("num_attention_heads", fmt::format("a divisor of the hidden size {}", c.n_embd),
                    root_["num_attention_heads"]);
    } else {
      c.head_dim_k = c.n_embd / c.n_heads;
    }
    c.head_dim_v = c.head_dim_k;
    double eps = 1e-6;
    TURBO_RETURN_IF_ERROR(read_number(root_, "rms_norm_eps", &eps));
    c.norm_eps = float(eps);
    return read_flag(root_, "tie_word_embeddings", &c.tied_head);
  }

  Status refuse_unsupported() const {
    if (const json* act = get(root_, "hidden_act"); act && *act != "silu") {
      return refuse("hidden_act", "\"silu\"", *act, Code::unsupported);
    }
    if (const json* quantized = get(root_, "quantization_config")) {
      return refuse("quantization_config", "plain floating-point weights", *quantized, Code::unsupported);
    }
    bool window = false;
    TURBO_RETURN_IF_ERROR(read_flag(root_, "use_sliding_window", &window));
    if (window) return refuse("use_sliding_window", "false", true, Code::unsupported);
    if (const json* layers = get(root_, "layer_types")) {
      if (!layers->is_array() || layers->size() != config_.n_layers) {
        return error(Code::corrupt_input, "{}: key 'layer_types': expected {} elements, one per layer, but found {}",
                     where_, config_.n_layers, layers->is_array() ? layers->size() : 0);
      }
      for (const json& layer : *layers) {
        if (layer != "full_attention") return refuse("layer_types", "\"full_attention\"", layer, Code::unsupported);
      }
    }
    return Status::ok();
  }

  Status read_rope() {
    RopeConfig& rope = config_.rope;
    rope.style = RopeStyle::halves;
    // transformers 5 keeps everything in rope_parameters; 4 has rope_theta beside rope_scaling.
    const json none = json::object();
    const json* scaling = get(root_, "rope_parameters");
    const char* name = scaling ? "rope_parameters" : "rope_scaling";
    if (!scaling) scaling = get(root_, "rope_scaling");
    if (!scaling) scaling = &none;
    if (!scaling->is_object()) return refuse(name, "an object", *scaling);
    for (const auto& [key, value] : scaling->items()) {
      if (value.is_object()) return refuse(name, "one set of parameters for all layers", value, Code::unsupported);
    }
    double theta = 10000;
    TURBO_RETURN_IF_ERROR(read_number(root_, "rope_theta", &theta));
    TURBO_RETURN_IF_ERROR(read_number(*scaling, "rope_theta", &theta));
    rope.base = float(theta);

    double part = 1;
    TURBO_RETURN_IF_ERROR(read_number(root_, "partial_rotary_factor", &part));
    TURBO_RETURN_IF_ERROR(read_number(*scaling, "partial_rotary_factor", &part));
    if (!(part > 0 && part <= 1)) return refuse("partial_rotary_factor", "a number over 0 and up to 1", part);
    rope.dims = uint32_t(config_.head_dim_k * part);
    return read_scaling(*scaling);
  }

  Status read_scaling(const json& scaling) {
    RopeConfig& rope = config_.rope;
    std::string kind = "default";
    for (const char* key : {"type", "rope_type"}) {
      if (get(scaling, key)) TURBO_RETURN_IF_ERROR(read_text(scaling, key, &kind));
    }
    if (get(scaling, "mrope_section"))
      return refuse("mrope_section", "text-only rotary embedding", scaling, Code::unsupported);
    if (kind == "default") return Status::ok();
    if (kind != "linear" && kind != "yarn" && kind != "llama3") {
      return refuse("rope_type", "default, linear, yarn or llama3", kind, Code::unsupported);
    }
    if (!get(scaling, "factor")) return missing("rope scaling factor");
    TURBO_RETURN_IF_ERROR(read_number(scaling, "factor", &rope.factor));
    if (kind == "linear") {
      rope.scaling = RopeScaling::linear;
      return Status::ok();
    }
    rope.original_context = config_.context_length;
    TURBO_RETURN_IF_ERROR(read_count("original_max_position_embeddings", &rope.original_context));
    TURBO_RETURN_IF_ERROR(read_count("original_max_position_embeddings", &rope.original_context, &scaling));
    if (kind == "llama3") {
      rope.scaling = RopeScaling::llama3;
      if (!get(scaling, "low_freq_factor")) return missing("low_freq_factor");
      if (!get(scaling, "high_freq_factor")) return missing("high_freq_factor");
      TURBO_RETURN_IF_ERROR(read_number(scaling, "low_freq_factor", &rope.low_freq_factor));
      return read_number(scaling, "high_freq_factor", &rope.high_freq_factor);
    }
    return read_yarn(scaling);
  }

  Status read_yarn(const json& scaling) {
    RopeConfig& rope = config_.rope;
    rope.scaling = RopeScaling::yarn;
    TURBO_RETURN_IF_ERROR(read_number(scaling, "beta_fast", &rope.beta_fast));
    TURBO_RETURN_IF_ERROR(read_number(scaling, "beta_slow", &rope.beta_slow));
    TURBO_RETURN_IF_ERROR(read_flag(scaling, "truncate", &rope.truncate_range));
    const double usual = rope.factor > 1 ? 1 + 0.1 * std::log(rope.factor) : 1;
    double mscale = 0, mscale_all = 0;
    TURBO_RETURN_IF_ERROR(read_number(scaling, "mscale", &mscale));
    TURBO_RETURN_IF_ERROR(read_number(scaling, "mscale_all_dim", &mscale_all));
    // attention_factor is the whole magnitude, where magnitude() multiplies by the usual one itself.
    double whole = usual;
    if (mscale != 0 && mscale_all != 0) {
      const auto scaled = [&](double m) { return rope.factor > 1 ? 1 + 0.1 * m * std::log(rope.factor) : 1; };
      whole = scaled(mscale) / scaled(mscale_all);
    }
    TURBO_RETURN_IF_ERROR(read_number(scaling, "attention_factor", &whole));
    rope.attention_factor = whole / usual;
    return Status::ok();
  }

  Status read_id(const char* key, const json& value, uint32_t* id) const {
    if (!value.is_number_unsigned() || value.get<uint64_t>() >= config_.vocab_size) {
      return refuse(key, fmt::format("a token id under {}", config_.vocab_size), value);
    }
    *id = uint32_t(value.get<uint64_t>());
    return Status::ok();
  }

  Status read_special_ids() {
    uint32_t id = 0;
    if (const json* bos = get(root_, "bos_token_id"); bos && !bos->is_array()) {
      TURBO_RETURN_IF_ERROR(read_id("bos_token_id", *bos, &id));
      config_.bos_id = id;
    }
    const json* eos = get(root_, "eos_token_id");
    if (!eos) return Status::ok();
    const json list = eos->is_array() ? *eos : json::array({*eos});
    if (list.size() > 64) return refuse("eos_token_id", "at most 64 token ids", *eos);
    for (const json& value : list) {
      TURBO_RETURN_IF_ERROR(read_id("eos_token_id", value, &id));
      config_.eos_ids.push_back(id);
    }
    return Status::ok();
  }

  const ModelFile& file_;
  const json& root_;
  ModelConfig& config_;
  const std::string where_;
};

}  // namespace

Status read_hf_keys(const ModelFile& file, ModelConfig* config) {
  if (file.config_json().empty()) {
    return error(Code::not_found, "{}: config.json is missing beside the safetensors file", file.name())
        .with_hint("give the folder that holds config.json and the safetensors files");
  }
  TURBO_ASSIGN(const json root, parse_strict_json(file.config_json(), file.name() + ": config.json"));
  return HfKeys(file, root, config).read();
}

}  // namespace turbo::model
