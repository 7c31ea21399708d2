#include "engine/logprobs.h"

#include <algorithm>
#include <cmath>

namespace turbo::engine {

Token score_token(std::span<const float> logits, int32_t id, uint32_t n_top) {
  float largest = -INFINITY;
  for (const float logit : logits) largest = std::max(largest, logit);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  const double log_sum = largest + std::log(sum);
  const auto logprob = [&](int32_t token) {
    const double value = logits[token] - log_sum;
    return std::isfinite(value) ? static_cast<float>(value) : kImpossibleLogprob;
  };

  Token scored;
  scored.id = id;
  scored.logprob = logprob(id);
  if (n_top == 0) return scored;
  const auto better = [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; };
  std::vector<int32_t> best;  // sorted, at most n_top
  for (int32_t token = 0; token < static_cast<int32_t>(logits.size()); ++token) {
    if (best.size() == n_top && !better(token, best.back())) continue;
    best.insert(std::upper_bound(best.begin(), best.end(), token, better), token);
    if (best.size() > n_top) best.pop_back();
  }
  for (const int32_t token : best) scored.top.push_back({token, logprob(token)});
  return scored;
}

}  // namespace turbo::engine
