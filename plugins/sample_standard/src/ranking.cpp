#include "ranking.h"

#include "passes.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <utility>

namespace turbo::sample_standard {
namespace {

constexpr uint64_t kFirstGrow = 64, kGrowth = 4;

// By the logit's half alone and stable: keys come in rising order of id. `spare` is as long as `keys` afterwards.
void sort_by_logit(std::vector<uint64_t>& keys, std::vector<uint64_t>& spare) {
  constexpr uint32_t kBits = 11, kPasses = 3, kDigits = 1u << kBits;
  if (keys.size() < kDigits) return std::sort(keys.begin(), keys.end());
  std::array<std::array<uint32_t, kDigits>, kPasses> counts{};
  const auto digit = [](uint64_t key, uint32_t pass) { return static_cast<uint32_t>(key >> (32 + pass * kBits)) % kDigits; };
  for (const uint64_t key : keys)
    for (uint32_t pass = 0; pass < kPasses; ++pass) ++counts[pass][digit(key, pass)];
  spare.resize(keys.size());
  for (uint32_t pass = 0; pass < kPasses; ++pass) {
    uint32_t begin = 0;
    for (uint32_t& count : counts[pass]) begin += std::exchange(count, begin);
    for (const uint64_t key : keys) spare[counts[pass][digit(key, pass)]++] = key;
    keys.swap(spare);
  }
}

}  // namespace

uint64_t key_of(float logit, uint64_t id) {
  const float plain = logit + 0.0f;
  uint32_t bits;
  std::memcpy(&bits, &plain, 4);
  const uint32_t rising = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return uint64_t{~rising} << 32 | id;
}
Candidate candidate_of(uint64_t key) {
  const uint32_t rising = ~static_cast<uint32_t>(key >> 32);
  const uint32_t bits = rising & 0x80000000u ? rising & 0x7fffffffu : ~rising;
  Candidate candidate;
  std::memcpy(&candidate.logit, &bits, 4);
  candidate.id = static_cast<int32_t>(static_cast<uint32_t>(key));
  return candidate;
}

bool Ranking::reset(const float* x, uint64_t n) {
  x_ = x;
  n_ = n;
  argmax_ = -1;
  sorted_.clear();
  complete_ = pooled_ = partial_ = false;
  maxima_.resize(block_count(n));
  const bool clean = block_maxima(x, n, maxima_.data());
  max_ = -kInfinity;
  for (const float m : maxima_) max_ = m > max_ ? m : max_;
  return clean;
}

void Ranking::reset(const Head& head) {
  x_ = nullptr;
  max_ = head.max;
  argmax_ = head.argmax;
  sorted_.clear();
  rest_.assign(head.keys.begin(), head.keys.end());
  pooled_ = true;
  complete_ = rest_.empty();
  partial_ = !head.complete;
}

int32_t Ranking::argmax() const {
  if (!x_) return argmax_;
  if (max_ == -kInfinity) return -1;
  const auto block = static_cast<uint64_t>(std::find(maxima_.begin(), maxima_.end(), max_) - maxima_.begin());
  const float* first = x_ + block * kBlock;
  return static_cast<int32_t>(std::find(first, x_ + n_, max_) - x_);
}

void Ranking::gather(float threshold, std::vector<uint64_t>& keys) const {
  keys.clear();
  for (uint64_t block = 0; block < maxima_.size(); ++block) {
    if (maxima_[block] < threshold || maxima_[block] == -kInfinity) continue;
    const uint64_t end = std::min(n_, (block + 1) * kBlock);
    for (uint64_t i = block * kBlock; i < end; ++i)
      if (x_[i] >= threshold && x_[i] > -kInfinity) keys.push_back(key_of(x_[i], i));
  }
}

// Few wanted: all entries that reach the wanted-th largest block maximum are an exact prefix of the order, at least
// `wanted` long, and only blocks whose maximum reaches it need a look. Many wanted: the whole row is sorted. The keys of a
// head are a pool from which the best are parted off piece by piece.
void Ranking::grow(uint64_t wanted) {
  if (!pooled_ && wanted <= maxima_.size() / 4) {
    scratch_ = maxima_;
    std::nth_element(scratch_.begin(), scratch_.begin() + static_cast<int64_t>(wanted - 1), scratch_.end(), std::greater<>());
    const float threshold = scratch_[wanted - 1];
    complete_ = threshold == -kInfinity;
    gather(threshold, sorted_);
    std::sort(sorted_.begin(), sorted_.end());
    return;
  }
  if (!pooled_) {
    gather(-kInfinity, sorted_);
    sort_by_logit(sorted_, rest_);
    complete_ = true;
    return;
  }
  const auto piece = static_cast<int64_t>(std::min<uint64_t>(rest_.size(), wanted - sorted_.size()));
  // The pool is parted so that the best lie at its end and can be taken off.
  const auto cut = rest_.end() - piece;
  if (cut != rest_.begin()) std::nth_element(rest_.begin(), cut, rest_.end(), std::greater<>());
  std::sort(cut, rest_.end());
  sorted_.insert(sorted_.end(), cut, rest_.end());
  rest_.erase(cut, rest_.end());
  complete_ = rest_.empty();
}

std::optional<Candidate> Ranking::at(uint64_t i) {
  while (i >= sorted_.size() && !complete_) grow(std::max<uint64_t>(kFirstGrow, sorted_.size() * kGrowth));
  if (i >= sorted_.size()) return std::nullopt;
  return candidate_of(sorted_[i]);
}

void Ranking::cut(uint64_t k) {
  if (sorted_.size() < k && !complete_) grow(k);
  if (partial_ && sorted_.size() < k) return;  // and stays partial
  partial_ = false;
  if (k < sorted_.size() || !complete_) {
    // Ties at the k-th may lie beyond what is sorted so far.
    const float least = candidate_of(sorted_[k - 1]).logit;
    while (!complete_ && candidate_of(sorted_.back()).logit == least) grow(sorted_.size() * 2);
    const auto end = std::partition_point(sorted_.begin(), sorted_.end(),
                                          [least](uint64_t key) { return candidate_of(key).logit >= least; });
    sorted_.erase(end, sorted_.end());
  }
  complete_ = true;
}

}  // namespace turbo::sample_standard
