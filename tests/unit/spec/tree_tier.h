// Tree ops of the host.
#pragma once

#include <turbo/kernel/tree_ops.hpp>

namespace turbo::tree_ops {

struct TreeTier {
  static TreeTier& get() {
    static TreeTier tier;
    return tier;
  }
  static constexpr int rounds(int wanted) { return wanted; }

  const turbo_tree_ops* table() const { return host_table(); }
  void* self() const { return nullptr; }
  void build(const turbo_tree_build& a) { tree_ops::build(a); }
  void link(const turbo_tree_links& a) { tree_ops::link(a); }
  void verify_greedy(const turbo_tree_walk& walk, const int64_t* target) { tree_ops::verify_greedy(walk, target); }
  void verify_coins(const turbo_tree_walk& walk, const turbo_tree_coins& coins) { tree_ops::verify_coins(walk, coins); }
  void pack_bits(const uint8_t* x, const uint64_t* in, uint32_t n, const uint64_t* out, uint8_t* y) { tree_ops::pack_bits(x, in, n, out, y); }
};

}  // namespace turbo::tree_ops
