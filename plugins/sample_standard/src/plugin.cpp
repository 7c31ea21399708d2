// Sampler "standard", tier cpu. One row after another on the engine thread.
#include "answer.h"

namespace turbo::sample_standard {
namespace {

class StandardSampler : public Sampler<StandardSampler> {
 public:
  explicit StandardSampler(const Host&) {}

  static void probe(const Host&, const turbo_probe_facts&, Probe& answer) {
    answer.reason = has_fma() ? "avx2" : "portable";
  }

  void sample_row(const SampleRow& row, SampleAnswer& answer) override {
    answer_row(distribution_, row, answer);
  }

 private:
  Distribution distribution_;
};

}  // namespace
}  // namespace turbo::sample_standard

TURBO_PLUGIN("dev.turbo.sample_standard", "Standard sampler", "0.1.0", "turbo", "Apache-2.0",
             turbo::component<turbo::sample_standard::StandardSampler>(TURBO_KIND_SAMPLER, "standard", TURBO_TIER_CPU))
