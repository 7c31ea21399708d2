// Greedy sampler: the largest allowed logit, ties to the lower id. Ignores every other parameter.
#include <turbo/sampler.hpp>

namespace {

class GreedySampler : public turbo::Sampler<GreedySampler> {
 public:
  explicit GreedySampler(const turbo::Host&) {}

  void sample_row(const turbo::SampleRow& row, turbo::SampleAnswer& answer) override {
    float best = -INFINITY;
    for (uint32_t token = 0; token < row.logits.size(); ++token) {
      const float logit = row.logits[token];
      if (std::isnan(logit)) throw turbo::Failure(TURBO_CORRUPT_INPUT, "logits: NaN at token " + std::to_string(token));
      if (row.allowed(token) && logit > best) {
        best = logit;
        answer.id = static_cast<int32_t>(token);
      }
    }
    answer.status = answer.id >= 0 ? TURBO_OK : TURBO_NOT_FOUND;
  }
};

}  // namespace

TURBO_PLUGIN("org.example.my_sampler", "Greedy sampler", "0.1.0", "Example", "Apache-2.0",
             turbo::component<GreedySampler>(TURBO_KIND_SAMPLER, "greedy", TURBO_TIER_CPU))
