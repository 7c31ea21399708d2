// Drafts for what a running verification may end with, after speculative speculative decoding (arXiv 2603.03251): which
// outcomes are worth how many guesses, and a bounded store of the drafts that were built for them. One thread.
#pragma once

#include <turbo/draft/draft_nodes.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <list>
#include <numeric>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace turbo::draft {

/// Hash of a text of one more token. Start with 0; every token since the beginning counts.
inline uint64_t hash_next(uint64_t hash, int32_t token) {
  uint64_t x = hash + 0x9E3779B97F4A7C15u + static_cast<uint32_t>(token);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/// A moment of a sequence. `session` is never used twice, also when sequence numbers are.
struct OutcomeKey {
  uint64_t session = 0;
  uint64_t length = 0;  // committed tokens
  uint64_t hash = 0;    // of all of them
  bool operator==(const OutcomeKey&) const = default;
};

/// By node of `tree`, the root first: the probability that it is the last accepted one. `acceptance`, in (0, 1), is that of a
/// node's first child; the next one gets that share of the rest. On a chain of K nodes this is a^k (1 - a), and a^K for the
/// last one. The sum is 1.
inline void last_accepted(const DraftNodes& tree, double acceptance, std::vector<double>& out) {
  const size_t n = tree.size() + 1;
  out.assign(n, 0);
  out[0] = 1;
  // Children come after their parents, so what is left of a parent when its next child comes is what its elder ones left.
  for (size_t i = 1; i < n; ++i) {
    double& parent = out[static_cast<size_t>(tree.parents[i - 1] + 1)];
    out[i] = parent * acceptance;
    parent -= out[i];
  }
}

/// Guesses of the token after each outcome, `budget` of them in all. If F guesses miss with a probability like F^-r, the sum
/// of p (1 - F^-r) is greatest for F in proportion to p^(1/(1+r)); on a chain that is geometric in a^(1/(1+r)), and the last
/// one times (1-a)^(-1/(1+r)). Rounded by largest remainders, the earlier outcome first.
inline void split_budget(std::span<const double> probabilities, double r, uint32_t budget, std::vector<uint32_t>& out) {
  const size_t n = probabilities.size();
  out.assign(n, 0);
  std::vector<double> share(n);
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += share[i] = std::pow(std::max(probabilities[i], 0.0), 1 / (1 + r));
  if (!(sum > 0)) return;
  uint32_t left = budget;
  for (size_t i = 0; i < n; ++i) {
    share[i] *= budget / sum;
    out[i] = std::min(left, static_cast<uint32_t>(share[i]));
    left -= out[i];
    share[i] -= out[i];
  }
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return share[a] > share[b]; });
  for (size_t i = 0; left > 0; i = (i + 1) % n, --left) ++out[order[i]];
}

/// Draft trees by key, the least recently used ones out when entries or bytes are over their bound.
class OutcomeCache {
 public:
  OutcomeCache(uint32_t max_entries, uint64_t max_bytes) : max_entries_(max_entries), max_bytes_(max_bytes) {}

  /// Tokens and parents are kept, nothing else. False: there is no room for it at all.
  bool insert(const OutcomeKey& key, const DraftNodes& tree) {
    const uint64_t bytes = kEntryBytes + tree.size() * 2 * sizeof(int32_t);
    if (max_entries_ == 0 || bytes > max_bytes_) return false;
    if (const auto found = by_key_.find(key); found != by_key_.end()) erase(found->second);
    while (!entries_.empty() && (entries_.size() >= max_entries_ || bytes_ + bytes > max_bytes_)) erase(std::prev(entries_.end()));
    entries_.push_front({key, bytes, false, {}});
    entries_.front().tree.tokens = tree.tokens;
    entries_.front().tree.parents = tree.parents;
    by_key_[key] = entries_.begin();
    by_session_[key.session].push_back(entries_.begin());
    bytes_ += bytes;
    return true;
  }

  /// The draft for this moment, borrowed until the next change; null: none. Counts a hit or a miss.
  const DraftNodes* find(const OutcomeKey& key) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) {
      ++misses_;
      return nullptr;
    }
    ++hits_;
    entries_.splice(entries_.begin(), entries_, found->second);
    found->second->used = true;
    return &found->second->tree;
  }

  /// The session stands at `now`: of its entries only those for now and for longer texts can still be of use.
  void committed(const OutcomeKey& now) {
    forget(now.session, [&](const OutcomeKey& key) { return key.length > now.length || key == now; });
  }
  void close(uint64_t session) {
    forget(session, [](const OutcomeKey&) { return false; });
  }
  void clear() {
    while (!entries_.empty()) erase(entries_.begin());
  }

  size_t size() const { return entries_.size(); }
  uint64_t bytes() const { return bytes_; }
  uint64_t hits() const { return hits_; }
  uint64_t misses() const { return misses_; }
  /// Entries that went without a hit.
  uint64_t wasted() const { return wasted_; }

 private:
  struct Entry {
    OutcomeKey key;
    uint64_t bytes;
    bool used;
    DraftNodes tree;
  };
  using Place = std::list<Entry>::iterator;
  struct Hash {
    size_t operator()(const OutcomeKey& key) const { return key.hash ^ (key.session * 0x9E3779B97F4A7C15u) ^ (key.length << 17); }
  };
  // An entry, its nodes in the list and both indices, and what the allocator adds; rounded up.
  static constexpr uint64_t kEntryBytes = sizeof(Entry) + 192;

  template <typename Keep>
  void forget(uint64_t session, Keep&& keep) {
    const auto found = by_session_.find(session);
    if (found == by_session_.end()) return;
    const std::vector<Place> places = found->second;
    for (const Place& place : places)
      if (!keep(place->key)) erase(place);
  }
  void erase(Place place) {
    const auto session = by_session_.find(place->key.session);
    std::vector<Place>& places = session->second;
    places.erase(std::find(places.begin(), places.end(), place));
    if (places.empty()) by_session_.erase(session);
    by_key_.erase(place->key);
    bytes_ -= place->bytes;
    wasted_ += !place->used;
    entries_.erase(place);
  }

  const uint32_t max_entries_;
  const uint64_t max_bytes_;
  std::list<Entry> entries_;  // the one used last first
  std::unordered_map<OutcomeKey, Place, Hash> by_key_;
  std::unordered_map<uint64_t, std::vector<Place>> by_session_;
  uint64_t bytes_ = 0, hits_ = 0, misses_ = 0, wasted_ = 0;
};

}  // namespace turbo::draft
