#include "engine/kv_setup.h"

#include <spdlog/spdlog.h>

#include <cstddef>
#include <span>

#include "base/abi_error.h"
#include "base/digest.h"
#include "engine/kv_check.h"

namespace turbo::engine {
namespace {

constexpr const char* kExact = "f16";
// Divergence of a layer's attention above which it is promoted; the layers next to input and output are judged harder.
constexpr double kLimit = 0.10, kBoundaryLimit = 0.05, kPromotedLimit = 0.5;

struct Side {
  loader::Component<turbo_kv_codec> codec;
  float bits = 16;
  bool packs = false;
};

bool can_center(const loader::Component<turbo_kv_codec>& codec) {
  return codec && codec.table->struct_size >= offsetof(turbo_kv_codec, set_center) + sizeof(void*) && codec.table->set_center;
}

class Setup {
 public:
  Setup(loader::Resolution& resolution, const kv::CodecPolicy& policy, const model::ModelConfig& config)
      : resolution_(resolution), policy_(policy), config_(config), k_of_(config.n_layers), v_of_(config.n_layers) {}

  Status open() {
    TURBO_RETURN_IF_ERROR(open_side(TURBO_KV_SIDE_K, config_.head_dim_k, k_));
    TURBO_RETURN_IF_ERROR(open_side(TURBO_KV_SIDE_V, config_.head_dim_v, v_));
    return check_spares();
  }

  // Layers promoted without being measured: those the policy counts, or, with the check off, as many as it would judge
  // harder.
  Status promote_boundary() {
    if (!k_.packs && !v_.packs) return Status::ok();
    const uint32_t n = policy_.boundary ? *policy_.boundary : measures() ? 0 : n_boundary();
    for (uint32_t layer = 0; layer < config_.n_layers; ++layer)
      if (is_boundary(layer, n)) TURBO_RETURN_IF_ERROR(promote(layer, policy_.promote_k, true, "next to the model's input or output"));
    return Status::ok();
  }

  bool centers() const { return policy_.center && k_.bits < 16 && can_center(k_.codec); }
  bool measures() const { return policy_.self_check && k_.packs && k_.bits < 16; }

  Status look(const model::WeightSet& weights, const text::Tokenizer* tokenizer) {
    if ((!centers() && !measures()) || resolution_.tier() != TURBO_TIER_CPU) return Status::ok();
    if (!resolution_.spare_codec(TURBO_KV_SIDE_K, kExact) || !resolution_.spare_codec(TURBO_KV_SIDE_V, kExact)) {
      notes_.push_back(fmt::format("keys are neither centered nor checked: no KV codec '{}' to look at them with", kExact));
      return Status::ok();
    }
    const std::vector<int32_t> tokens = observed_tokens(tokenizer, config_.vocab_size);
    TURBO_RETURN_IF_ERROR(use_everywhere(kExact));
    TURBO_ASSIGN(const model::BuildStep build_step, model::find_family(config_.architecture));
    Result<KvObservation> seen = observe_attention({resolution_.arch_pack().table, resolution_.arch_pack().self}, config_, weights, build_step, tokens);
    TURBO_RETURN_IF_ERROR(use_everywhere(""));
    TURBO_RETURN_IF_ERROR(seen.status());
    if (centers()) TURBO_RETURN_IF_ERROR(center(*seen));
    if (measures()) TURBO_RETURN_IF_ERROR(measure(*seen));
    return Status::ok();
  }

  Result<KvSetup> finish() {
    if (policy_.exact_prefill && (k_.packs || v_.packs)) {
      notes_.push_back("prefill: exact: results depend on engine.prefill_chunk, on hits of the prefix cache and on preemption");
      sum_.add(std::as_bytes(std::span("prefill exact")));
    }
    for (uint32_t layer = 0; layer < config_.n_layers; ++layer) {
      TURBO_RETURN_IF_ERROR(resolution_.use_codec(TURBO_KV_SIDE_K, layer, k_of_[layer]));
      TURBO_RETURN_IF_ERROR(resolution_.use_codec(TURBO_KV_SIDE_V, layer, v_of_[layer]));
      add_fingerprint(k_of_[layer].empty() ? k_.codec : resolution_.spare_codec(TURBO_KV_SIDE_K, k_of_[layer]), k_of_[layer]);
      add_fingerprint(v_of_[layer].empty() ? v_.codec : resolution_.spare_codec(TURBO_KV_SIDE_V, v_of_[layer]), v_of_[layer]);
    }
    return KvSetup{std::move(notes_), Sha256::hex(sum_.finish())};
  }

 private:
  void add_fingerprint(const loader::Component<turbo_kv_codec>& codec, const std::string& name) {
    const uint64_t told = codec.table->fingerprint(codec.self);
    sum_.add(std::as_bytes(std::span(name.c_str(), name.size() + 1))).add(std::as_bytes(std::span(&told, 1)));
  }

  // What a promotion may ask for is there, found now rather than by the first model that needs it.
  Status check_spares() const {
    const bool always = policy_.boundary ? *policy_.boundary > 0 : !measures(), found = measures() && k_.bits < 4;
    if (!(k_.packs || v_.packs) || !(always || found)) return Status::ok();
    TURBO_RETURN_IF_ERROR(find_spare(TURBO_KV_SIDE_K, policy_.promote_k).status());
    return v_.bits < 4 ? find_spare(TURBO_KV_SIDE_V, policy_.promote_v).status() : Status::ok();
  }

  Result<loader::Component<turbo_kv_codec>> find_spare(uint32_t which, const std::string& name) const {
    if (const loader::Component<turbo_kv_codec> codec = resolution_.spare_codec(which, name)) return codec;
    return error(Code::unsupported, "kv.options.promote_{}: no plugin provides KV codec '{}'", which == TURBO_KV_SIDE_K ? "k" : "v", name)
        .with_hint("install it, name another, or set kv.options.boundary=0 and kv.options.self_check=off");
  }

  Status open_side(uint32_t which, uint32_t head_dim, Side& side) {
    side.codec = resolution_.kv_codec(which);
    if (!side.codec) return Status(Code::internal, "no KV codec is resolved");
    TURBO_ASSIGN(const turbo_kv_layout layout, layout_of(side.codec, which, head_dim));
    side.bits = layout.bits_per_element;
    side.packs = !(layout.flags & TURBO_KV_OPEN_IS_PACKED);
    return Status::ok();
  }

  Result<turbo_kv_layout> layout_of(const loader::Component<turbo_kv_codec>& codec, uint32_t which, uint32_t head_dim) const {
    const turbo_kv_shape shape{sizeof shape, which, 0, config_.n_layers, config_.n_kv_heads, head_dim};
    turbo_kv_layout layout{};
    layout.struct_size = sizeof layout;
    AbiError failure;
    TURBO_RETURN_IF_ERROR(failure.check(codec.table->layout(codec.self, &shape, &layout, failure.out()), "KV codec"));
    return layout;
  }

  uint32_t n_boundary() const { return config_.n_layers <= 8 ? 1 : 2; }
  bool is_boundary(uint32_t layer, uint32_t n) const { return layer < n || layer + n >= config_.n_layers; }

  // K of the layer in `codec`, where that has more bits; V of a boundary layer in at least four.
  Status promote(uint32_t layer, const std::string& codec, bool boundary, const std::string& why) {
    std::string told;
    TURBO_RETURN_IF_ERROR(promote_side(TURBO_KV_SIDE_K, config_.head_dim_k, k_.bits, codec, k_of_[layer], told));
    if (boundary && v_.bits < 4)
      TURBO_RETURN_IF_ERROR(promote_side(TURBO_KV_SIDE_V, config_.head_dim_v, v_.bits, policy_.promote_v, v_of_[layer], told));
    if (!told.empty()) notes_.push_back(fmt::format("layer {}: {} ({})", layer, told, why));
    return Status::ok();
  }

  Status promote_side(uint32_t which, uint32_t head_dim, float bits, const std::string& name, std::string& chosen, std::string& told) {
    const char* side = which == TURBO_KV_SIDE_K ? "K" : "V";
    TURBO_ASSIGN(const loader::Component<turbo_kv_codec> codec, find_spare(which, name));
    TURBO_ASSIGN(const turbo_kv_layout layout, layout_of(codec, which, head_dim));
    if (layout.bits_per_element <= bits) return Status::ok();
    chosen = name;
    told += fmt::format("{}{} in {}", told.empty() ? "" : ", ", side, name);
    return Status::ok();
  }

  Status use_everywhere(const std::string& name) {
    for (uint32_t layer = 0; layer < config_.n_layers; ++layer)
      for (const uint32_t side : {TURBO_KV_SIDE_K, TURBO_KV_SIDE_V}) TURBO_RETURN_IF_ERROR(resolution_.use_codec(side, layer, name));
    return Status::ok();
  }

  // Every codec that K of a layer may end up in.
  Status center(const KvObservation& seen) {
    const std::vector<std::vector<float>> centers = key_centers(seen);
    for (const loader::Component<turbo_kv_codec>& codec :
         {k_.codec, resolution_.spare_codec(TURBO_KV_SIDE_K, policy_.promote_k), resolution_.spare_codec(TURBO_KV_SIDE_K, kExact)}) {
      if (!can_center(codec)) continue;
      for (uint32_t layer = 0; layer < config_.n_layers; ++layer) {
        const turbo_kv_shape shape{sizeof shape, TURBO_KV_SIDE_K, layer, config_.n_layers, config_.n_kv_heads, config_.head_dim_k};
        AbiError failure;
        TURBO_RETURN_IF_ERROR(failure.check(codec.table->set_center(codec.self, &shape, centers[layer].data(), failure.out()), "centering keys"));
      }
    }
    for (const std::vector<float>& layer : centers) sum_.add(std::as_bytes(std::span(layer)));
    return Status::ok();
  }

  Status measure(const KvObservation& seen) {
    const bool promotes = k_.bits < 4;
    const uint32_t n = policy_.boundary ? 0 : n_boundary();
    for (uint32_t layer = 0; layer < config_.n_layers; ++layer) {
      if (!k_of_[layer].empty()) continue;
      TURBO_ASSIGN(const double found, attention_divergence(k_.codec, seen, layer));
      const bool boundary = is_boundary(layer, n);
      spdlog::debug("KV cache: layer {}: attention over packed keys diverges by {:.4f}", layer, found);
      if (found <= (boundary ? kBoundaryLimit : kLimit)) continue;
      if (!promotes) {
        notes_.push_back(fmt::format("layer {}: attention over packed keys diverges by {:.2f}; kv.k: {} would keep it", layer, found, policy_.promote_k));
        continue;
      }
      std::string name = policy_.promote_k;
      if (const auto codec = resolution_.spare_codec(TURBO_KV_SIDE_K, name)) {
        TURBO_ASSIGN(const double still, attention_divergence(codec, seen, layer));
        if (still > kPromotedLimit) name = kExact;
      }
      TURBO_RETURN_IF_ERROR(promote(layer, name, boundary, fmt::format("attention over packed keys diverges by {:.2f}", found)));
    }
    return Status::ok();
  }

  loader::Resolution& resolution_;
  const kv::CodecPolicy& policy_;
  const model::ModelConfig& config_;
  Side k_, v_;
  std::vector<std::string> k_of_, v_of_;  // by layer: spare codec; empty: the side's own
  std::vector<std::string> notes_;
  Sha256 sum_;
};

}  // namespace

void ask_for_spare_codecs(loader::Request& request, const kv::CodecPolicy& policy) {
  const auto plain = [](const std::string& name) { return name == "f16" || name == "bf16" || name == "f32"; };
  if (plain(request.kv_k) && plain(request.kv_v)) return;
  request.spare_codecs[TURBO_KV_SIDE_K] = {policy.promote_k, kExact};
  request.spare_codecs[TURBO_KV_SIDE_V] = {policy.promote_v, kExact};
}

Result<KvSetup> set_up_codecs(loader::Resolution& resolution, const kv::CodecPolicy& policy, const model::ModelConfig& config) {
  Setup setup(resolution, policy, config);
  TURBO_RETURN_IF_ERROR(setup.open());
  TURBO_RETURN_IF_ERROR(setup.promote_boundary());
  return setup.finish();
}

Result<KvSetup> set_up_codecs(loader::Resolution& resolution, const kv::CodecPolicy& policy, const model::ModelConfig& config,
                              const model::WeightSet& weights, const text::Tokenizer* tokenizer) {
  Setup setup(resolution, policy, config);
  TURBO_RETURN_IF_ERROR(setup.open());
  TURBO_RETURN_IF_ERROR(setup.promote_boundary());
  TURBO_RETURN_IF_ERROR(setup.look(weights, tokenizer));
  return setup.finish();
}

}  // namespace turbo::engine
