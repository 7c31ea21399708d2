// Finding many strings in a text in one pass (Aho-Corasick). Immutable after construction, any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/bpe/hash_index.h"

namespace turbo::text {

class MultiMatch {
 public:
  enum class Kind {
    /// A match is reported where it ends; of several that end together, the longest.
    first_end,
    /// Of all matches the one that starts first; of several that start together, the longest.
    first_start,
  };
  static constexpr uint32_t root = 0;
  /// Only of first_start: no continuation can give an earlier match than those seen.
  static constexpr uint32_t dead = ~uint32_t{0};

  MultiMatch() : MultiMatch({}, Kind::first_end) {}
  /// Empty patterns are ignored; of equal ones the first counts. At most 2^31 bytes together.
  MultiMatch(const std::vector<std::string_view>& patterns, Kind kind);

  bool empty() const { return n_patterns_ == 0; }
  uint32_t step(uint32_t state, uint8_t byte) const;
  /// Index of the pattern that ends in this state, or -1; its length with pattern_length().
  int32_t match(uint32_t state) const { return nodes_[state].match; }
  size_t pattern_length(int32_t pattern) const { return lengths_[pattern]; }
  /// Length of the longest text suffix that begins a pattern.
  size_t depth(uint32_t state) const { return nodes_[state].depth; }

  struct Found {
    int32_t pattern = -1;  ///< -1: none
    size_t begin = 0;
  };
  /// The first match at or after `from`; kind first_start only.
  Found find(std::string_view text, size_t from) const;

 private:
  struct Node {
    uint32_t fail = root;
    uint32_t depth = 0;
    int32_t match = -1;
  };
  static uint64_t edge_key(uint32_t node, uint8_t byte) { return static_cast<uint64_t>(node) << 8 | byte; }
  uint32_t child(uint32_t node, uint8_t byte) const {
    return node == root ? root_children_[byte] : edges_.find(edge_key(node, byte), root);
  }
  void link(const std::vector<std::pair<uint32_t, uint8_t>>& parents, Kind kind);

  std::vector<Node> nodes_;
  std::vector<size_t> lengths_;
  std::array<uint32_t, 256> root_children_{};  // root: none
  PairMap edges_;
  size_t n_patterns_ = 0;
};

}  // namespace turbo::text
