#include "draft_pool.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace turbo::spec_standalone {
namespace {

constexpr float kNegligible = -24;  // exp of less is nothing beside 1 in f32

// Highest first, then the lower index.
template <typename T>
bool before(const T& score_a, int32_t a, const T& score_b, int32_t b) {
  return score_a != score_b ? score_a > score_b : a < b;
}

}  // namespace

void best_tokens(std::span<const float> logits, std::span<const int32_t> allowed, uint32_t count, std::vector<Candidate>& out) {
  out.clear();
  if (count == 0) return;
  const auto for_each = [&](const auto& visit) {
    if (allowed.empty())
      for (size_t id = 0; id < logits.size(); ++id) visit(static_cast<int32_t>(id), logits[id]);
    else
      for (const int32_t id : allowed) visit(id, logits[static_cast<size_t>(id)]);
  };
  for_each([&](int32_t id, float logit) {
    if (!(logit > -INFINITY)) return;  // NaN too
    if (out.size() == count && !(logit > out.back().probability)) return;
    if (out.size() == count) out.pop_back();
    const auto at = std::find_if(out.begin(), out.end(), [&](const Candidate& other) { return logit > other.probability; });
    out.insert(at, {id, logit});
  });
  if (out.empty()) return;
  if (count == 1) {
    out[0].probability = 1;
    return;
  }
  const float most = out[0].probability;
  double sum = 0;
  for_each([&](int32_t, float logit) {
    if (logit - most > kNegligible) sum += std::exp(logit - most);
  });
  for (Candidate& candidate : out) {
    const double p = std::exp(static_cast<double>(candidate.probability) - most) / sum;
    candidate.probability = std::isfinite(p) ? static_cast<float>(p) : 0;
  }
}

void DraftPool::begin(uint32_t branches) {
  branches_ = branches;
  nodes_.clear();
  live_.clear();
  level_ = 0;
}

void DraftPool::expand(int32_t parent, std::span<const Candidate> children) {
  const float above = parent < 0 ? 1 : nodes_[static_cast<size_t>(parent)].score;
  for (const Candidate& child : children) nodes_.push_back({child.token, parent, above * child.probability});
}

void DraftPool::close_level() {
  live_.resize(nodes_.size() - level_);
  std::iota(live_.begin(), live_.end(), static_cast<int32_t>(level_));
  const size_t n = std::min<size_t>(branches_, live_.size());
  std::partial_sort(live_.begin(), live_.begin() + static_cast<ptrdiff_t>(n), live_.end(), [&](int32_t a, int32_t b) {
    return before(nodes_[static_cast<size_t>(a)].score, a, nodes_[static_cast<size_t>(b)].score, b);
  });
  live_.resize(n);
  level_ = nodes_.size();
}

std::vector<int32_t> DraftPool::best(uint32_t count) const {
  std::vector<int32_t> order(nodes_.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return before(nodes_[static_cast<size_t>(a)].score, a, nodes_[static_cast<size_t>(b)].score, b);
  });
  order.resize(std::min<size_t>(count, order.size()));
  return order;
}

}  // namespace turbo::spec_standalone
