#include "text/bpe/merger.h"

#include <algorithm>
#include <functional>

namespace turbo::text {
namespace {

// Up to here a plain scan for the lowest rank beats the heap.
constexpr size_t longest_short_word = 32;
constexpr uint32_t none = ~uint32_t{0};

}  // namespace

void Merger::reserve(size_t n_merges) {
  ranks_.reserve(n_merges);
  merged_.reserve(n_merges);
}

bool Merger::add(int32_t left, int32_t right, int32_t merged) {
  if (!ranks_.insert(pair_key(left, right), static_cast<uint32_t>(merged_.size()))) return false;
  merged_.push_back(merged);
  return true;
}

void Merger::merge(std::vector<int32_t>& symbols, Scratch& scratch) const {
  if (symbols.size() < 2) return;
  if (symbols.size() <= longest_short_word)
    merge_short(symbols);
  else
    merge_long(symbols, scratch);
}

void Merger::merge_short(std::vector<int32_t>& symbols) const {
  uint32_t ranks[longest_short_word];  // of the pair (i, i + 1)
  size_t n = symbols.size();
  for (size_t i = 0; i + 1 < n; ++i) ranks[i] = rank(symbols[i], symbols[i + 1]);
  while (n > 1) {
    const size_t best = static_cast<size_t>(std::min_element(ranks, ranks + n - 1) - ranks);
    if (ranks[best] == no_rank) break;
    symbols[best] = merged_[ranks[best]];
    std::copy(symbols.begin() + best + 2, symbols.begin() + n, symbols.begin() + best + 1);
    if (best + 2 < n) std::copy(ranks + best + 2, ranks + n - 1, ranks + best + 1);
    --n;
    if (best > 0) ranks[best - 1] = rank(symbols[best - 1], symbols[best]);
    if (best + 1 < n) ranks[best] = rank(symbols[best], symbols[best + 1]);
  }
  symbols.resize(n);
}

void Merger::merge_long(std::vector<int32_t>& symbols, Scratch& s) const {
  const auto n = static_cast<uint32_t>(symbols.size());
  s.rank.assign(n, no_rank);  // of the pair that starts at a symbol; an entry of the heap that disagrees is stale
  s.next.resize(n);
  s.previous.resize(n);
  s.heap.clear();
  const auto entry = [](uint32_t rank, uint32_t at) { return static_cast<uint64_t>(rank) << 32 | at; };
  for (uint32_t i = 0; i < n; ++i) {
    s.next[i] = i + 1 < n ? i + 1 : none;
    s.previous[i] = i > 0 ? i - 1 : none;
    if (i + 1 == n) break;
    s.rank[i] = rank(symbols[i], symbols[i + 1]);
    if (s.rank[i] != no_rank) s.heap.push_back(entry(s.rank[i], i));
  }
  std::make_heap(s.heap.begin(), s.heap.end(), std::greater<>());

  const auto update = [&](uint32_t at) {
    const uint32_t after = s.next[at];
    s.rank[at] = after == none ? no_rank : rank(symbols[at], symbols[after]);
    if (s.rank[at] == no_rank) return;
    s.heap.push_back(entry(s.rank[at], at));
    std::push_heap(s.heap.begin(), s.heap.end(), std::greater<>());
  };
  while (!s.heap.empty()) {
    std::pop_heap(s.heap.begin(), s.heap.end(), std::greater<>());
    const auto at = static_cast<uint32_t>(s.heap.back());
    const auto best = static_cast<uint32_t>(s.heap.back() >> 32);
    s.heap.pop_back();
    if (s.rank[at] != best) continue;
    const uint32_t gone = s.next[at];
    symbols[at] = merged_[best];
    s.rank[gone] = no_rank;
    s.next[at] = s.next[gone];
    if (s.next[at] != none) s.previous[s.next[at]] = at;
    update(at);
    if (s.previous[at] != none) update(s.previous[at]);
  }
  size_t kept = 0;
  for (uint32_t i = 0; i != none; i = s.next[i]) symbols[kept++] = symbols[i];
  symbols.resize(kept);
}

}  // namespace turbo::text
