// Tree verification on the device: the ops of abi/draft/tree_ops.h, with arrays in device memory. One block a request (a
// thread a request for the greedy walk); results of a request do not depend on the others.
//
// Every index that comes from outside is checked where it is used and walks are bounded by the slots: a malformed request
// ends with status 1 and its outputs are not meant, the others go on. Coins are compared and sums are kept in f64; the last
// token of a coin walk comes from sums in one order (tiles of 1,024 tokens: four a thread, waves, tiles; inside the tile
// that holds it, token by token), so equal inputs give equal bits.
#pragma once

#include <turbo/abi/draft/tree_ops.h>

#include <stdint.h>

namespace turbo::gpu {

constexpr uint32_t kTreeThreads = 256;
constexpr uint32_t kTreeTile = 1024;

// Kernel arguments: the ABI's structs with device addresses, and a word a request.
struct TreeBuildArgs {
  turbo_tree_build build;
  uint32_t* malformed;  // [B]
};
struct TreeLinkArgs {
  turbo_tree_links links;
};
struct TreeGreedyArgs {
  turbo_tree_walk walk;
  const int64_t* target;
  uint32_t* malformed;
};
struct TreeCoinsArgs {
  turbo_tree_walk walk;
  turbo_tree_coins coins;
  uint32_t* malformed;
};
struct PackBitsArgs {
  const uint8_t* x;
  const uint64_t* in_offsets;   // [n_segments + 1]
  const uint64_t* out_offsets;  // [n_segments]
  uint8_t* y;
  uint32_t n_segments;
  uint32_t blocks;  // of a segment; the grid is n_segments * blocks
};

}  // namespace turbo::gpu

#if defined(TB_FIBER) || defined(__CUDACC__) || defined(__HIP__)
#include <turbo/kernel/gpu/device.hpp>

namespace turbo::gpu {

/// Children in rising order, by one thread; parents lie before their children.
TB_DEVICE void tree_link_children(const int32_t* parent, uint32_t n_slots, int64_t* next_token, int64_t* next_sibling) {
  for (uint32_t j = n_slots; j-- > 1;) {
    if (parent[j] < 0) continue;
    next_sibling[j] = next_token[parent[j]];
    next_token[parent[j]] = j;
  }
}

TB_DEVICE uint32_t tree_word_bytes(uint32_t n_slots) { return n_slots <= 8 ? 1 : n_slots <= 16 ? 2 : n_slots <= 32 ? 4 : 8; }

/// A thread a slot.
TB_DEVICE void tree_build_body(const TreeBuildArgs& args) {
  const turbo_tree_build& a = args.build;
  using Parents = int32_t[TURBO_TREE_MAX_SLOTS];
  using Words = uint64_t[kTreeThreads];
  TB_SHARED(Parents, parent);
  TB_SHARED(Words, offsets);
  TB_SHARED(uint32_t, bad);
  TB_SHARED(uint32_t, orphans);
  const uint32_t b = block_x(), k = a.n_slots, j = thread();
  const uint64_t t = a.topk, pool = t + (uint64_t{a.depth} - 1) * t * t, parents = t * (uint64_t{a.depth} - 1) + 1;
  const int64_t* const selected = a.selected + uint64_t{b} * (k - 1);
  if (j == 0) bad = orphans = 0;
  // Where the request's mask begins: after those of the requests before it.
  uint64_t before = 0;
  if (a.mask_mode == TURBO_TREE_MASK_FULL)
    for (uint32_t i = j; i < b; i += threads()) before += static_cast<uint64_t>(a.prefix_len[i] > 0 ? a.prefix_len[i] : 0);
  offsets[j] = before;
  sync_block();
  int32_t own = j == 0 ? -1 : 0;
  if (j > 0 && j < k) {
    const int64_t s = selected[j - 1];
    if (s < 0 || static_cast<uint64_t>(s) >= pool || (j > 1 && s <= selected[j - 2])) {
      atomic_or(&bad, 1);
    } else if (const uint64_t group = static_cast<uint64_t>(s) / t; group > 0) {
      own = -1;
      const int64_t wanted = group < parents ? a.parent_list[b * parents + group] : -1;
      for (uint32_t i = 1; i < j; ++i) own = wanted >= 0 && selected[i - 1] == wanted ? static_cast<int32_t>(i) : own;
      if (own < 0) atomic_add(&orphans, 1);
    }
  }
  if (j < k) parent[j] = own;
  uint64_t prefixes = 0;
  for (uint32_t i = 0; i < threads(); ++i) prefixes += offsets[i];
  const int64_t prefix = a.prefix_len[b];
  const uint64_t own_prefix = a.mask_mode == TURBO_TREE_MASK_FULL ? static_cast<uint64_t>(prefix) : 0;
  const uint64_t row_bytes = a.mask_mode == TURBO_TREE_MASK_PACKED ? tree_word_bytes(k) : own_prefix + k;
  const uint64_t mask_at = a.mask_mode == TURBO_TREE_MASK_PACKED ? uint64_t{b} * k * row_bytes : uint64_t{b} * k * k + k * prefixes;
  if (j == 0 && (prefix < 0 || prefix > 0x7fffffff || mask_at + k * row_bytes > a.mask_bytes)) atomic_or(&bad, 1);
  sync_block();
  if (j == 0) args.malformed[b] = bad;
  if (bad) return;
  const uint64_t base = uint64_t{b} * k;
  if (j < k) {
    uint64_t visible = uint64_t{1} | uint64_t{1} << j;
    int64_t depth = j == 0 ? 0 : 1;
    for (int32_t at = parent[j]; at > 0; at = parent[at]) {  // slots fall on the way up
      visible |= uint64_t{1} << at;
      ++depth;
    }
    a.positions[base + j] = prefix + depth;
    a.retrieve_index[base + j] = static_cast<int64_t>(base + j);
    a.next_token[base + j] = -1;
    a.next_sibling[base + j] = -1;
    uint8_t* const row = static_cast<uint8_t*>(a.mask) + mask_at + j * row_bytes;
    if (a.mask_mode == TURBO_TREE_MASK_PACKED)
      for (uint32_t i = 0; i < row_bytes; ++i) row[i] = static_cast<uint8_t>(visible >> (8 * i));
    else
      for (uint32_t i = 0; i < k; ++i) row[own_prefix + i] = visible >> i & 1;
  }
  sync_block();
  if (j != 0) return;
  tree_link_children(parent, k, a.next_token + base, a.next_sibling + base);
  if (a.n_orphans) a.n_orphans[b] = orphans;
}

/// A thread a slot.
TB_DEVICE void tree_link_body(const TreeLinkArgs& args) {
  const turbo_tree_links& a = args.links;
  using Parents = int32_t[TURBO_TREE_MAX_SLOTS];
  TB_SHARED(Parents, parent);
  const uint32_t b = block_x(), k = a.n_slots, j = thread();
  const uint64_t base = uint64_t{b} * k;
  if (j < k) {
    const uint8_t* const row = a.mask + (base + j) * k;
    int32_t own = -1;
    int64_t depth = 0;
    for (uint32_t i = 0; i < j; ++i) {
      const bool seen = row[i] != 0;
      own = seen ? static_cast<int32_t>(i) : own;
      depth += seen;
    }
    parent[j] = own;
    a.positions[base + j] = a.prefix_len[b] + depth;
    a.retrieve_index[base + j] = static_cast<int64_t>(base + j);
    a.next_token[base + j] = -1;
    a.next_sibling[base + j] = -1;
  }
  sync_block();
  if (j == 0) tree_link_children(parent, k, a.next_token + base, a.next_sibling + base);
}

/// One request of a walk, in one thread. Once `bad`, it stays where it is.
struct TreeWalk {
  const turbo_tree_walk& walk;
  const uint32_t request;
  const uint64_t base;
  uint32_t node = 0, row = 0, n = 0, steps = 0;
  bool bad = false;

  TB_DEVICE TreeWalk(const turbo_tree_walk& walk, uint32_t request) : walk(walk), request(request), base(uint64_t{request} * walk.n_slots) {}
  TB_DEVICE bool ended() const { return bad || n == walk.n_columns; }
  TB_DEVICE int64_t token(int32_t slot) const { return walk.candidates[base + static_cast<uint32_t>(slot)]; }
  TB_DEVICE int32_t first_child() { return slot(walk.next_token[base + node]); }
  TB_DEVICE int32_t sibling(int32_t child) { return slot(walk.next_sibling[base + static_cast<uint32_t>(child)]); }
  TB_DEVICE void accept(uint32_t slot) {
    const int64_t to = walk.retrieve_index[base + slot];
    bad |= to < 0 || to >= static_cast<int64_t>(uint64_t{walk.n_requests} * walk.n_slots);
    if (bad) return;
    node = slot;
    row = static_cast<uint32_t>(to);
    walk.accept_index[uint64_t{request} * walk.n_columns + n++] = static_cast<int32_t>(to);
  }
  TB_DEVICE void emit(int64_t token) { walk.predicts[row] = static_cast<int32_t>(token); }
  TB_DEVICE void finish(int64_t token) {
    emit(token);
    walk.n_accepted[request] = static_cast<int32_t>(n) - 1;
  }
  TB_DEVICE int32_t slot(int64_t at) {
    bad |= at >= static_cast<int64_t>(walk.n_slots) || ++steps > walk.n_slots;
    return bad || at < 0 ? -1 : static_cast<int32_t>(at);
  }
};

/// A thread a request.
TB_DEVICE void tree_greedy_body(const TreeGreedyArgs& a) {
  const uint32_t b = block_x() * threads() + thread();
  if (b >= a.walk.n_requests) return;
  TreeWalk at(a.walk, b);
  at.accept(0);
  while (!at.ended()) {
    const int64_t want = a.target[at.row];
    int32_t child = at.first_child();
    while (child >= 0 && at.token(child) != want) child = at.sibling(child);
    if (child < 0) break;
    at.emit(want);
    at.accept(static_cast<uint32_t>(child));
  }
  a.malformed[b] = at.bad;
  if (!at.bad) at.finish(a.target[at.row]);
}

TB_DEVICE double tree_left(const float* target, const float* rejected, uint64_t v) {
  const double left = static_cast<double>(target[v]) - static_cast<double>(rejected[v]);
  return left > 0 ? left : 0;
}

/// What is left of a tile's probabilities, the same bits in every thread. `slots`: a double a wave.
TB_DEVICE double tree_tile(const float* target, const float* rejected, uint64_t begin, uint64_t vocabulary, double* slots) {
  double sum = 0;
  for (uint64_t q = thread(); q < kTreeTile / 4; q += threads()) {
    double four = 0;
    for (uint64_t v = begin + q * 4; v < begin + q * 4 + 4 && v < vocabulary; ++v) four += tree_left(target, rejected, v);
    sum += four;
  }
  TB_UNROLL
  for (uint32_t m = kWave / 2; m; m >>= 1) sum += shuffle_xor(sum, m);
  sync_block();
  if (lane() == 0) slots[wave()] = sum;
  sync_block();
  sum = 0;
  for (uint32_t w = 0; w < threads() / kWave; ++w) sum += slots[w];
  return sum;
}

/// The token that is left after the rejected ones; by the whole block, the answer in thread 0.
TB_DEVICE int64_t tree_draw_rest(const float* target, const float* rejected, uint64_t vocabulary, float coin, int64_t last_tried, double* slots) {
  double total = 0;
  for (uint64_t begin = 0; begin < vocabulary; begin += kTreeTile) total += tree_tile(target, rejected, begin, vocabulary, slots);
  const double u = static_cast<double>(coin) * total;
  double sum = 0;
  uint64_t last_tile = vocabulary;  // the last one with anything in it
  for (uint64_t begin = 0; begin < vocabulary; begin += kTreeTile) {
    const double tile = tree_tile(target, rejected, begin, vocabulary, slots);
    if (tile > 0) last_tile = begin;
    if (sum + tile > u) break;
    if (begin + kTreeTile < vocabulary) sum += tile;
  }
  if (thread() != 0) return -1;
  int64_t last = -1;
  if (last_tile < vocabulary)
    for (uint64_t v = last_tile; v < last_tile + kTreeTile && v < vocabulary; ++v) {
      const double left = tree_left(target, rejected, v);
      sum += left;
      if (left > 0) last = static_cast<int64_t>(v);
      if (sum > u) return static_cast<int64_t>(v);
    }
  if (last >= 0) return last;  // rounding
  if (last_tried >= 0) return last_tried;
  uint64_t best = 0;
  for (uint64_t v = 1; v < vocabulary; ++v) best = target[best] < target[v] ? v : best;
  return static_cast<int64_t>(best);
}

/// Whether a row holds something that is no probability, told by every thread; `word` is shared and 0.
TB_DEVICE void tree_check_row(const float* p, uint64_t vocabulary, uint32_t* word) {
  bool bad = false;
  for (uint64_t v = thread(); v < vocabulary; v += threads()) bad |= bits(p[v]) > 0x7f61b1e6u && bits(p[v]) != 0x80000000u;  // above 3e38, negative, NaN
  if (bad) atomic_or(word, 1);
}

/// A block a request: thread 0 walks, all check rows and draw.
TB_DEVICE void tree_coins_body(const TreeCoinsArgs& a) {
  using Slots = double[kTreeThreads / kWave];
  TB_SHARED(Slots, slots);
  TB_SHARED(uint32_t, failed);
  TB_SHARED(uint32_t, node);
  TB_SHARED(uint32_t, state);  // 0 walks on, 1 at its end, 2 malformed
  const uint32_t b = block_x();
  const uint64_t vocabulary = a.coins.vocabulary, base = uint64_t{b} * a.walk.n_slots;
  const double most = static_cast<double>(a.coins.threshold_acc) > 1e-9 ? static_cast<double>(a.coins.threshold_acc) : 1e-9;
  TreeWalk at(a.walk, b);  // moved by thread 0 alone
  double coin = static_cast<double>(a.coins.coins[base]);
  int64_t last_tried = -1;
  if (thread() == 0) {
    at.accept(0);
    failed = 0;
    node = 0;
    state = at.bad ? 2 : at.ended() ? 1 : 0;
  }
  sync_block();
  while (state == 0) {
    const float* const p = a.coins.target_probs + (base + node) * vocabulary;
    tree_check_row(p, vocabulary, &failed);
    sync_block();
    if (thread() == 0) {
      float* const rejected = a.coins.draft_probs + (base + node) * vocabulary;
      double passed = 0;
      int32_t child = at.first_child();
      for (; child >= 0; child = at.sibling(child)) {
        const int64_t token = at.token(child);
        if (token < 0 || static_cast<uint64_t>(token) >= vocabulary) {
          at.bad = true;
          break;
        }
        passed += static_cast<double>(p[token]);
        if (coin < passed / most || p[token] >= a.coins.threshold_single) break;
        rejected[token] = p[token];
        if (p[token] > 0) last_tried = token;
      }
      if (!at.bad && child >= 0) {
        at.emit(at.token(child));
        at.accept(static_cast<uint32_t>(child));
        coin = static_cast<double>(a.coins.coins[base + static_cast<uint32_t>(child)]);
        last_tried = -1;
      }
      state = at.bad ? 2 : child < 0 || at.ended() ? 1 : 0;
      node = at.node;
    }
    sync_block();
  }
  const bool is_malformed = state == 2;
  const uint64_t row = (base + node) * vocabulary;
  if (!is_malformed) tree_check_row(a.coins.target_probs + row, vocabulary, &failed);
  sync_block();
  if (thread() == 0) {
    a.malformed[b] = is_malformed;
    if (a.coins.failed) a.coins.failed[b] = failed;
  }
  if (is_malformed) return;
  const int64_t token = failed ? -1 : tree_draw_rest(a.coins.target_probs + row, a.coins.draft_probs + row, vocabulary, a.coins.final_coin[b], last_tried, slots);
  if (thread() == 0) at.finish(token);
}

/// A thread a byte of the output.
TB_DEVICE void pack_bits_body(const PackBitsArgs& a) {
  const uint32_t segment = block_x() / a.blocks;
  const uint64_t begin = a.in_offsets[segment], n = a.in_offsets[segment + 1] - begin, bytes = (n + 7) / 8;
  for (uint64_t i = uint64_t{block_x() % a.blocks} * threads() + thread(); i < bytes; i += uint64_t{a.blocks} * threads()) {
    uint32_t byte = 0;
    for (uint64_t bit = 0; bit < 8 && i * 8 + bit < n; ++bit) byte |= static_cast<uint32_t>(a.x[begin + i * 8 + bit] != 0) << bit;
    a.y[a.out_offsets[segment] + i] = static_cast<uint8_t>(byte);
  }
}

}  // namespace turbo::gpu
#endif
