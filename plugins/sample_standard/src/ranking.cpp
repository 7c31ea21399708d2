#include "ranking.h"

#include "passes.h"

#include <algorithm>
#include <functional>

namespace turbo::sample_standard {
namespace {

constexpr uint64_t kFirstGrow = 64, kGrowth = 8;

}  // namespace

bool Ranking::reset(const float* x, uint64_t n) {
  x_ = x;
  n_ = n;
  sorted_.clear();
  complete_ = false;
  maxima_.resize(block_count(n));
  const bool clean = block_maxima(x, n, maxima_.data());
  max_ = -kInfinity;
  for (const float m : maxima_) max_ = m > max_ ? m : max_;
  return clean;
}

int32_t Ranking::argmax() const {
  if (max_ == -kInfinity) return -1;
  const auto block = static_cast<uint64_t>(std::find(maxima_.begin(), maxima_.end(), max_) - maxima_.begin());
  const float* first = x_ + block * kBlock;
  return static_cast<int32_t>(std::find(first, x_ + n_, max_) - x_);
}

// All entries that reach the wanted-th largest block maximum are an exact prefix of the order, at least `wanted` long,
// and only blocks whose maximum reaches it need a look.
void Ranking::grow(uint64_t wanted) {
  float threshold = -kInfinity;
  if (wanted < maxima_.size()) {
    scratch_ = maxima_;
    std::nth_element(scratch_.begin(), scratch_.begin() + static_cast<int64_t>(wanted - 1), scratch_.end(), std::greater<>());
    threshold = scratch_[wanted - 1];
  }
  complete_ = threshold == -kInfinity;
  sorted_.clear();
  for (uint64_t block = 0; block < maxima_.size(); ++block) {
    if (maxima_[block] < threshold || maxima_[block] == -kInfinity) continue;
    const uint64_t end = std::min(n_, (block + 1) * kBlock);
    for (uint64_t i = block * kBlock; i < end; ++i)
      if (x_[i] >= threshold && x_[i] > -kInfinity) sorted_.push_back({x_[i], static_cast<int32_t>(i)});
  }
  std::sort(sorted_.begin(), sorted_.end(),
            [](const Candidate& a, const Candidate& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; });
}

const Candidate* Ranking::at(uint64_t i) {
  while (i >= sorted_.size() && !complete_) grow(std::max(kFirstGrow, sorted_.size() * kGrowth));
  return i < sorted_.size() ? &sorted_[i] : nullptr;
}

void Ranking::cut(uint64_t k) {
  if (sorted_.size() < k && !complete_) grow(k);
  if (k < sorted_.size()) {
    const float least = sorted_[k - 1].logit;
    const auto end = std::partition_point(sorted_.begin(), sorted_.end(), [least](const Candidate& c) { return c.logit >= least; });
    sorted_.erase(end, sorted_.end());
  }
  complete_ = true;
}

}  // namespace turbo::sample_standard
