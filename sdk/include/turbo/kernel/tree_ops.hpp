// Tree verification on the host: the ops of abi/draft/tree_ops.h as plain functions, and the table over them.
//
// Every index that comes from outside is checked where it is used; walks and chains are bounded by the slots, so a tree
// with a loop ends in a Failure. Source of the arithmetic: SGLang-style tree speculation, with exact rather than rounded
// acceptance (strict comparison, double sums, no emission of a token without probability).
#pragma once

#include <turbo/abi/draft/tree_ops.h>
#include <turbo/plugin.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

namespace turbo::tree_ops {

namespace detail {

[[noreturn]] inline void refuse(const std::string& why) { throw Failure(TURBO_INVALID_ARGUMENT, "tree ops: " + why); }

inline void check_slots(uint32_t n_requests, uint32_t n_slots) {
  if (n_slots == 0 || n_slots > TURBO_TREE_MAX_SLOTS) refuse(std::to_string(n_slots) + " slots a request are not in 1.." + std::to_string(TURBO_TREE_MAX_SLOTS));
  if (uint64_t{n_requests} * n_slots > INT32_MAX) refuse("too many rows");
}

/// Children in rising order, from parents that lie before their children; -1 is no parent.
inline void link_children(const int64_t* parent, uint32_t n_slots, int64_t* next_token, int64_t* next_sibling) {
  std::fill(next_token, next_token + n_slots, -1);
  std::fill(next_sibling, next_sibling + n_slots, -1);
  for (uint32_t j = n_slots; j-- > 1;) {
    if (parent[j] < 0) continue;
    next_sibling[j] = next_token[parent[j]];
    next_token[parent[j]] = j;
  }
}

inline uint32_t packed_bytes(uint32_t n_slots) { return n_slots <= 8 ? 1 : n_slots <= 16 ? 2 : n_slots <= 32 ? 4 : 8; }

/// One request's rows of the mask, wherever they lie.
struct MaskRows {
  uint8_t* first;
  uint64_t pitch, column;  // bytes of a row; where slot 0 lies in it
  bool packed;
  uint32_t word;

  void set(uint32_t row, uint64_t visible, uint32_t n_slots) const {
    uint8_t* at = first + row * pitch + column;
    if (packed) std::memcpy(at, &visible, word);  // little-endian hosts
    else
      for (uint32_t i = 0; i < n_slots; ++i) at[i] = visible >> i & 1;
  }
};

inline uint64_t mask_size(const turbo_tree_build& a) {
  const uint64_t k = a.n_slots;
  if (a.mask_mode == TURBO_TREE_MASK_PACKED) return a.n_requests * k * packed_bytes(a.n_slots);
  uint64_t bytes = a.n_requests * k * k;
  if (a.mask_mode == TURBO_TREE_MASK_FULL)
    for (uint32_t b = 0; b < a.n_requests; ++b) bytes += k * static_cast<uint64_t>(a.prefix_len[b]);
  return bytes;
}

/// What can be told without reading the arrays.
inline void check_build(const turbo_tree_build& a) {
  check_slots(a.n_requests, a.n_slots);
  const uint64_t t = a.topk, d = a.depth;
  if (t == 0 || t > 4096 || d == 0 || d > 4096) refuse("topk " + std::to_string(t) + ", depth " + std::to_string(d));
  const uint64_t pool = t + (d - 1) * t * t;
  if (a.n_slots - 1 > pool) refuse(std::to_string(a.n_slots - 1) + " nodes of a pool of " + std::to_string(pool));
  if (a.mask_mode > TURBO_TREE_MASK_PACKED) refuse("mask mode " + std::to_string(a.mask_mode));
}

inline void check_mask(const turbo_tree_build& a) {
  for (uint32_t b = 0; b < a.n_requests; ++b)
    if (a.prefix_len[b] < 0 || a.prefix_len[b] > INT32_MAX) refuse("prefix of " + std::to_string(a.prefix_len[b]));
  if (a.mask_bytes < mask_size(a)) refuse("a mask of " + std::to_string(a.mask_bytes) + " bytes needs " + std::to_string(mask_size(a)));
}

inline void check_coins(const turbo_tree_coins& coins) {
  if (coins.vocabulary == 0) refuse("no vocabulary");
  if (!(coins.threshold_single >= 0 && coins.threshold_single <= 1 && coins.threshold_acc >= 0 && coins.threshold_acc <= 1)) refuse("thresholds are not in 0..1");
}

}  // namespace detail

inline void build(const turbo_tree_build& a) {
  using namespace detail;
  check_build(a);
  check_mask(a);
  const uint32_t k = a.n_slots;
  const uint64_t t = a.topk, d = a.depth, pool = t + (d - 1) * t * t, parents = t * (d - 1) + 1;
  uint64_t mask_at = 0;
  for (uint32_t b = 0; b < a.n_requests; ++b) {
    const int64_t* selected = a.selected + uint64_t{b} * (k - 1);
    const int64_t* parent_list = d > 1 ? a.parent_list + b * parents : nullptr;
    int64_t parent[TURBO_TREE_MAX_SLOTS] = {-1};
    uint64_t visible[TURBO_TREE_MAX_SLOTS] = {1};
    uint32_t orphans = 0;
    int64_t* position = a.positions + uint64_t{b} * k;
    position[0] = a.prefix_len[b];
    for (uint32_t j = 1; j < k; ++j) {
      const int64_t s = selected[j - 1];
      if (s < 0 || static_cast<uint64_t>(s) >= pool || (j > 1 && s <= selected[j - 2]))
        refuse("request " + std::to_string(b) + ": candidate " + std::to_string(s) + " is not in the pool or out of order");
      parent[j] = 0;
      if (const uint64_t group = static_cast<uint64_t>(s) / t; group > 0) {
        const int64_t* found = group < parents ? std::lower_bound(selected, selected + j - 1, parent_list[group]) : selected + j - 1;
        const bool there = found != selected + j - 1 && *found == parent_list[group];
        parent[j] = there ? found - selected + 1 : -1;
      }
      orphans += parent[j] < 0;
      visible[j] = (parent[j] < 0 ? 1 : visible[parent[j]]) | uint64_t{1} << j;
      position[j] = parent[j] < 0 ? position[0] + 1 : position[parent[j]] + 1;
    }
    const bool full = a.mask_mode == TURBO_TREE_MASK_FULL, packed = a.mask_mode == TURBO_TREE_MASK_PACKED;
    const uint64_t prefix = full ? static_cast<uint64_t>(a.prefix_len[b]) : 0;
    const MaskRows rows{static_cast<uint8_t*>(a.mask) + mask_at, packed ? packed_bytes(k) : prefix + k, prefix, packed, packed_bytes(k)};
    for (uint32_t j = 0; j < k; ++j) {
      rows.set(j, visible[j], k);
      a.retrieve_index[uint64_t{b} * k + j] = int64_t{b} * k + j;
    }
    mask_at += k * rows.pitch;
    link_children(parent, k, a.next_token + uint64_t{b} * k, a.next_sibling + uint64_t{b} * k);
    if (a.n_orphans) a.n_orphans[b] = orphans;
  }
}

inline void link(const turbo_tree_links& a) {
  using namespace detail;
  check_slots(a.n_requests, a.n_slots);
  const uint32_t k = a.n_slots;
  for (uint32_t b = 0; b < a.n_requests; ++b) {
    const uint8_t* mask = a.mask + uint64_t{b} * k * k;
    int64_t parent[TURBO_TREE_MAX_SLOTS];
    for (uint32_t j = 0; j < k; ++j) {
      parent[j] = -1;
      int64_t depth = 0;
      for (uint32_t i = 0; i < j; ++i)
        if (mask[j * k + i]) {
          parent[j] = i;
          ++depth;
        }
      a.positions[uint64_t{b} * k + j] = a.prefix_len[b] + depth;
      a.retrieve_index[uint64_t{b} * k + j] = int64_t{b} * k + j;
    }
    link_children(parent, k, a.next_token + uint64_t{b} * k, a.next_sibling + uint64_t{b} * k);
  }
}

namespace detail {

/// One request of a walk.
class Walk {
 public:
  Walk(const turbo_tree_walk& walk, uint32_t request) : walk_(walk), request_(request), base_(uint64_t{request} * walk.n_slots) {
    accept(0);
  }
  uint32_t node() const { return node_; }
  uint32_t row() const { return row_; }
  bool ended() const { return n_ == walk_.n_columns; }
  int64_t token(uint32_t slot) const { return walk_.candidates[base_ + slot]; }

  int64_t first_child() { return slot(walk_.next_token[base_ + node_]); }
  int64_t sibling(int64_t child) { return slot(walk_.next_sibling[base_ + static_cast<uint64_t>(child)]); }
  void accept(uint32_t slot) {
    const int64_t row = walk_.retrieve_index[base_ + slot];
    if (row < 0 || row >= int64_t{walk_.n_requests} * walk_.n_slots) refuse("row " + std::to_string(row) + " of slot " + std::to_string(slot));
    node_ = slot;
    row_ = static_cast<uint32_t>(row);
    walk_.accept_index[uint64_t{request_} * walk_.n_columns + n_++] = static_cast<int32_t>(row);
  }
  void emit(int64_t token) { walk_.predicts[row_] = static_cast<int32_t>(token); }
  void finish(int64_t token) {
    emit(token);
    walk_.n_accepted[request_] = static_cast<int32_t>(n_) - 1;
  }

 private:
  int64_t slot(int64_t at) {
    if (at >= walk_.n_slots || ++steps_ > walk_.n_slots) refuse("request " + std::to_string(request_) + ": its links are no tree");
    return at < 0 ? -1 : at;
  }

  const turbo_tree_walk& walk_;
  const uint32_t request_;
  const uint64_t base_;
  uint32_t node_ = 0, row_ = 0, n_ = 0, steps_ = 0;
};

inline void check_walk(const turbo_tree_walk& walk) {
  check_slots(walk.n_requests, walk.n_slots);
  if (walk.n_columns == 0 || walk.n_columns > walk.n_slots) refuse(std::to_string(walk.n_columns) + " columns for " + std::to_string(walk.n_slots) + " slots");
}

/// The token that is left after the rejected ones: by inversion of what remains of the target's probabilities.
inline int64_t draw_rest(const float* target, const float* rejected, uint32_t vocabulary, float coin, int64_t last_tried) {
  const auto left = [&](uint32_t v) { return std::max(0.0, static_cast<double>(target[v]) - rejected[v]); };
  double total = 0;
  for (uint32_t v = 0; v < vocabulary; ++v) total += left(v);
  const double u = coin * total;
  double sum = 0;
  int64_t last = -1;
  for (uint32_t v = 0; v < vocabulary; ++v) {
    sum += left(v);
    if (left(v) > 0) last = v;
    if (sum > u) return v;
  }
  if (last >= 0) return last;  // rounding
  if (last_tried >= 0) return last_tried;
  return std::max_element(target, target + vocabulary) - target;
}

inline bool are_probabilities(const float* p, uint32_t n) {
  return std::all_of(p, p + n, [](float x) { return x >= 0 && x <= 3.0e38f; });
}

}  // namespace detail

inline void verify_greedy(const turbo_tree_walk& walk, const int64_t* target) {
  detail::check_walk(walk);
  for (uint32_t b = 0; b < walk.n_requests; ++b) {
    detail::Walk at(walk, b);
    while (!at.ended()) {
      const int64_t want = target[at.row()];
      int64_t child = at.first_child();
      while (child >= 0 && at.token(static_cast<uint32_t>(child)) != want) child = at.sibling(child);
      if (child < 0) break;
      at.emit(want);
      at.accept(static_cast<uint32_t>(child));
    }
    at.finish(target[at.row()]);
  }
}

inline void verify_coins(const turbo_tree_walk& walk, const turbo_tree_coins& coins) {
  using namespace detail;
  check_walk(walk);
  const uint64_t vocabulary = coins.vocabulary, slots = walk.n_slots;
  detail::check_coins(coins);
  const double most = std::max(static_cast<double>(coins.threshold_acc), 1e-9);
  for (uint32_t b = 0; b < walk.n_requests; ++b) {
    Walk at(walk, b);
    bool bad = false;
    double coin = coins.coins[b * slots];
    int64_t last_tried = -1;
    const auto row_of = [&](auto* all) { return all + (b * slots + at.node()) * vocabulary; };
    while (!at.ended()) {
      const float* p = row_of(coins.target_probs);
      float* rejected = row_of(coins.draft_probs);
      bad = bad || !are_probabilities(p, coins.vocabulary);
      double passed = 0;
      int64_t child = at.first_child();
      for (; child >= 0; child = at.sibling(child)) {
        const int64_t token = at.token(static_cast<uint32_t>(child));
        if (token < 0 || static_cast<uint64_t>(token) >= vocabulary) refuse("candidate " + std::to_string(token) + " of " + std::to_string(vocabulary));
        passed += p[token];
        if (coin < passed / most || p[token] >= coins.threshold_single) break;
        rejected[token] = p[token];
        if (p[token] > 0) last_tried = token;
      }
      if (child < 0) break;
      at.emit(at.token(static_cast<uint32_t>(child)));
      at.accept(static_cast<uint32_t>(child));
      coin = coins.coins[b * slots + static_cast<uint64_t>(child)];
      last_tried = -1;
    }
    const float* p = row_of(coins.target_probs);
    bad = bad || !are_probabilities(p, coins.vocabulary);
    if (coins.failed) coins.failed[b] = bad;
    else if (bad) throw Failure(TURBO_INVALID_ARGUMENT, "tree ops: request " + std::to_string(b) + ": a probability is no number or negative");
    at.finish(bad ? -1 : draw_rest(p, row_of(coins.draft_probs), coins.vocabulary, coins.final_coin[b], last_tried));
  }
}

/// Bits of several byte arrays, each beginning at a byte of its own: segment b is x[in_offsets[b], in_offsets[b + 1]), its
/// bits go to y from out_offsets[b] on, lowest first, the last byte filled with zeros.
inline void pack_bits(const uint8_t* x, const uint64_t* in_offsets, uint32_t n_segments, const uint64_t* out_offsets, uint8_t* y) {
  for (uint32_t b = 0; b < n_segments; ++b) {
    const uint64_t begin = in_offsets[b], n = in_offsets[b + 1] - begin;
    std::fill(y + out_offsets[b], y + out_offsets[b] + (n + 7) / 8, uint8_t{0});
    for (uint64_t i = 0; i < n; ++i) y[out_offsets[b] + i / 8] |= static_cast<uint8_t>((x[begin + i] != 0) << i % 8);
  }
}

/// The table over these functions, for a pack to offer under TURBO_TREE_OPS_DRAFT. `self` is not used.
inline const turbo_tree_ops* host_table() {
  static const turbo_tree_ops table = {
      sizeof(turbo_tree_ops), 0,
      [](void*, const turbo_tree_build* a, turbo_error* e) -> turbo_status { return guarded(e, [&] { turbo::detail::check(a && TURBO_HAS(a, n_orphans), "tree build"); build(*a); }); },
      [](void*, const turbo_tree_links* a, turbo_error* e) -> turbo_status { return guarded(e, [&] { turbo::detail::check(a && TURBO_HAS(a, next_sibling), "tree links"); link(*a); }); },
      [](void*, const turbo_tree_walk* a, const int64_t* target, turbo_error* e) -> turbo_status {
        return guarded(e, [&] { turbo::detail::check(a && TURBO_HAS(a, n_accepted) && target, "tree walk"); verify_greedy(*a, target); });
      },
      [](void*, const turbo_tree_walk* a, const turbo_tree_coins* c, turbo_error* e) -> turbo_status {
        return guarded(e, [&] { turbo::detail::check(a && TURBO_HAS(a, n_accepted) && c && TURBO_HAS(c, failed), "tree walk"); verify_coins(*a, *c); });
      }};
  return &table;
}

}  // namespace turbo::tree_ops
