// Sampled tokens under verification follow the model's own probabilities: chi-square over many seeds, with drafts at work.
// The seeds are fixed, so the outcome is always the same; a change of the random numbers may hit the one in ten thousand.
#include "integration/golden/harness.h"
#include "settings.h"
#include "unit/engine/collector.h"

namespace turbo::engine::testing {
namespace {

constexpr uint32_t kTopK = 5, kRequests = 480;

// The upper 1e-4 points of chi-square by degrees of freedom.
double critical(size_t degrees) {
  constexpr double kPoints[] = {0, 15.137, 18.421, 21.108, 23.513};
  return kPoints[degrees];
}

std::unique_ptr<Runtime> load_mini(const DrafterUnderTest* drafter) {
  ModelSetup setup;
  setup.kv = "f16";
  setup.tune = [drafter](profile::Profile& profile) {
    profile.model.context = kContext;
    profile.engine.max_running = 8;
    if (!drafter) return;
    use_drafter(profile, *drafter, 0);
    profile.drafter.draft_tokens = 8;
    profile.drafter.adaptive = false;
  };
  return load(setup);
}

// The model's probabilities of what follows, cut to the kTopK likeliest.
std::map<int32_t, double> probabilities(Runtime& plain, const std::vector<int32_t>& tokens) {
  struct Keeper : Outcome {
    std::vector<TokenLogprob> top;
    void on_tokens(std::span<const Token> fresh) override { top = fresh[0].top; }
  };
  auto keeper = std::make_shared<Keeper>();
  Request request;
  request.prompt = tokens;
  request.max_tokens = 1;
  request.sampling.temperature = 0;
  request.logprobs = true;
  request.n_top_logprobs = kTopK;
  EXPECT_TRUE(plain.engine().submit(std::move(request), keeper));
  keeper->wait();
  std::map<int32_t, double> shares;
  double sum = 0;
  for (const TokenLogprob& one : keeper->top) sum += std::exp(static_cast<double>(one.logprob));
  for (const TokenLogprob& one : keeper->top) shares[one.id] = std::exp(static_cast<double>(one.logprob)) / sum;
  return shares;
}

// Observed counts against shares; cells that expect fewer than five are one.
void expect_follows(const std::map<int32_t, uint64_t>& seen, const std::map<int32_t, double>& shares) {
  uint64_t n = 0;
  for (const auto& [id, count] : seen) {
    ASSERT_TRUE(shares.count(id)) << "token " << id << " cannot come";
    n += count;
  }
  ASSERT_GE(n, 60u) << "too few to say anything";
  double statistic = 0, rare_expected = 0, rare_seen = 0;
  size_t cells = 0;
  const auto add = [&](double expected, double observed) {
    statistic += (observed - expected) * (observed - expected) / expected;
    ++cells;
  };
  for (const auto& [id, share] : shares) {
    const double expected = share * static_cast<double>(n), observed = static_cast<double>(seen.count(id) ? seen.at(id) : 0);
    if (expected >= 5) add(expected, observed);
    else rare_expected += expected, rare_seen += observed;
  }
  if (rare_expected >= 5) add(rare_expected, rare_seen);
  ASSERT_GE(cells, 2u);
  EXPECT_LT(statistic, critical(cells - 1)) << cells << " cells, " << n << " draws";
}

std::vector<int32_t> most_frequent(const std::map<std::vector<int32_t>, std::map<int32_t, uint64_t>>& seen, size_t length) {
  std::vector<int32_t> best;
  uint64_t most = 0;
  for (const auto& [context, counts] : seen) {
    uint64_t n = 0;
    for (const auto& [id, count] : counts) n += count;
    if (context.size() == length && n > most) best = context, most = n;
  }
  return best;
}

}  // namespace

TEST(SampledDistribution, IsTheModelsAtEachOfThreePositions) {
  const auto plain = load_mini(nullptr);
  ASSERT_TRUE(plain);
  const auto tokenizer = plain->tokenizer();
  ASSERT_TRUE(tokenizer);
  const std::vector<int32_t> prompt = (*tokenizer)->encode("The file is");
  for (const DrafterUnderTest& drafter : drafters()) {
    SCOPED_TRACE(drafter.name);
    const auto drafted = load_mini(&drafter);
    ASSERT_TRUE(drafted);
    std::vector<std::shared_ptr<Collector>> runs;
    std::map<std::vector<int32_t>, std::map<int32_t, uint64_t>> seen;  // what followed which tokens
    uint64_t accepted = 0, refused = 0;
    for (uint32_t i = 0; i < kRequests; ++i) {
      if (i >= 8) runs[i - 8]->wait();
      Request request;
      request.prompt = prompt;
      request.max_tokens = 4;  // a draft ends one short of the last token
      request.sampling.temperature = 1;
      request.sampling.top_k = kTopK;
      request.sampling.seed = i;
      runs.push_back(std::make_shared<Collector>());
      ASSERT_TRUE(drafted->engine().submit(std::move(request), runs.back()));
    }
    for (const auto& run : runs) {
      const Finish finish = run->wait();
      ASSERT_EQ(finish.reason, FinishReason::length) << finish.status.message();
      accepted += finish.speculation.accepted;
      refused += finish.speculation.drafted - finish.speculation.accepted;
      const std::vector<int32_t> ids = run->ids();
      for (size_t at = 0; at < 3; ++at) ++seen[std::vector<int32_t>(ids.begin(), ids.begin() + static_cast<long>(at))][ids[at]];
    }
    EXPECT_GT(accepted, kRequests / 2);
    EXPECT_GT(refused, kRequests / 2);
    for (size_t position = 0; position < 3; ++position) {
      SCOPED_TRACE("position " + std::to_string(position + 1));
      const std::vector<int32_t> context = most_frequent(seen, position);
      expect_follows(seen[context], probabilities(*plain, joined(prompt, context)));
    }
    std::printf("%s: %llu accepted, %llu refused\n", drafter.name.c_str(), static_cast<unsigned long long>(accepted), static_cast<unsigned long long>(refused));
  }
}

}  // namespace turbo::engine::testing
