// Composed drafters over the real ones in the engine: what comes out is what comes out without a drafter, greedy and
// sampled, alone and together.
#include <random>

#include "harness.h"
#include "unit/engine/collector.h"

namespace turbo::engine::testing {
namespace {

struct Composition {
  std::string name;
  std::string drafter;
  std::vector<std::string> over;
  bool outcome_cache;
};
void PrintTo(const Composition& composition, std::ostream* out) { *out << composition.name; }

std::unique_ptr<Runtime> load_with(const Composition* composition) {
  ModelSetup setup{.model = "models/turbo-nano-q1.gguf", .threads = 1, .kv = "f16"};
  setup.tune = [&](profile::Profile& profile) {
    if (!composition) return;
    profile.drafter.name = composition->drafter;
    profile.drafter.over = composition->over;
    profile.drafter.outcome_cache = composition->outcome_cache;
    profile.drafter.adaptive = false;
    profile.drafter.draft_tokens = 6;
  };
  return load(setup);
}

// Repeating texts, so that there is something to draft; greedy ones and samples of the same prompts.
std::vector<Request> requests() {
  std::mt19937 rng(11);
  std::vector<Request> all;
  for (uint32_t i = 0; i < 4; ++i) {
    std::vector<int32_t> part, prompt;
    for (uint32_t k = 0; k < 12 + 5 * i; ++k) part.push_back(static_cast<int32_t>(rng() % 2000));
    while (prompt.size() < 90) prompt.insert(prompt.end(), part.begin(), part.end());
    for (const bool sampled : {false, true, true}) {
      Request request;
      request.prompt = prompt;
      request.max_tokens = 60;
      request.sampling.temperature = sampled ? 0.7f : 0.0f;
      if (sampled) request.sampling.seed = rng();
      all.push_back(request);
    }
  }
  return all;
}

const std::vector<std::vector<int32_t>>& plain() {
  static const std::vector<std::vector<int32_t>> ids = [] {
    std::vector<std::vector<int32_t>> out;
    const auto runtime = load_with(nullptr);
    if (!runtime) return out;
    for (const Request& request : requests()) {
      auto collector = std::make_shared<Collector>();
      EXPECT_TRUE(runtime->engine().submit(request, collector));
      collector->wait();
      out.push_back(collector->ids());
    }
    return out;
  }();
  return ids;
}

// A number that the outcome cache told, 0 when it told none.
double cache_count(Runtime& runtime, const std::string& name) {
  double sum = 0;
  for (const auto& family : runtime.metrics())
    for (const auto& metric : family.metric)
      for (const auto& label : metric.label)
        if (label.value == "saguaro" && family.name.find(name) != std::string::npos) sum += metric.counter.value;
  return sum;
}

class Composed : public ::testing::TestWithParam<Composition> {};

}  // namespace

TEST_P(Composed, TokensAreThoseWithoutADrafter) {
  const std::vector<Request> all = requests();
  ASSERT_EQ(plain().size(), all.size());
  const auto runtime = load_with(&GetParam());
  ASSERT_TRUE(runtime);
  uint64_t drafted = 0, accepted = 0;
  for (const bool together : {false, true}) {
    std::vector<std::shared_ptr<Collector>> running;
    for (size_t i = 0; i < all.size(); ++i) {
      running.push_back(std::make_shared<Collector>());
      ASSERT_TRUE(runtime->engine().submit(all[i], running.back()));
      if (!together) running.back()->wait();
    }
    for (size_t i = 0; i < all.size(); ++i) {
      const Finish finish = running[i]->wait();
      ASSERT_EQ(finish.reason, FinishReason::length) << finish.status.message();
      ASSERT_EQ(running[i]->ids(), plain()[i]) << "request " << i << (together ? " beside others" : " alone");
      drafted += finish.speculation.drafted;
      accepted += finish.speculation.accepted;
    }
  }
  EXPECT_GT(drafted, 100u);
  EXPECT_GT(accepted, 20u);
  // How many hits there are depends on how busy the machine is.
  std::printf("%s: %llu of %llu drafted tokens accepted, %g cache hits, %g misses\n", GetParam().name.c_str(), static_cast<unsigned long long>(accepted),
              static_cast<unsigned long long>(drafted), cache_count(*runtime, "hits"), cache_count(*runtime, "misses"));
}

INSTANTIATE_TEST_SUITE_P(Drafters, Composed,
                         ::testing::Values(Composition{"first", "first", {"ngram", "phantom"}, false}, Composition{"merge", "merge", {"ngram", "phantom"}, false},
                                           Composition{"cached_ngram", "ngram", {}, true}, Composition{"cached_phantom", "phantom", {}, true},
                                           Composition{"cached_merge", "merge", {"ngram", "phantom"}, true}),
                         [](const auto& info) { return info.param.name; });

}  // namespace turbo::engine::testing
