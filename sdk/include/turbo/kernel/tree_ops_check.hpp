// Self-test of a tier's tree ops on small trees with known results, for a pack to run at load before it offers them.
#pragma once

#include <turbo/abi/draft/tree_ops.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace turbo::tree_ops {

namespace detail {

template <typename A, typename B>
bool equal(const A& found, const B& expected) {
  return std::equal(std::begin(found), std::end(found), std::begin(expected));
}

/// Two small trees and the target's choices, with the path that both walks must take.
struct KnownWalk {
  const int64_t candidates[12] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12}, rows[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const int64_t child[12] = {1, 2, -1, 4, 5, -1, 4, 2, 3, -1, 5, -1}, sibling[12] = {-1, 3, -1, -1, -1, -1, -1, -1, -1, -1, 1, -1};
  const int64_t target[12] = {3, 18, 18, 4, 5, 18, 11, 18, 18, 18, 12, 18};
  int32_t predicts[12], index[8], accepted[2];
  const turbo_tree_walk walk{sizeof(turbo_tree_walk), 2, 6, 4, candidates, rows, child, sibling, predicts, index, accepted};

  KnownWalk() {
    std::fill(std::begin(predicts), std::end(predicts), -1);
    std::fill(std::begin(index), std::end(index), -1);
    std::fill(std::begin(accepted), std::end(accepted), -1);
  }
  KnownWalk(const KnownWalk&) = delete;
  bool is_right() const {
    const int32_t want_predicts[12] = {3, -1, -1, 4, 5, 18, 11, -1, -1, -1, 12, 18}, want_index[8] = {0, 3, 4, 5, 6, 10, 11, -1}, want_accepted[2] = {3, 2};
    return equal(predicts, want_predicts) && equal(index, want_index) && equal(accepted, want_accepted);
  }
};

}  // namespace detail

/// What is wrong with an op, or null. The ops may wait for their device.
inline const char* find_link_fault(const turbo_tree_ops& ops, void* self) {
  using detail::equal;
  turbo_error error{};
  error.struct_size = sizeof error;
  const uint8_t mask[16] = {1, 0, 0, 0, 1, 1, 0, 0, 1, 0, 1, 0, 1, 0, 1, 1};
  const int64_t prefix[1] = {12};
  int64_t positions[4], rows[4], child[4], sibling[4];
  const turbo_tree_links links{sizeof links, 1, 4, 0, mask, prefix, positions, rows, child, sibling};
  const int64_t want_positions[4] = {12, 13, 13, 14}, want_rows[4] = {0, 1, 2, 3}, want_child[4] = {1, -1, 3, -1}, want_sibling[4] = {-1, 2, -1, -1};
  if (ops.link(self, &links, &error) != TURBO_OK) return "link fails";
  if (!equal(positions, want_positions) || !equal(rows, want_rows) || !equal(child, want_child) || !equal(sibling, want_sibling)) return "link gives wrong links";
  return nullptr;
}

inline const char* find_build_fault(const turbo_tree_ops& ops, void* self) {
  using detail::equal;
  turbo_error error{};
  error.struct_size = sizeof error;
  // Two branches in two steps: candidates 2, 3 below 0 and 4, 5 below 1; 0, 1, 4 were selected.
  const int64_t parents[3] = {-1, 0, 1}, selected[3] = {0, 1, 4}, prefix[1] = {7};
  uint8_t mask[4] = {0, 0, 0, 0};
  int64_t positions[4], rows[4], child[4], sibling[4];
  const turbo_tree_build build{sizeof build, 1, 4, 2, 2, TURBO_TREE_MASK_PACKED, parents, selected, prefix, mask, sizeof mask, positions, rows, child, sibling, nullptr};
  const uint8_t want_mask[4] = {1, 3, 5, 13};
  const int64_t want_positions[4] = {7, 8, 8, 9}, want_child[4] = {1, -1, 3, -1}, want_sibling[4] = {-1, 2, -1, -1};
  if (ops.build(self, &build, &error) != TURBO_OK) return "build fails";
  if (!equal(mask, want_mask) || !equal(positions, want_positions) || !equal(child, want_child) || !equal(sibling, want_sibling)) return "build gives a wrong tree";
  return nullptr;
}

inline const char* find_greedy_fault(const turbo_tree_ops& ops, void* self) {
  turbo_error error{};
  error.struct_size = sizeof error;
  detail::KnownWalk known;
  if (ops.verify_greedy(self, &known.walk, known.target, &error) != TURBO_OK) return "the greedy walk fails";
  return known.is_right() ? nullptr : "the greedy walk takes another path";
}

inline const char* find_coins_fault(const turbo_tree_ops& ops, void* self) {
  turbo_error error{};
  error.struct_size = sizeof error;
  detail::KnownWalk known;
  constexpr uint32_t kVocabulary = 20;
  float probs[12 * kVocabulary] = {}, scratch[12 * kVocabulary] = {};
  for (int row = 0; row < 12; ++row) probs[row * kVocabulary + known.target[row]] = 1;  // certain: any coins give the greedy path
  const float coins[12] = {0, 0.3f, 0.9f, 0.5f, 0.1f, 0.7f, 0.99f, 0, 0.2f, 0.4f, 0.6f, 0.8f}, final_coin[2] = {0.5f, 0};
  uint32_t failed[2] = {9, 9};
  const turbo_tree_coins certain{sizeof certain, kVocabulary, coins, final_coin, probs, scratch, 1, 1, failed};
  if (ops.verify_coins(self, &known.walk, &certain, &error) != TURBO_OK || failed[0] || failed[1]) return "the coin walk fails";
  return known.is_right() ? nullptr : "the coin walk takes another path";
}

/// The first fault of any op, or null.
inline const char* find_fault(const turbo_tree_ops& ops, void* self) {
  if (const char* fault = find_link_fault(ops, self)) return fault;
  if (const char* fault = find_build_fault(ops, self)) return fault;
  if (const char* fault = find_greedy_fault(ops, self)) return fault;
  return find_coins_fault(ops, self);
}

}  // namespace turbo::tree_ops
