// Longest repeat of one sequence: where did the tokens that it ends with occur before, and what followed?
//
// A suffix automaton, extended token by token in amortised constant time; the state reached by the suffix link of the
// whole text is the longest suffix that occurred before. About 100 bytes per token. RepeatFinder keeps that bounded: it
// remembers between the newest half and all of `cap` tokens. One thread at a time.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <turbo/draft/draft_nodes.hpp>
#include <utility>
#include <vector>

namespace turbo::draft {

class SuffixAutomaton {
 public:
  struct Repeat {
    uint32_t length = 0;  // tokens of the longest suffix that occurred before; 0 = none
    uint32_t next = 0;    // index into text() of what followed its latest known earlier occurrence
  };

  SuffixAutomaton() { clear(); }

  void clear() {
    text_.clear();
    edges_.assign(1, {});
    states_.assign(1, {});
    states_[0].link = kNone;
    table_.assign(64, 0);
    last_ = 0;
    repeat_ = {};
  }
  /// Room for a text of n tokens: what follows copies nothing until it is used up.
  void reserve(size_t n) {
    text_.reserve(n);
    states_.reserve(n + n / 2);
    edges_.reserve(2 * n);
    if (2 * n > table_.size() / 2) rehash(std::bit_ceil(4 * n));
  }
  void push(int32_t token) {
    const auto end = static_cast<uint32_t>(text_.size() + 1);
    text_.push_back(token);
    const uint32_t fresh = new_state({states_[last_].length + 1, 0, end, 0});
    uint32_t from = last_;
    for (; from != kNone && find(from, token) == 0; from = states_[from].link) link(from, token, fresh);
    if (from != kNone) {
      const uint32_t edge = find(from, token), target = edges_[edge].target;
      states_[fresh].link = states_[from].length + 1 == states_[target].length ? target : split(from, token, target);
    }
    last_ = fresh;
    const State& longest = states_[states_[fresh].link];
    repeat_ = longest.length == 0 ? Repeat{} : Repeat{longest.length, longest.end};
    uint32_t told = states_[fresh].link;
    for (uint32_t i = 0; i < kTold && told != 0; ++i, told = states_[told].link) states_[told].end = end;
  }

  std::span<const int32_t> text() const { return text_; }
  Repeat repeat() const { return repeat_; }
  uint64_t bytes() const {
    return text_.capacity() * sizeof(int32_t) + states_.capacity() * sizeof(State) + edges_.capacity() * sizeof(Edge) +
           table_.capacity() * sizeof(uint32_t);
  }

  /// A chain of at most max_nodes tokens that followed the longest repeat; a repeat that runs into the end of the text
  /// goes on periodically. Empty when there is none.
  void draft(uint32_t max_nodes, DraftNodes& out) const {
    out.clear();
    if (repeat_.length == 0) return;
    out.match_length = repeat_.length;
    // The longer the repeat, the likelier it goes on.
    const float share = 1.0f - 1.0f / (2.0f + static_cast<float>(repeat_.length));
    float score = 1.0f;
    const uint32_t period = static_cast<uint32_t>(text_.size()) - repeat_.next;
    for (uint32_t i = 0; i < max_nodes; ++i) {
      const int32_t token = i < period ? text_[repeat_.next + i] : out.tokens[i - period];
      score *= share;
      out.push(token, static_cast<int32_t>(i) - 1, score);
    }
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  // How many suffix links are told of each new occurrence. More would cost a token more; shorter suffixes know an older
  // occurrence.
  static constexpr uint32_t kTold = 16;

  struct State {
    uint32_t length = 0, link = 0;
    uint32_t end = 0;    // index behind the latest known occurrence
    uint32_t edges = 0;  // first edge; 0 = none
  };
  struct Edge {
    uint32_t state = 0, target = 0, next = 0;
    int32_t token = 0;
  };

  /// A copy of `target` for the shorter suffixes, which now also occur elsewhere.
  uint32_t split(uint32_t from, int32_t token, uint32_t target) {
    const uint32_t copy = new_state({states_[from].length + 1, states_[target].link, states_[target].end, 0});
    for (uint32_t edge = states_[target].edges; edge != 0; edge = edges_[edge].next)
      link(copy, edges_[edge].token, edges_[edge].target);
    for (; from != kNone; from = states_[from].link) {
      const uint32_t edge = find(from, token);
      if (edge == 0 || edges_[edge].target != target) break;
      edges_[edge].target = copy;
    }
    states_[target].link = copy;
    return copy;
  }

  uint32_t new_state(const State& state) {
    states_.push_back(state);
    return static_cast<uint32_t>(states_.size() - 1);
  }
  void link(uint32_t state, int32_t token, uint32_t target) {
    if (edges_.size() >= table_.size() / 2) rehash(2 * table_.size());
    edges_.push_back({state, target, states_[state].edges, token});
    states_[state].edges = static_cast<uint32_t>(edges_.size() - 1);
    put(states_[state].edges);
  }
  size_t home(uint32_t state, int32_t token) const {
    uint64_t x = (uint64_t{state} << 32 | static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15u;
    x ^= x >> 32;
    return static_cast<size_t>(x * 0xD6E8FEB86659FD93u >> 32) & (table_.size() - 1);
  }
  void put(uint32_t edge) {
    size_t at = home(edges_[edge].state, edges_[edge].token);
    while (table_[at] != 0) at = (at + 1) & (table_.size() - 1);
    table_[at] = edge;
  }
  /// The edge of a state, or 0.
  uint32_t find(uint32_t state, int32_t token) const {
    for (size_t at = home(state, token);; at = (at + 1) & (table_.size() - 1)) {
      const uint32_t edge = table_[at];
      if (edge == 0 || (edges_[edge].state == state && edges_[edge].token == token)) return edge;
    }
  }
  void rehash(size_t size) {
    table_.assign(size, 0);
    for (uint32_t edge = 1; edge < edges_.size(); ++edge) put(edge);
  }

  std::vector<int32_t> text_;
  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<uint32_t> table_;  // open addressing by (state, token): index of an edge; 0 = empty
  uint32_t last_ = 0;
  Repeat repeat_;
};

/// The longest repeat among the last tokens of an endless sequence: of no fewer than cap / 2 and no more than cap of
/// them.
class RepeatFinder {
 public:
  explicit RepeatFinder(uint32_t cap) : cap_(std::clamp(cap, 2u, 1u << 28)) {}

  void push(int32_t token) {
    current_.push(token);
    // The successor is fed ahead of time, so that taking over costs nothing.
    if (current_.text().size() > cap_ / 2) successor_.push(token);
    if (current_.text().size() < cap_) return;
    std::swap(current_, successor_);
    successor_ = {};
  }
  void push(std::span<const int32_t> tokens) {
    for (const int32_t token : tokens) push(token);
  }
  void reserve(size_t n) { current_.reserve(std::min<size_t>(n, cap_)); }
  uint32_t length() const { return current_.repeat().length; }
  void draft(uint32_t max_nodes, DraftNodes& out) const { current_.draft(max_nodes, out); }
  uint64_t bytes() const { return current_.bytes() + successor_.bytes(); }

 private:
  uint32_t cap_;
  SuffixAutomaton current_, successor_;
};

}  // namespace turbo::draft
