// Rows of factor levels in which every pair of levels of two factors occurs: what two settings do to each other shows,
// in a few dozen rows instead of all products. Greedy, and the same for the same seed.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <vector>

namespace turbo::testing {

using Levels = std::vector<uint32_t>;  // one row: the level of each factor

/// Which pairs (factor a at level x, factor b at level y), a < b, have occurred.
class PairCover {
 public:
  explicit PairCover(Levels sizes) : sizes_(std::move(sizes)) {
    for (const uint32_t size : sizes_) {
      first_.push_back(n_levels_);
      n_levels_ += size;
    }
    seen_.assign(size_t{n_levels_} * n_levels_, false);
    for (size_t a = 0; a < sizes_.size(); ++a)
      for (size_t b = a + 1; b < sizes_.size(); ++b) left_ += size_t{sizes_[a]} * sizes_[b];
  }
  size_t left() const { return left_; }
  const Levels& sizes() const { return sizes_; }
  bool has(size_t a, uint32_t x, size_t b, uint32_t y) const { return seen_[index(a, x, b, y)]; }
  void add(const Levels& row) {
    for (size_t a = 0; a < row.size(); ++a)
      for (size_t b = a + 1; b < row.size(); ++b) {
        const size_t at = index(a, row[a], b, row[b]);
        if (!seen_[at]) --left_;
        seen_[at] = true;
      }
  }

 private:
  size_t index(size_t a, uint32_t x, size_t b, uint32_t y) const {
    const size_t low = first_[std::min(a, b)] + (a < b ? x : y), high = first_[std::max(a, b)] + (a < b ? y : x);
    return low * n_levels_ + high;
  }
  Levels sizes_;
  std::vector<uint32_t> first_;
  uint32_t n_levels_ = 0;
  std::vector<bool> seen_;
  size_t left_ = 0;
};

/// Rows that cover all pairs of levels of factors with `sizes` levels. Each row begins with a pair that is missing and
/// takes, factor by factor in a random order, the level that adds most; the best of some such rows is kept. So the
/// first rows cover most.
inline std::vector<Levels> covering_rows(const Levels& sizes, uint32_t seed) {
  constexpr int kTries = 30;
  constexpr uint32_t kOpen = UINT32_MAX;
  std::mt19937 rng(seed);
  PairCover cover(sizes);
  std::vector<Levels> rows;
  const auto gain = [&](const Levels& row, size_t factor, uint32_t level) {
    size_t n = 0;
    for (size_t other = 0; other < row.size(); ++other)
      n += other != factor && row[other] != kOpen && !cover.has(factor, level, other, row[other]);
    return n;
  };
  const auto missing_pair = [&] {
    std::vector<std::array<uint32_t, 4>> pairs;
    for (uint32_t a = 0; a < sizes.size(); ++a)
      for (uint32_t b = a + 1; b < sizes.size(); ++b)
        for (uint32_t x = 0; x < sizes[a]; ++x)
          for (uint32_t y = 0; y < sizes[b]; ++y)
            if (!cover.has(a, x, b, y)) pairs.push_back({a, x, b, y});
    return pairs[rng() % pairs.size()];
  };
  while (cover.left() > 0) {
    Levels best;
    size_t best_gain = 0;
    for (int i = 0; i < kTries; ++i) {
      Levels row(sizes.size(), kOpen);
      const auto [a, x, b, y] = missing_pair();
      row[a] = x;
      row[b] = y;
      std::vector<size_t> order;
      for (size_t f = 0; f < sizes.size(); ++f)
        if (row[f] == kOpen) order.push_back(f);
      for (size_t left = order.size(); left > 1; --left) std::swap(order[left - 1], order[rng() % left]);
      size_t row_gain = 1;
      for (const size_t factor : order) {
        const uint32_t start = rng() % sizes[factor];  // ties fall anywhere
        size_t most = 0;
        for (uint32_t i_level = 0; i_level < sizes[factor]; ++i_level) {
          const uint32_t level = (start + i_level) % sizes[factor];
          const size_t n = gain(row, factor, level);
          if (i_level > 0 && n <= most) continue;
          most = n;
          row[factor] = level;
        }
        row_gain += most;
      }
      if (row_gain <= best_gain) continue;
      best_gain = row_gain;
      best = row;
    }
    cover.add(best);
    rows.push_back(best);
  }
  return rows;
}

}  // namespace turbo::testing
