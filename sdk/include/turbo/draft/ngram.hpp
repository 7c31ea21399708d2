// Corpus of n-grams in a trie, and drafts from it: what followed the last tokens of a context, in everything inserted
// so far.
//
// A node per distinct n-gram of up to max_depth tokens: 32 bytes, grown in chunks as needed, plus 8 bytes per slot of a
// table by (parent, token). Full, the corpus forgets what was longest not used. Counts are true: an n-gram's count is
// how often it occurred in what was inserted (as long as it is remembered), in whatever pieces and order.
//
// Threads: one writer at a time (insert, extend, reset, load); any number of readers (match), at the same time as the
// writer. Readers never lock and never wait: match answers false in the rare case that the writer reused nodes under it
// several times. Without a writer at work, the same calls give the same drafts.
#pragma once

#include <cassert>
#include <cstdint>
#include <span>
#include <string>
#include <turbo/draft/draft_nodes.hpp>
#include <turbo/draft/ngram/walk.hpp>
#include <turbo/plugin.hpp>

namespace turbo::draft {

/// Order in which continuations are taken: the most recent first, level by level; or the likeliest path first.
enum class NgramMatch { bfs, prob };

struct NgramSettings {
  uint32_t max_depth = 18;                     // tokens, 2..4096
  uint32_t min_breadth = 1, max_breadth = 10;  // children that a draft node gets, 1..4096
  NgramMatch match = NgramMatch::bfs;
  uint64_t capacity = 10'000'000;  // nodes, the root included; at least max_depth + 1
};

struct NgramQuery {
  uint32_t longest = UINT32_MAX;  // ignore suffixes of the context that are longer
  uint32_t skip_anchors = 0;      // leave out that many of the longest matches
};

class NgramCorpus {
 public:
  /// Throws Failure for settings that make no corpus.
  explicit NgramCorpus(const NgramSettings& settings)
      : settings_(checked(settings)),
        shape_{settings.max_depth, settings.min_breadth, settings.max_breadth},
        nodes_(settings.capacity),
        table_(nodes_, settings.capacity),
        path_(settings.max_depth) {}

  const NgramSettings& settings() const { return settings_; }

  /// [writer] All n-grams of a text.
  void insert(std::span<const int32_t> tokens) { extend({}, tokens); }
  /// [writer] The n-grams that end in `fresh`, which follows `context`: inserting a text in pieces counts the same as
  /// at once. Only the last max_depth - 1 tokens of the context matter.
  void extend(std::span<const int32_t> context, std::span<const int32_t> fresh) {
    const Writing writing(*this);
    const size_t kept = std::min<size_t>(context.size(), settings_.max_depth - 1);
    context = context.last(kept);
    for (size_t start = 0; start < kept; ++start) {
      // It must reach into the fresh tokens.
      const size_t from_fresh = std::min<size_t>(settings_.max_depth - (kept - start), fresh.size());
      if (from_fresh > 0) window(context.subspan(start), fresh.first(from_fresh));
    }
    for (size_t start = 0; start < fresh.size(); ++start)
      window({}, fresh.subspan(start, std::min<size_t>(settings_.max_depth, fresh.size() - start)));
  }
  /// [writer] Forget everything.
  void reset() {
    const Writing writing(*this);
    table_.clear();
    nodes_[0].first_child = 0;
    nodes_[0].newer = 0;
    nodes_[0].older = 0;
    nodes_.give_all(readers_);
    table_.collect(readers_);
  }

  /// [any] Draft of at most max_nodes nodes after `context`; empty when nothing matches. False, and an empty draft: the
  /// writer was in the way too often.
  bool match(std::span<const int32_t> context, uint32_t max_nodes, const NgramQuery& query, DraftNodes& out) const {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      out.clear();
      const detail::NgramReaders::Scope scope(readers_);
      build(context, max_nodes, query, out);
      if (scope.valid()) return true;
    }
    out.clear();
    return false;
  }

  /// [any] N-grams remembered.
  uint64_t n_nodes() const { return nodes_.used() - 1; }
  /// [any] Memory in use.
  uint64_t bytes() const { return nodes_.bytes() + table_.bytes(); }
  /// [writer] How often an n-gram occurred; 0 when it is not remembered.
  uint32_t frequency(std::span<const int32_t> tokens) const {
    uint32_t node = 0;
    for (const int32_t token : tokens)
      if ((node = table_.find(node, static_cast<uint32_t>(token))) == 0) return 0;
    return node == 0 ? 0 : nodes_[node].frequency;
  }

 private:
  friend class NgramState;   // ngram/state.hpp
  friend struct NgramProbe;  // tests
  static constexpr int kAttempts = 4;

  /// Two writers at once are a bug of the caller.
  class Writing {
   public:
    explicit Writing(NgramCorpus& corpus) : corpus_(corpus) {
      [[maybe_unused]] const bool busy = corpus_.writing_.exchange(true, std::memory_order_acquire);
      assert(!busy && "NgramCorpus has one writer at a time");
    }
    ~Writing() { corpus_.writing_.store(false, std::memory_order_release); }
    Writing(const Writing&) = delete;
    Writing& operator=(const Writing&) = delete;

   private:
    NgramCorpus& corpus_;
  };

  /// Makes the nodes of a path the most recently used, each ahead of its children, however far the path got.
  class Touching {
   public:
    explicit Touching(NgramCorpus& corpus) : corpus_(corpus) {}
    ~Touching() {
      while (n_ > 0) {
        const uint32_t id = corpus_.path_[--n_];
        corpus_.unlink_use(id);
        corpus_.link_use(id);
      }
    }
    Touching(const Touching&) = delete;
    Touching& operator=(const Touching&) = delete;
    void add(uint32_t id) { corpus_.path_[n_++] = id; }

   private:
    NgramCorpus& corpus_;
    size_t n_ = 0;
  };

  static const NgramSettings& checked(const NgramSettings& s) {
    const auto require = [](bool ok, const std::string& what, const char* hint) {
      if (!ok) throw Failure(TURBO_INVALID_ARGUMENT, "n-gram corpus: " + what, hint);
    };
    require(s.max_depth >= 2 && s.max_depth <= 4096, "max depth " + std::to_string(s.max_depth) + " is not in 2..4096",
            "18 is usual");
    require(s.min_breadth >= 1, "min breadth is 0", "1 is usual");
    require(s.max_breadth <= 4096, "max breadth " + std::to_string(s.max_breadth) + " is above 4096", "10 is usual");
    require(s.min_breadth <= s.max_breadth,
            "min breadth " + std::to_string(s.min_breadth) + " is above max breadth " + std::to_string(s.max_breadth),
            "raise max breadth");
    require(s.match == NgramMatch::bfs || s.match == NgramMatch::prob, "match type is neither BFS nor PROB",
            "choose one");
    require(s.capacity > s.max_depth,
            "capacity " + std::to_string(s.capacity) + " cannot hold one sequence of " + std::to_string(s.max_depth) +
                " tokens",
            "one node per token and one more are needed");
    require(s.capacity <= 4'000'000'000, "capacity " + std::to_string(s.capacity) + " is above 4000000000",
            "each node takes 32 bytes");
    return s;
  }

  void build(std::span<const int32_t> context, uint32_t max_nodes, const NgramQuery& query, DraftNodes& out) const {
    detail::NgramWalk walk(nodes_, table_, shape_, max_nodes, out);
    uint32_t to_skip = query.skip_anchors;
    size_t depth = std::min<size_t>({context.size(), settings_.max_depth, query.longest});
    for (; depth > 0 && !walk.full(); --depth) {
      const uint32_t anchor = walk.follow(context.last(depth));
      if (anchor == 0 || !walk.has_children(anchor)) continue;
      if (to_skip > 0) {
        --to_skip;
        continue;
      }
      if (out.match_length == 0) out.match_length = static_cast<uint32_t>(depth);
      if (settings_.match == NgramMatch::bfs)
        walk.bfs(anchor, static_cast<uint32_t>(depth));
      else
        walk.prob(anchor);
    }
  }

  /// One n-gram `known` + `counted` and its beginnings; those that end in `counted` occurred once more.
  void window(std::span<const int32_t> known, std::span<const int32_t> counted) {
    table_.collect(readers_);
    const uint64_t length = known.size() + counted.size();
    if (length > nodes_.free()) evict(length - nodes_.free());
    Touching touching(*this);
    uint32_t node = 0;
    for (const int32_t token : known) touching.add(node = child_of(node, static_cast<uint32_t>(token), false));
    for (const int32_t token : counted) touching.add(node = child_of(node, static_cast<uint32_t>(token), true));
  }

  uint32_t child_of(uint32_t parent, uint32_t token, bool count) {
    if (const uint32_t id = table_.find(parent, token)) {
      if (count) bump(id, parent);
      return id;
    }
    table_.reserve(parent, token);
    const uint32_t id = nodes_.take(readers_);
    detail::NgramNode& node = nodes_[id];
    node.token = token;
    node.parent = parent;
    node.first_child = 0;
    node.frequency = count ? 1 : 0;
    link_child(id, parent);
    table_.add(id, parent, token);
    link_use(id);
    return id;
  }

  void bump(uint32_t id, uint32_t parent) {
    detail::NgramNode& node = nodes_[id];
    if (node.frequency != UINT32_MAX) node.frequency = node.frequency + 1;
    // The root is no anchor: the order of its children is nobody's concern. The first child cannot get any better.
    if (parent == 0 || nodes_[parent].first_child == id) return;
    unlink_child(id, parent);
    link_child(id, parent);
  }

  void evict(uint64_t n) {
    nodes_.reserve(n);
    for (; n > 0; --n) {
      const uint32_t id = nodes_[0].newer;
      detail::NgramNode& node = nodes_[id];
      if (id == 0 || node.first_child != 0)
        throw Failure(TURBO_INTERNAL, "n-gram corpus: the least recently used node is no leaf");
      const uint32_t parent = node.parent;
      table_.remove(id, parent, node.token);
      forget_child(id, parent);
      unlink_use(id);
      nodes_.give(id);
    }
  }

  // List of all nodes by last use: a ring through the root, whose `older` is the newest node and whose `newer` is the
  // oldest.
  void link_use(uint32_t id) {
    const uint32_t newest = nodes_[0].older;
    nodes_[id].newer = 0;
    nodes_[id].older = newest;
    nodes_[newest].newer = id;
    nodes_[0].older = id;
  }
  void unlink_use(uint32_t id) {
    const uint32_t newer = nodes_[id].newer, older = nodes_[id].older;
    nodes_[newer].older = older;
    nodes_[older].newer = newer;
  }

  // Children. BFS: by recency. PROB: the first max_breadth are the best by (frequency, then lower token) in that order;
  // the rest, which no draft reads, is in any order.
  bool better(uint32_t a, uint32_t b) const {
    const uint32_t fa = nodes_[a].frequency, fb = nodes_[b].frequency;
    return fa != fb ? fa > fb : static_cast<int32_t>(nodes_[a].token) < static_cast<int32_t>(nodes_[b].token);
  }
  void link_child(uint32_t id, uint32_t parent) {
    uint32_t before = 0, after = nodes_[parent].first_child;
    if (settings_.match == NgramMatch::prob && parent != 0)
      for (uint32_t i = 0; i < settings_.max_breadth && after != 0 && !better(id, after); ++i) {
        before = after;
        after = nodes_[after].next;
      }
    link_between(id, parent, before, after);
  }
  void link_between(uint32_t id, uint32_t parent, uint32_t before, uint32_t after) {
    nodes_[id].previous = before;
    nodes_[id].next = after;
    if (after != 0) nodes_[after].previous = id;
    (before != 0 ? nodes_[before].next : nodes_[parent].first_child) = id;
  }
  /// The node's own links stay: a reader that stands on it finds its way on.
  void unlink_child(uint32_t id, uint32_t parent) {
    const uint32_t before = nodes_[id].previous, after = nodes_[id].next;
    if (after != 0) nodes_[after].previous = before;
    (before != 0 ? nodes_[before].next : nodes_[parent].first_child) = after;
  }
  void forget_child(uint32_t id, uint32_t parent) {
    bool among_best = false;
    uint32_t last = 0, next = nodes_[parent].first_child;
    if (settings_.match == NgramMatch::prob && parent != 0)
      for (uint32_t i = 0; i < settings_.max_breadth && next != 0; ++i, next = nodes_[next].next) {
        if (next == id)
          among_best = true;
        else
          last = next;
      }
    unlink_child(id, parent);
    if (!among_best || next == 0) return;
    // The best of the rest moves up.
    uint32_t best = next;
    for (uint32_t at = nodes_[next].next; at != 0; at = nodes_[at].next)
      if (better(at, best)) best = at;
    if (best == next) return;
    unlink_child(best, parent);
    link_between(best, parent, last, next);
  }

  const NgramSettings settings_;
  const detail::NgramShape shape_;
  mutable detail::NgramReaders readers_;
  detail::NgramNodes nodes_;
  detail::NgramTable table_;
  std::vector<uint32_t> path_;
  std::atomic<bool> writing_{false};
};

}  // namespace turbo::draft
