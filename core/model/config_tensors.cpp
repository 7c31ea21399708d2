// The tensors of each architecture: names, shapes, and what a file has of them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "base/nearest.h"
#include "model/config_parts.h"
#include "model/files/utf8.h"

namespace turbo::model {
namespace {

constexpr const char* kIncomplete = "the file is incomplete or belongs to another model; convert or download it again";

Status check_tensor(const ModelFile& file, const Tensor& tensor, const ExpectedTensor& expected) {
  const auto refuse = [&](Code code, std::string_view want, std::string_view found) {
    return error(code, "{}: tensor '{}': expected {} but found {}", file.name(), printable(tensor.name), want, found)
        .with_hint(kIncomplete);
  };
  if (tensor.dims != expected.dims) {
    // A matrix with one row, or trailing dimensions of 1, has the same data.
    std::vector<uint64_t> plain = tensor.dims;
    while (plain.size() > expected.dims.size() && plain.back() == 1) plain.pop_back();
    if (plain != expected.dims) {
      return refuse(Code::corrupt_input, "shape " + shape_text(expected.dims), "shape " + shape_text(tensor.dims));
    }
  }
  const TypeInfo& info = tensor.type_info();
  if (info.kind == TypeKind::integer) return refuse(Code::corrupt_input, "a tensor of weights", info.name);
  if (!expected.matrix && tensor.type != type::f32 && tensor.type != type::f16 && tensor.type != type::bf16) {
    return refuse(Code::unsupported, "type f32, f16 or bf16", info.name);
  }
  return Status::ok();
}

/// Copied from other checkpoints and never used.
bool is_ignorable(const ModelFile& file, const ModelConfig& config, const Tensor& tensor) {
  if (file.format() != Format::safetensors) return false;
  return tensor.name.ends_with(".rotary_emb.inv_freq") || (config.tied_head && tensor.name == "output.weight");
}

Status read_rope_divisors(const ModelFile& file, ModelConfig* config) {
  const Tensor* tensor = file.find("rope_freqs.weight");
  if (!tensor) return Status::ok();
  const auto refuse = [&](const std::string& want, const std::string& found) {
    return error(Code::corrupt_input, "{}: tensor 'rope_freqs.weight': expected {} but found {}", file.name(), want,
                 found)
        .with_hint(kIncomplete);
  };
  if (tensor->type != type::f32) return refuse("type f32", std::string(type_name(tensor->type)));
  std::vector<float> divisors(config->rope.dims / 2);
  if (tensor->n_elements() != divisors.size()) {
    return refuse("shape " + shape_text(std::vector<uint64_t>{divisors.size()}), "shape " + shape_text(tensor->dims));
  }
  std::memcpy(divisors.data(), tensor->data, divisors.size() * sizeof(float));
  for (float divisor : divisors) {
    if (!(divisor > 1e-6f && divisor < 1e9f)) return refuse("divisors over 0", fmt::format("{}", divisor));
  }
  config->rope.divisors = std::move(divisors);
  return Status::ok();
}

/// Flags that follow from the first layer's tensors; the shape check then requires the same of every layer.
void detect_options(const ModelFile& file, ModelConfig* config) {
  const bool gguf = file.format() == Format::gguf;
  if (gguf) config->tied_head = !file.find("output.weight");
  config->qk_norm = config->architecture == "qwen3";
  config->qkv_bias =
      config->architecture == "qwen2" || (config->architecture == "llama" && file.find("blk.0.attn_q.bias") != nullptr);
  config->output_bias = config->architecture == "qwen2" && file.find("output.bias") != nullptr;
}

Status refuse_extra(const ModelFile& file, const ModelConfig& config, const std::vector<ExpectedTensor>& expected) {
  std::unordered_set<std::string_view> known;
  for (const ExpectedTensor& tensor : expected) known.insert(tensor.name);
  for (const Tensor& tensor : file.tensors()) {
    if (known.contains(tensor.name) || is_ignorable(file, config, tensor)) continue;
    const bool fused = tensor.name.ends_with(".attn_qkv.weight");
    return error(Code::unsupported,
                 "{}: tensor '{}': expected only tensors of the architecture {} with {} layers but found this one",
                 file.name(), printable(tensor.name), config.architecture, config.n_layers)
        .with_hint(fused ? "split the fused projection: convert the model to separate attn_q, attn_k and attn_v"
                         : "ignoring it would change the model's output, so turbo refuses; use a plain model of this "
                           "architecture");
  }
  return Status::ok();
}

}  // namespace

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& c) {
  const uint64_t d = c.n_embd, q = uint64_t(c.n_heads) * c.head_dim_k, k = uint64_t(c.n_kv_heads) * c.head_dim_k,
                 v = uint64_t(c.n_kv_heads) * c.head_dim_v, o = uint64_t(c.n_heads) * c.head_dim_v;
  std::vector<ExpectedTensor> list;
  const auto matrix = [&](std::string name, uint64_t in, uint64_t out) {
    list.push_back({std::move(name), {in, out}, true, true});
  };
  const auto vector = [&](std::string name, uint64_t n) { list.push_back({std::move(name), {n}, true, false}); };
  matrix("token_embd.weight", d, c.vocab_size);
  for (uint32_t i = 0; i < c.n_layers; ++i) {
    const std::string blk = fmt::format("blk.{}.", i);
    vector(blk + "attn_norm.weight", d);
    matrix(blk + "attn_q.weight", d, q);
    matrix(blk + "attn_k.weight", d, k);
    matrix(blk + "attn_v.weight", d, v);
    if (c.qkv_bias) {
      vector(blk + "attn_q.bias", q);
      vector(blk + "attn_k.bias", k);
      vector(blk + "attn_v.bias", v);
    }
    if (c.qk_norm) {
      vector(blk + "attn_q_norm.weight", c.head_dim_k);
      vector(blk + "attn_k_norm.weight", c.head_dim_k);
    }
    matrix(blk + "attn_output.weight", o, d);
    vector(blk + "ffn_norm.weight", d);
    matrix(blk + "ffn_gate.weight", d, c.n_ff);
    matrix(blk + "ffn_up.weight", d, c.n_ff);
    matrix(blk + "ffn_down.weight", c.n_ff, d);
  }
  vector("output_norm.weight", d);
  if (!c.tied_head) matrix("output.weight", d, c.vocab_size);
  if (c.output_bias) vector("output.bias", c.vocab_size);
  if (c.architecture == "llama") list.push_back({"rope_freqs.weight", {c.rope.dims / 2}, false, false});
  return list;
}

Status missing_tensor(const ModelFile& file, const std::string& name, std::span<const ExpectedTensor> expected,
                      const std::string& detail, const std::string& hint) {
  constexpr size_t most_compared = 4096;  // bounded work for hostile input
  std::unordered_set<std::string_view> placed;
  for (const ExpectedTensor& tensor : expected) placed.insert(tensor.name);
  std::vector<std::string> others;
  for (const Tensor& tensor : file.tensors())
    if (others.size() < most_compared && !placed.contains(tensor.name)) others.push_back(tensor.name);
  const std::string near = nearest_name(name, others);
  if (near.empty()) return error(Code::not_found, "{}: tensor '{}' is missing{}", file.name(), name, detail).with_hint(hint);
  return error(Code::not_found, "{}: tensor '{}' is missing{}; the nearest name in the file is '{}'", file.name(), name, detail,
               printable(near))
      .with_hint("the tensor is misnamed; convert the model again, or download it from its maker");
}

Status bind_tensors(const ModelFile& file, ModelConfig* config) {
  detect_options(file, config);
  // A layer count far over the file's must not make a long list first.
  if (file.tensors().size() / 9 < config->n_layers) {
    const std::string last = fmt::format("blk.{}.attn_norm.weight", config->n_layers - 1);
    if (!file.find(last)) {
      return error(Code::not_found, "{}: tensor '{}' is missing: the model says it has {} layers", file.name(), last,
                   config->n_layers)
          .with_hint(kIncomplete);
    }
  }
  const std::vector<ExpectedTensor> expected = expected_tensors(*config);
  for (const ExpectedTensor& want : expected) {
    const Tensor* tensor = file.find(want.name);
    if (tensor) {
      TURBO_RETURN_IF_ERROR(check_tensor(file, *tensor, want));
    } else if (want.required) {
      return missing_tensor(file, want.name, expected, ": expected shape " + shape_text(want.dims), kIncomplete);
    }
  }
  TURBO_RETURN_IF_ERROR(refuse_extra(file, *config, expected));
  if (config->architecture == "llama") TURBO_RETURN_IF_ERROR(read_rope_divisors(file, config));
  for (const Tensor& tensor : file.tensors()) {
    config->n_parameters += tensor.n_elements();
    config->bytes_by_type[tensor.type] += tensor.bytes;
  }
  return Status::ok();
}

}  // namespace turbo::model
