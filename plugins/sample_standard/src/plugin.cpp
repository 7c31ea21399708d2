// Sampler "standard", tier cpu. One row after another on the engine thread.
#include "distribution.h"

#include <turbo/kernel/random.h>

namespace turbo::sample_standard {
namespace {

class StandardSampler : public Sampler<StandardSampler> {
 public:
  explicit StandardSampler(const Host&) {}

  static void probe(const Host&, const turbo_probe_facts&, Probe& answer) {
    answer.reason = has_fma() ? "avx2" : "portable";
  }

  void sample_row(const SampleRow& row, SampleAnswer& answer) override {
    answer.status = distribution_.prepare(row);
    if (answer.status != TURBO_OK) return;
    answer.id = distribution_.draw(turbo_uniform(row.seed, row.position));
    if (answer.logprob) *answer.logprob = distribution_.logprob(answer.id);
    if (!answer.top_ids.empty()) distribution_.top(answer.top_ids, answer.top_logprobs);
  }

 private:
  Distribution distribution_;
};

}  // namespace
}  // namespace turbo::sample_standard

TURBO_PLUGIN("dev.turbo.sample_standard", "Standard sampler", "0.1.0", "turbo", "Apache-2.0",
             turbo::component<turbo::sample_standard::StandardSampler>(TURBO_KIND_SAMPLER, "standard", TURBO_TIER_CPU))
