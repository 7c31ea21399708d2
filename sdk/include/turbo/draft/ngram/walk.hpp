// Builds one draft from an n-gram corpus. Reads only; whatever it reads, it ends after a bounded number of steps.
#pragma once

#include <algorithm>
#include <span>
#include <turbo/draft/draft_nodes.hpp>
#include <turbo/draft/ngram/table.hpp>

namespace turbo::draft::detail {

struct NgramShape {
  uint32_t max_depth, min_breadth, max_breadth;
};

class NgramWalk {
 public:
  NgramWalk(const NgramNodes& nodes, const NgramTable& table, const NgramShape& shape, uint32_t max_nodes,
            DraftNodes& out)
      : nodes_(nodes), table_(table), shape_(shape), max_nodes_(max_nodes), out_(out) {}

  bool full() const { return out_.size() >= max_nodes_; }

  /// The node that the tokens lead to from the root, or 0.
  uint32_t follow(std::span<const int32_t> tokens) const {
    uint32_t node = 0;
    for (const int32_t token : tokens)
      if ((node = table_.find(node, static_cast<uint32_t>(token))) == 0) break;
    return node;
  }
  bool has_children(uint32_t node) const { return nodes_[node].first_child != 0; }

  /// Level by level in list order, narrow after long matches, wide after short ones, narrower with each level.
  void bfs(uint32_t anchor, uint32_t depth) {
    const double levels = std::max(1u, shape_.max_depth - 1);
    const double slope = (shape_.max_breadth - shape_.min_breadth) / levels;
    queue_.clear();
    queue_.push_back({-1, (levels - depth) * slope + shape_.min_breadth, 1.0f, anchor});
    // Each node of the draft is met once per anchor; a list in the middle of a change could repeat some.
    for (size_t at = 0; at < queue_.size() && at <= max_nodes_; ++at) {
      const Branch branch = queue_[at];
      const auto breadth = static_cast<uint32_t>(std::max(1.0, branch.breadth));
      const float seen = static_cast<float>(nodes_[branch.node].frequency);
      uint32_t child = nodes_[branch.node].first_child;
      for (uint32_t i = 0; i < breadth && child != 0; ++i, child = nodes_[child].next) {
        const float share = std::min(1.0f, static_cast<float>(nodes_[child].frequency) / std::max(1.0f, seen));
        const int32_t slot = place(child, branch.slot, branch.score * share);
        if (slot < 0) return;
        queue_.push_back({slot, branch.breadth - slope, branch.score * share, child});
      }
    }
  }

  /// Likeliest path first.
  void prob(uint32_t anchor) {
    heap_.clear();
    n_pushed_ = 0;
    push_children(anchor, -1, 1.0);
    for (uint32_t pops = 0; pops <= max_nodes_ && !heap_.empty() && !full(); ++pops) {
      std::pop_heap(heap_.begin(), heap_.end());
      const Candidate best = heap_.back();
      heap_.pop_back();
      const int32_t slot = place(best.node, best.parent_slot, static_cast<float>(best.score));
      push_children(best.node, slot, best.score);
    }
  }

 private:
  struct Branch {
    int32_t slot;
    double breadth;
    float score;
    uint32_t node;
  };
  struct Candidate {
    double score;
    uint32_t order, node;
    int32_t parent_slot;
    // Equal scores: first come, first served.
    bool operator<(const Candidate& other) const {
      return score != other.score ? score < other.score : order > other.order;
    }
  };

  /// The slot of the node's token under a slot, new if there is none; -1 when the draft is full.
  int32_t place(uint32_t node, int32_t parent_slot, float score) {
    const auto token = static_cast<int32_t>(nodes_[node].token);
    const int32_t slot = out_.find(token, parent_slot);
    if (slot >= 0) return slot;
    return full() ? -1 : out_.push(token, parent_slot, score);
  }

  /// The first max_breadth children are the most frequent ones, see NgramCorpus.
  void push_children(uint32_t node, int32_t slot, double score) {
    const size_t first = heap_.size();
    uint64_t sum = 0;
    taken_.clear();
    uint32_t child = nodes_[node].first_child;
    for (uint32_t i = 0; i < shape_.max_breadth && child != 0; ++i, child = nodes_[child].next) {
      taken_.push_back({child, nodes_[child].frequency});
      sum += taken_.back().second;
    }
    for (const auto& [id, frequency] : taken_) {
      const double share = static_cast<double>(frequency) / static_cast<double>(std::max<uint64_t>(sum, 1));
      heap_.push_back({share * score, n_pushed_++, id, slot});
    }
    for (size_t end = first + 1; end <= heap_.size(); ++end)
      std::push_heap(heap_.begin(), heap_.begin() + static_cast<std::ptrdiff_t>(end));
  }

  const NgramNodes& nodes_;
  const NgramTable& table_;
  const NgramShape& shape_;
  const uint32_t max_nodes_;
  DraftNodes& out_;
  std::vector<Branch> queue_;
  std::vector<Candidate> heap_;
  std::vector<std::pair<uint32_t, uint32_t>> taken_;
  uint32_t n_pushed_ = 0;
};

}  // namespace turbo::draft::detail
