// TreeMerger: the best tree of several candidate trees. One thread; kept for its memory.
//
// Nodes with the same path and token are one. A node is as good as the longest context match of the trees that have it,
// then its score (frequency), then how early its tree created it (recency); it becomes available with its parent, and
// the best available one is next. So the result is closed under parent, and its first n nodes are the best n.
#pragma once

#include <turbo/draft/draft_nodes.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace turbo::draft {

class TreeMerger {
 public:
  void clear() { nodes_.clear(); }
  uint32_t size() const { return static_cast<uint32_t>(nodes_.size()); }

  /// Parents come before children; a node whose parent does not is left out with all below it.
  void add(const DraftNodes& tree) {
    map_.assign(tree.tokens.size(), kNone);
    for (uint32_t i = 0; i < tree.tokens.size(); ++i) {
      const int32_t source_parent = tree.parents[i];
      if (source_parent < -1 || source_parent >= static_cast<int32_t>(i)) continue;
      const int32_t parent = source_parent < 0 ? -1 : map_[static_cast<uint32_t>(source_parent)];
      if (source_parent >= 0 && parent == kNone) continue;
      const Node seen{tree.tokens[i], parent, tree.match_length, i, i < tree.scores.size() ? tree.scores[i] : 0.0f};
      int32_t& at = map_[i];
      at = find(seen.parent, seen.token);
      if (at == kNone) {
        at = static_cast<int32_t>(nodes_.size());
        nodes_.push_back(seen);
      } else if (better(seen, nodes_[static_cast<uint32_t>(at)])) {
        nodes_[static_cast<uint32_t>(at)] = seen;
      }
    }
  }

  /// The best max_nodes nodes. `demoted(parent token, token)`: such a node comes after all available others; the
  /// parent token of a root's child is `root`.
  template <typename Demoted>
  void best(uint32_t max_nodes, int32_t root, Demoted&& demoted, DraftNodes& out) {
    out.clear();
    map_.assign(nodes_.size(), kNone);  // union node -> node of out
    demoted_.resize(nodes_.size());
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = nodes_[i];
      demoted_[i] = demoted(node.parent < 0 ? root : nodes_[static_cast<uint32_t>(node.parent)].token, node.token);
      out.match_length = std::max(out.match_length, node.match);
    }
    while (out.tokens.size() < max_nodes) {
      int32_t best = kNone;
      for (uint32_t i = 0; i < nodes_.size(); ++i) {
        if (map_[i] != kNone || (nodes_[i].parent >= 0 && map_[static_cast<uint32_t>(nodes_[i].parent)] == kNone)) continue;
        if (best == kNone || goes_before(i, static_cast<uint32_t>(best))) best = static_cast<int32_t>(i);
      }
      if (best == kNone) return;
      const Node& node = nodes_[static_cast<uint32_t>(best)];
      map_[static_cast<uint32_t>(best)] = static_cast<int32_t>(out.tokens.size());
      out.tokens.push_back(node.token);
      out.parents.push_back(node.parent < 0 ? -1 : map_[static_cast<uint32_t>(node.parent)]);
      out.scores.push_back(node.score);
    }
  }
  void best(uint32_t max_nodes, DraftNodes& out) {
    best(max_nodes, -1, [](int32_t, int32_t) { return false; }, out);
  }

 private:
  static constexpr int32_t kNone = -2;

  struct Node {
    int32_t token, parent;
    uint32_t match, order;  // order: of creation in its tree
    float score;
  };

  static bool better(const Node& a, const Node& b) {
    if (a.match != b.match) return a.match > b.match;
    if (a.score != b.score) return a.score > b.score;
    return a.order < b.order;
  }
  // Equal ones keep the order in which the trees came.
  bool goes_before(uint32_t a, uint32_t b) const {
    if (demoted_[a] != demoted_[b]) return !demoted_[a];
    return better(nodes_[a], nodes_[b]);
  }
  int32_t find(int32_t parent, int32_t token) const {
    for (uint32_t i = 0; i < nodes_.size(); ++i)
      if (nodes_[i].parent == parent && nodes_[i].token == token) return static_cast<int32_t>(i);
    return kNone;
  }

  std::vector<Node> nodes_;
  std::vector<int32_t> map_;
  std::vector<uint8_t> demoted_;
};

}  // namespace turbo::draft
