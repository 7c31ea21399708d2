#include "engine/kv_setup.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>

#include "base/abi_error.h"
#include "base/digest.h"
#include "engine/kv_known.h"

namespace turbo::engine {
namespace {

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
  // Keys are looked at in host memory only.
  bool measures() const { return policy_.self_check && k_.packs && k_.bits < 16 && resolution_.tier() == TURBO_TIER_CPU; }

  // Whether look() may promote layers beyond those of promote_boundary().
  bool may_promote() const {
    if (looked_ || !measures() || k_.bits >= 4 || !can_look() || all_promoted()) return false;
    const loader::Component<turbo_kv_codec> codec = resolution_.spare_codec(TURBO_KV_SIDE_K, policy_.promote_k);
    if (!codec) return false;
    const Result<turbo_kv_layout> layout = layout_of(codec, TURBO_KV_SIDE_K, config_.head_dim_k);
    return layout && layout->bits_per_element > k_.bits;
  }

  Status promote_rest() {
    const uint32_t n = policy_.boundary ? 0 : n_boundary();
    for (uint32_t layer = 0; layer < config_.n_layers; ++layer)
      if (k_of_[layer].empty()) TURBO_RETURN_IF_ERROR(promote(layer, policy_.promote_k, is_boundary(layer, n), "at most"));
    return Status::ok();
  }

  Status look(const KvLook& how) {
    looked_ = true;
    if (!policy_.center_file.empty() && !(centers() && can_look()))
      notes_.push_back("kv.options.center: the file is not used: these codecs are not centered on this tier");
    if (resolution_.tier() != TURBO_TIER_CPU && (centers() || (policy_.self_check && k_.packs && k_.bits < 16)))
      notes_.push_back("keys are neither centered nor checked on this tier");
    if ((!centers() && !measures()) || resolution_.tier() != TURBO_TIER_CPU) return Status::ok();
    if (!can_look()) {
      notes_.push_back(fmt::format("keys are neither centered nor checked: no KV codec '{}' to look at them with", kExactCodec));
      return Status::ok();
    }
    const auto begin = std::chrono::steady_clock::now();
    KnownKeys keys(resolution_, config_, how);
    TURBO_RETURN_IF_ERROR(keys.open(centers(), policy_.center_file));
    TURBO_ASSIGN(bool judged, judge(keys));
    // Keys are observed as they are: before the exact codec centers them too.
    if (!judged) TURBO_RETURN_IF_ERROR(keys.observe());
    if (centers()) TURBO_RETURN_IF_ERROR(center(keys));
    if (!judged) {
      TURBO_ASSIGN(judged, judge(keys));
    }
    for (const Verdict& verdict : verdicts_) TURBO_RETURN_IF_ERROR(apply(verdict));
    tell(keys, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
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
    KvSetup made;
    made.may_promote = may_promote();
    made.promote_k = policy_.promote_k;
    made.notes = std::move(notes_);
    made.fingerprint = Sha256::hex(sum_.finish());
    return made;
  }

 private:
  bool can_look() const {
    return resolution_.tier() == TURBO_TIER_CPU && resolution_.spare_codec(TURBO_KV_SIDE_K, kExactCodec) && resolution_.spare_codec(TURBO_KV_SIDE_V, kExactCodec);
  }
  bool all_promoted() const {
    return std::none_of(k_of_.begin(), k_of_.end(), [](const std::string& name) { return name.empty(); });
  }

  void add_fingerprint(const loader::Component<turbo_kv_codec>& codec, const std::string& name) {
    const uint64_t told = codec.table->fingerprint(codec.self);
    sum_.add(std::as_bytes(std::span(name.c_str(), name.size() + 1))).add(std::as_bytes(std::span(&told, 1)));
  }

  // What a promotion may ask for is there, found now rather than by the first model that needs it.
  Status check_spares() const {
    const bool always = policy_.boundary ? *policy_.boundary > 0 : !measures(), found = measures() && k_.bits < 4;
    if (!(k_.packs || v_.packs) || !(always || found || policy_.names_promotions)) return Status::ok();
    TURBO_RETURN_IF_ERROR(check_wider(TURBO_KV_SIDE_K, config_.head_dim_k, k_, policy_.promote_k));
    return v_.bits < 4 ? check_wider(TURBO_KV_SIDE_V, config_.head_dim_v, v_, policy_.promote_v) : Status::ok();
  }

  Status check_wider(uint32_t which, uint32_t head_dim, const Side& side, const std::string& name) const {
    TURBO_ASSIGN(const loader::Component<turbo_kv_codec> codec, find_spare(which, name));
    TURBO_ASSIGN(const turbo_kv_layout layout, layout_of(codec, which, head_dim));
    // One-form codecs of many bits are no loss beside a packed other side.
    if (!side.packs || layout.bits_per_element > side.bits) return Status::ok();
    return error(Code::invalid_argument, "kv.options.promote_{}: '{}' has {:.4g} bits an element, no more than the {:.4g} that it is to be promoted from",
                 which == TURBO_KV_SIDE_K ? "k" : "v", name, layout.bits_per_element, side.bits)
        .with_hint("name a codec of more bits, such as q8");
  }

  Result<loader::Component<turbo_kv_codec>> find_spare(uint32_t which, const std::string& name) const {
    if (const loader::Component<turbo_kv_codec> codec = resolution_.spare_codec(which, name)) return codec;
    return error(Code::invalid_argument, "kv.options.promote_{}: no plugin provides KV codec '{}'", which == TURBO_KV_SIDE_K ? "k" : "v", name)
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

  // Every codec that K of a layer may end up in.
  Status center(const KnownKeys& keys) {
    const std::vector<std::vector<float>> centers = to_floats(keys.centers(), keys.shape());
    for (const loader::Component<turbo_kv_codec>& codec :
         {k_.codec, resolution_.spare_codec(TURBO_KV_SIDE_K, policy_.promote_k), resolution_.spare_codec(TURBO_KV_SIDE_K, kExactCodec)}) {
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

  // A layer that diverges by more than it may.
  struct Verdict {
    uint32_t layer;
    bool boundary;
    double found;
    std::string codec;  // to promote K to; empty: only told
  };

  // False: something is neither remembered nor can be measured yet.
  Result<bool> judge(KnownKeys& keys) {
    verdicts_.clear();
    if (centers() && !keys.has_centers()) return false;
    const uint32_t n = policy_.boundary ? 0 : n_boundary();
    for (uint32_t layer = 0; measures() && layer < config_.n_layers; ++layer) {
      if (!k_of_[layer].empty()) continue;
      TURBO_ASSIGN(const std::optional<double> found, keys.divergence("", k_.codec, layer));
      if (!found) return false;
      spdlog::debug("KV cache: layer {}: attention over packed keys diverges by {:.4f}", layer, *found);
      Verdict verdict{layer, is_boundary(layer, n), *found, ""};
      if (*found <= (verdict.boundary ? kBoundaryLimit : kLimit)) continue;
      if (k_.bits < 4) {
        verdict.codec = policy_.promote_k;
        if (const auto codec = resolution_.spare_codec(TURBO_KV_SIDE_K, verdict.codec)) {
          TURBO_ASSIGN(const std::optional<double> still, keys.divergence(verdict.codec, codec, layer));
          if (!still) return false;
          if (*still > kPromotedLimit) verdict.codec = kExactCodec;
        }
      }
      verdicts_.push_back(verdict);
    }
    return true;
  }

  Status apply(const Verdict& verdict) {
    if (!verdict.codec.empty())
      return promote(verdict.layer, verdict.codec, verdict.boundary, fmt::format("attention over packed keys diverges by {:.2f}", verdict.found));
    notes_.push_back(fmt::format("layer {}: attention over packed keys diverges by {:.2f}; kv.k: {} would keep it", verdict.layer, verdict.found, policy_.promote_k));
    return Status::ok();
  }

  void tell(const KnownKeys& keys, double seconds) const {
    if (!keys.observed()) {
      const std::filesystem::path path = policy_.center_file.empty() ? keys.path() : policy_.center_file;
      spdlog::info("KV cache: keys: read from {} in {:.2f} s", path.string(), seconds);
      return;
    }
    const std::filesystem::path kept = keys.keep();
    spdlog::info("KV cache: keys: looked at in {:.2f} s{}", seconds, kept.empty() ? "; nothing is kept of it" : "; kept in " + kept.string());
  }

  loader::Resolution& resolution_;
  const kv::CodecPolicy& policy_;
  const model::ModelConfig& config_;
  Side k_, v_;
  std::vector<std::string> k_of_, v_of_;  // by layer: spare codec; empty: the side's own
  std::vector<Verdict> verdicts_;
  std::vector<std::string> notes_;
  bool looked_ = false;
  Sha256 sum_;
};

}  // namespace

void ask_for_spare_codecs(loader::Request& request, const kv::CodecPolicy& policy) {
  const auto plain = [](const std::string& name) { return name == "f16" || name == "bf16" || name == "f32"; };
  if (plain(request.kv_k) && plain(request.kv_v)) return;
  request.spare_codecs[TURBO_KV_SIDE_K] = {policy.promote_k, kExactCodec};
  request.spare_codecs[TURBO_KV_SIDE_V] = {policy.promote_v, kExactCodec};
}

Result<KvSetup> set_up_codecs(loader::Resolution& resolution, const kv::CodecPolicy& policy, const model::ModelConfig& config) {
  Setup setup(resolution, policy, config);
  TURBO_RETURN_IF_ERROR(setup.open());
  TURBO_RETURN_IF_ERROR(setup.promote_boundary());
  return setup.finish();
}

Result<KvSetup> promote_every_layer(loader::Resolution& resolution, const kv::CodecPolicy& policy, const model::ModelConfig& config) {
  Setup setup(resolution, policy, config);
  TURBO_RETURN_IF_ERROR(setup.open());
  TURBO_RETURN_IF_ERROR(setup.promote_boundary());
  TURBO_RETURN_IF_ERROR(setup.promote_rest());
  return setup.finish();
}

Result<KvSetup> set_up_codecs(loader::Resolution& resolution, const kv::CodecPolicy& policy, const model::ModelConfig& config,
                              const KvLook& look) {
  Setup setup(resolution, policy, config);
  TURBO_RETURN_IF_ERROR(setup.open());
  TURBO_RETURN_IF_ERROR(setup.promote_boundary());
  TURBO_RETURN_IF_ERROR(setup.look(look));
  return setup.finish();
}

}  // namespace turbo::engine
