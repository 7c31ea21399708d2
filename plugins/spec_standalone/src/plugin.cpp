// Two drafters that are whole models: `standalone` reads one from its own file, `self_spec` runs the first layers of the
// target. What they do is the same (model_drafter.h).
#include <optional>

#include "model_drafter.h"

namespace turbo::spec_standalone {
namespace {

constexpr const char* kStandaloneOptions = R"({
  "model": {"type": "string", "default": "", "doc": "Model file or folder (drafter.model)."},
  "steps": {"type": "int", "default": 3, "min": 1, "max": 63, "doc": "Runs of the draft model for a draft: its depth."},
  "topk": {"type": "int", "default": 1, "min": 1, "max": 64, "doc": "Branches kept at each depth; 1 drafts a chain."},
  "token_map": {"type": "string", "default": "", "doc": "File of the token ids that may be drafted (drafter.token_map); empty: all."}
})";

constexpr const char* kSelfOptions = R"({
  "layers": {"type": "int", "default": 0, "min": 0, "max": 1023, "doc": "First layers of the target that draft; 0: a third of them."},
  "steps": {"type": "int", "default": 3, "min": 1, "max": 63, "doc": "Runs of those layers for a draft: its depth."},
  "topk": {"type": "int", "default": 1, "min": 1, "max": 64, "doc": "Branches kept at each depth; 1 drafts a chain."},
  "token_map": {"type": "string", "default": "", "doc": "File of the token ids that may be drafted (drafter.token_map); empty: all."}
})";

DraftShape shape_of(const Host& host) {
  return {static_cast<uint32_t>(host.option("steps", int64_t{3})), static_cast<uint32_t>(host.option("topk", int64_t{1}))};
}

template <typename T>
class Component : public Drafter<T> {
 public:
  void needs(turbo_drafter_needs& needs) override { drafter_->needs(needs); }
  void open(uint32_t sequence) override { drafter_->open(sequence); }
  void close(uint32_t sequence) override { drafter_->close(sequence); }
  void observe(uint32_t sequence, const Observation& observation) override { drafter_->observe(sequence, observation); }
  bool poll(Proposals proposals) override {
    drafter_->propose(proposals);
    return true;
  }

 protected:
  std::optional<ModelDrafter> drafter_;
};

class Standalone : public Component<Standalone> {
 public:
  explicit Standalone(const Host& host) {
    const std::string path = host.option("model", std::string());
    if (path.empty()) throw Failure(TURBO_INVALID_ARGUMENT, "standalone: no draft model is named", "set drafter.model");
    drafter_.emplace(host, shape_of(host), path, 0, host.option("token_map", std::string()));
  }
};

class SelfSpec : public Component<SelfSpec> {
 public:
  explicit SelfSpec(const Host& host) {
    const turbo_model_facts* target = host.model();
    if (!target || target->n_layers < 2) throw Failure(TURBO_UNSUPPORTED, "self_spec: the target has no layers to leave out", "choose another drafter");
    auto n_layers = static_cast<uint32_t>(host.option("layers", int64_t{0}));
    if (n_layers == 0) n_layers = std::max(1u, target->n_layers / 3);
    if (n_layers >= target->n_layers)
      throw Failure(TURBO_INVALID_ARGUMENT, "self_spec: expected fewer layers than the target's " + std::to_string(target->n_layers) + " but found " + std::to_string(n_layers),
                    "lower drafter.options.layers, or leave it out: a third of them draft then");
    drafter_.emplace(host, shape_of(host), std::string(), n_layers, host.option("token_map", std::string()));
  }
};

}  // namespace
}  // namespace turbo::spec_standalone

TURBO_PLUGIN("dev.turbo.spec_standalone", "Drafts of a small model", "0.1.0", "turbo", "Apache-2.0",
             turbo::component<turbo::spec_standalone::Standalone>(TURBO_KIND_DRAFTER, "standalone", TURBO_TIER_CPU, turbo::spec_standalone::kStandaloneOptions),
             turbo::component<turbo::spec_standalone::SelfSpec>(TURBO_KIND_DRAFTER, "self_spec", TURBO_TIER_CPU, turbo::spec_standalone::kSelfOptions,
                                                                  TURBO_COMPONENT_EXPERIMENTAL))
