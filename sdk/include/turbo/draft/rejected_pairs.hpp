// RejectedPairs: which continuations of a token were drafted and refused lately. A Bloom filter of two generations.
//
// Pairs go into the young generation; queries read both; when the young one holds half the age limit it becomes the old
// one, and the old one is forgotten. So a pair stays for at least half the age limit, and history never vanishes at once.
// One writer; any number of readers at the same time, who may see a pair late. It may only reorder drafts: a false
// answer costs a draft token, never a token.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <span>

namespace turbo::draft {

class RejectedPairs {
 public:
  static constexpr uint32_t kBits = 1u << 16;
  static constexpr uint32_t kProbes = 4;
  static constexpr uint32_t kLeastAgeLimit = 200, kMostAgeLimit = 5000;

  explicit RejectedPairs(uint32_t age_limit = 2000) { set_age_limit(age_limit); }

  bool contains(int32_t parent, int32_t child) const {
    const Probes probes = probes_of(parent, child);
    return contains(generations_[0], probes) || contains(generations_[1], probes);
  }
  void insert(int32_t parent, int32_t child) {
    const Probes probes = probes_of(parent, child);
    if (contains(young(), probes)) return;
    if (count_[young_] >= std::max(1u, age_limit_ / 2)) rotate();
    for (const uint32_t bit : probes) word(young(), bit).fetch_or(mask(bit), std::memory_order_relaxed);
    ++count_[young_];
  }
  /// The pair was accepted: it is not in the filter afterwards. Pairs that share a bit with it may leave too.
  void forgive(int32_t parent, int32_t child) {
    const Probes probes = probes_of(parent, child);
    for (uint32_t i = 0; i < 2; ++i) {
      if (!contains(generations_[i], probes)) continue;
      for (const uint32_t bit : probes) word(generations_[i], bit).fetch_and(~mask(bit), std::memory_order_relaxed);
      count_[i] -= count_[i] > 0;
    }
  }
  /// What a verified draft teaches. `root` is the token that the draft continued, `fresh` what was emitted: n_accepted
  /// draft tokens, then the target's own. Pairs along the accepted path are forgiven; at its end each drafted child that
  /// was not emitted is a refused pair. A draft that the emitted tokens contradict teaches nothing beyond that point.
  void learn(int32_t root, std::span<const int32_t> tokens, std::span<const int32_t> parents, std::span<const int32_t> fresh,
             uint32_t n_accepted) {
    int32_t node = -1, token = root;
    for (uint32_t i = 0; i < n_accepted; ++i) {
      if (i >= fresh.size()) return;
      node = child_of(tokens, parents, node, fresh[i]);
      if (node < 0) return;
      forgive(token, fresh[i]);
      token = fresh[i];
    }
    if (n_accepted >= fresh.size()) return;              // the target's token at the boundary is not known
    const int32_t emitted = fresh[n_accepted];
    forgive(token, emitted);
    if (child_of(tokens, parents, node, emitted) >= 0) return;  // it was drafted, so this level was not verified
    for (size_t i = 0; i < tokens.size(); ++i)
      if (parents[i] == node) insert(token, tokens[i]);
  }

  void set_age_limit(uint32_t pairs) { age_limit_ = std::clamp(pairs, kLeastAgeLimit, kMostAgeLimit); }
  uint32_t age_limit() const { return age_limit_; }
  /// Pairs held, those of both generations twice.
  uint32_t size() const { return count_[0] + count_[1]; }
  bool empty() const { return size() == 0; }
  void clear() {
    for (uint32_t i = 0; i < 2; ++i) clear(i);
  }

 private:
  using Generation = std::array<std::atomic<uint64_t>, kBits / 64>;
  using Probes = std::array<uint32_t, kProbes>;

  static Probes probes_of(int32_t parent, int32_t child) {
    uint64_t x = static_cast<uint64_t>(static_cast<uint32_t>(parent)) << 32 | static_cast<uint32_t>(child);
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    x ^= x >> 31;
    const auto first = static_cast<uint32_t>(x), step = static_cast<uint32_t>(x >> 32) | 1u;  // odd: the probes differ
    Probes probes;
    for (uint32_t i = 0; i < kProbes; ++i) probes[i] = (first + i * step) % kBits;
    return probes;
  }
  static uint64_t mask(uint32_t bit) { return uint64_t{1} << (bit % 64); }
  static std::atomic<uint64_t>& word(Generation& generation, uint32_t bit) { return generation[bit / 64]; }
  static bool contains(const Generation& generation, const Probes& probes) {
    for (const uint32_t bit : probes)
      if (!(generation[bit / 64].load(std::memory_order_relaxed) & mask(bit))) return false;
    return true;
  }
  static int32_t child_of(std::span<const int32_t> tokens, std::span<const int32_t> parents, int32_t parent, int32_t token) {
    for (size_t i = 0; i < tokens.size(); ++i)
      if (parents[i] == parent && tokens[i] == token) return static_cast<int32_t>(i);
    return -1;
  }
  Generation& young() { return generations_[young_]; }
  void clear(uint32_t generation) {
    for (auto& bits : generations_[generation]) bits.store(0, std::memory_order_relaxed);
    count_[generation] = 0;
  }
  void rotate() {
    young_ ^= 1;
    clear(young_);
  }

  std::array<Generation, 2> generations_{};
  std::array<uint32_t, 2> count_{};
  uint32_t young_ = 0, age_limit_ = 0;
};

}  // namespace turbo::draft
