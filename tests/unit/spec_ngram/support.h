// What the tests share: trees as sets of paths, a plain model of the corpus to compare with, and a look inside the real
// one.
#pragma once

#include <gtest/gtest.h>

#include <list>
#include <map>
#include <random>
#include <set>
#include <string>
#include <turbo/draft/ngram.hpp>
#include <vector>

namespace turbo::draft {

using Tokens = std::vector<int32_t>;

/// Invariants of a corpus that rests.
struct NgramProbe {
  static void check(const NgramCorpus& corpus) {
    const auto& nodes = corpus.nodes_;
    std::map<uint32_t, uint32_t> place;  // by last use, the newest first
    for (uint32_t id = nodes[0].older; id != 0; id = nodes[id].older) {
      ASSERT_TRUE(place.emplace(id, place.size()).second);
      ASSERT_EQ(static_cast<uint32_t>(nodes[nodes[id].older].newer), id);
    }
    ASSERT_EQ(place.size(), corpus.n_nodes());
    ASSERT_EQ(nodes.used() + nodes.free(), corpus.settings().capacity);
    ASSERT_LE(nodes.used(), corpus.settings().capacity);
    for (const auto& [id, at] : place) {
      const uint32_t parent = nodes[id].parent;
      ASSERT_TRUE(parent == 0 || place.at(parent) < at) << "a parent is used no less recently than its children";
      ASSERT_EQ(corpus.table_.find(parent, nodes[id].token), id);
    }
    size_t n_children = 0;
    check_children(corpus, 0, n_children);
    for (const auto& [id, at] : place) check_children(corpus, id, n_children);
    ASSERT_EQ(n_children, place.size());
  }
  static void check_children(const NgramCorpus& corpus, uint32_t parent, size_t& n) {
    const auto& nodes = corpus.nodes_;
    std::vector<uint32_t> children;
    for (uint32_t id = nodes[parent].first_child, before = 0; id != 0; before = id, id = nodes[id].next) {
      ASSERT_EQ(static_cast<uint32_t>(nodes[id].parent), parent);
      ASSERT_EQ(static_cast<uint32_t>(nodes[id].previous), before);
      children.push_back(id);
    }
    n += children.size();
    if (parent == 0 || corpus.settings().match != NgramMatch::prob) return;
    for (size_t i = 0; i < std::min<size_t>(children.size(), corpus.settings().max_breadth); ++i)
      for (size_t k = i + 1; k < children.size(); ++k) ASSERT_TRUE(corpus.better(children[i], children[k]));
  }
  /// Every count, by n-gram.
  static std::map<Tokens, uint32_t> counts(const NgramCorpus& corpus) {
    std::map<Tokens, uint32_t> all;
    const auto& nodes = corpus.nodes_;
    for (uint32_t id = nodes[0].older; id != 0; id = nodes[id].older) {
      Tokens gram;
      for (uint32_t at = id; at != 0; at = nodes[at].parent)
        gram.insert(gram.begin(), static_cast<int32_t>(nodes[at].token));
      all[gram] = nodes[id].frequency;
    }
    return all;
  }
};

/// The rules of the corpus in the plainest words: maps, lists and full sorts.
class PlainCorpus {
 public:
  explicit PlainCorpus(const NgramSettings& settings) : s_(settings) {}

  void insert(const Tokens& text) {
    for (size_t start = 0; start < text.size(); ++start) {
      const Tokens window(text.begin() + static_cast<std::ptrdiff_t>(start),
                          text.begin() + static_cast<std::ptrdiff_t>(std::min(text.size(), start + s_.max_depth)));
      while (nodes_.size() + window.size() > s_.capacity - 1) evict();
      Tokens path;
      for (const int32_t token : window) {
        auto& order = recent_[path];
        order.remove(token);
        order.push_front(token);
        path.push_back(token);
        ++nodes_[path];
      }
      for (; !path.empty(); path.pop_back()) {
        used_.remove(path);
        used_.push_front(path);
      }
    }
  }

  std::vector<Tokens> match(const Tokens& context, size_t budget) const {
    tree_.clear();
    budget_ = budget;
    for (size_t depth = std::min<size_t>(context.size(), s_.max_depth); depth > 0 && tree_.size() < budget; --depth) {
      const Tokens anchor(context.end() - static_cast<std::ptrdiff_t>(depth), context.end());
      if (!nodes_.count(anchor) || children(anchor).empty()) continue;
      if (s_.match == NgramMatch::bfs)
        bfs(anchor);
      else
        prob(anchor);
    }
    return tree_;
  }
  const std::map<Tokens, uint32_t>& counts() const { return nodes_; }

 private:
  std::vector<int32_t> children(const Tokens& path) const {
    const auto found = recent_.find(path);
    if (found == recent_.end()) return {};
    std::vector<int32_t> all(found->second.begin(), found->second.end());
    if (s_.match == NgramMatch::prob)
      std::sort(all.begin(), all.end(), [&](int32_t a, int32_t b) {
        const uint32_t fa = count(path, a), fb = count(path, b);
        return fa != fb ? fa > fb : a < b;
      });
    return all;
  }
  uint32_t count(Tokens path, int32_t token) const {
    path.push_back(token);
    return nodes_.at(path);
  }
  static Tokens plus(Tokens path, int32_t token) {
    path.push_back(token);
    return path;
  }
  bool place(const Tokens& path) const {
    if (std::find(tree_.begin(), tree_.end(), path) != tree_.end()) return true;
    if (tree_.size() == budget_) return false;
    tree_.push_back(path);
    return true;
  }
  void bfs(const Tokens& anchor) const {
    const double levels = std::max(1.0, s_.max_depth - 1.0), slope = (s_.max_breadth - s_.min_breadth) / levels;
    std::list<std::tuple<Tokens, double>> queue{
        {Tokens{}, (levels - static_cast<double>(anchor.size())) * slope + s_.min_breadth}};
    for (; !queue.empty(); queue.pop_front()) {
      const auto [drafted, breadth] = queue.front();
      Tokens path = anchor;
      path.insert(path.end(), drafted.begin(), drafted.end());
      int left = std::max(1, static_cast<int>(breadth));
      for (const int32_t child : children(path)) {
        if (left-- == 0) break;
        if (!place(plus(drafted, child))) return;
        queue.push_back({plus(drafted, child), breadth - slope});
      }
    }
  }
  void prob(const Tokens& anchor) const {
    std::map<std::pair<double, uint64_t>, Tokens> heap;  // by (-score, push order)
    uint64_t pushed = 0;
    const auto push = [&](const Tokens& drafted, double score) {
      Tokens path = anchor;
      path.insert(path.end(), drafted.begin(), drafted.end());
      std::vector<int32_t> best = children(path);
      if (best.size() > s_.max_breadth) best.resize(s_.max_breadth);
      double sum = 0;
      for (const int32_t child : best) sum += count(path, child);
      for (const int32_t child : best) heap[{-(count(path, child) / sum * score), pushed++}] = plus(drafted, child);
    };
    push({}, 1.0);
    while (!heap.empty() && tree_.size() < budget_) {
      const auto [key, drafted] = *heap.begin();
      heap.erase(heap.begin());
      place(drafted);
      push(drafted, -key.first);
    }
  }
  void evict() {
    const Tokens leaf = used_.back();
    used_.pop_back();
    nodes_.erase(leaf);
    const Tokens parent(leaf.begin(), leaf.end() - 1);
    recent_[parent].remove(leaf.back());
    if (recent_[parent].empty()) recent_.erase(parent);
  }

  NgramSettings s_;
  std::map<Tokens, uint32_t> nodes_;
  std::map<Tokens, std::list<int32_t>> recent_;
  std::list<Tokens> used_;
  mutable std::vector<Tokens> tree_;
  mutable size_t budget_ = 0;
};

/// Path of each node, in creation order; checks that the tree is one.
inline std::vector<Tokens> paths(const DraftNodes& draft, uint32_t budget) {
  std::vector<Tokens> all;
  EXPECT_LE(draft.size(), budget);
  EXPECT_EQ(draft.parents.size(), draft.tokens.size());
  EXPECT_EQ(draft.scores.size(), draft.tokens.size());
  for (uint32_t i = 0; i < draft.size(); ++i) {
    EXPECT_LT(draft.parents[i], static_cast<int32_t>(i)) << "parents come first";
    EXPECT_GE(draft.parents[i], -1);
    Tokens path = draft.parents[i] < 0 ? Tokens{} : all[static_cast<size_t>(draft.parents[i])];
    path.push_back(draft.tokens[i]);
    EXPECT_EQ(std::count(all.begin(), all.end(), path), 0) << "siblings are distinct";
    all.push_back(path);
  }
  return all;
}

inline std::vector<Tokens> match(const NgramCorpus& corpus, const Tokens& context, uint32_t budget,
                                 const NgramQuery& query = {}) {
  DraftNodes draft;
  EXPECT_TRUE(corpus.match(context, budget, query, draft));
  return paths(draft, budget);
}

/// "44>55" style: parent's token and token, in creation order; ^ is the root.
inline std::string edges(const std::vector<Tokens>& tree) {
  std::string text;
  for (const Tokens& path : tree) {
    text += text.empty() ? "" : " ";
    text += path.size() == 1 ? "^" : std::to_string(path[path.size() - 2]);
    text += ">" + std::to_string(path.back());
  }
  return text;
}

inline Tokens range(int32_t first, int32_t n) {
  Tokens tokens;
  for (int32_t i = 0; i < n; ++i) tokens.push_back(first + i);
  return tokens;
}

/// A text with repeats: words of a small vocabulary, and pieces of what came before.
inline Tokens random_text(std::mt19937& random, size_t n, int32_t vocabulary) {
  Tokens text;
  while (text.size() < n) {
    if (text.size() > 4 && random() % 3 == 0) {
      const size_t from = random() % text.size(), length = 1 + random() % 12;
      for (size_t i = 0; i < length && from + i < text.size() && text.size() < n; ++i) text.push_back(text[from + i]);
    } else {
      text.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(vocabulary)));
    }
  }
  return text;
}

}  // namespace turbo::draft
