// The merge step of BPE: joins neighbouring symbols, lowest rank first, leftmost first among equals.
//
// O(n log n) in the length of the word, so that a megabyte without a word break costs what a megabyte of prose costs.
// Building is single-threaded; merge() is const and any thread may call it with its own scratch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "text/bpe/hash_index.h"

namespace turbo::text {

class Merger {
 public:
  static constexpr uint32_t no_rank = ~uint32_t{0};

  /// Working memory of merge(), reused from word to word.
  struct Scratch {
    std::vector<uint32_t> rank, next, previous;
    std::vector<uint64_t> heap;
  };

  void reserve(size_t n_merges);
  /// Ranks count up from 0 in the order of the calls. False when this pair has a rank already.
  bool add(int32_t left, int32_t right, int32_t merged);

  uint32_t rank(int32_t left, int32_t right) const { return ranks_.find(pair_key(left, right), no_rank); }
  int32_t merged(uint32_t rank) const { return merged_[rank]; }

  /// Merge the symbols in place and shrink the vector to what remains. At most 2^32 - 2 symbols.
  void merge(std::vector<int32_t>& symbols, Scratch& scratch) const;

 private:
  static uint64_t pair_key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  void merge_short(std::vector<int32_t>& symbols) const;
  void merge_long(std::vector<int32_t>& symbols, Scratch& scratch) const;

  PairMap ranks_;
  std::vector<int32_t> merged_;
};

}  // namespace turbo::text
