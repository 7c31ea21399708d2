// Finished KV blocks by the tokens that led to them. Engine thread only.
//
// One node is one closed, committed block of kBlock positions; the path from a root spells the tokens before it, so
// equal paths mean equal cache contents (a row's bits do not depend on its batch). Roots are kept apart by salt.
// Children are found by comparing all tokens, never a hash: a collision would be another user's text.
// A node that a sequence holds is pinned, and so are its ancestors. Eviction takes the least recently used leaf
// that nobody holds. The tree names blocks by id; their reference counts are its owner's (KvCache).
#pragma once

#include <turbo/abi/draft/kv_codec.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

namespace turbo::kv {

inline constexpr uint32_t kBlock = TURBO_KV_BLOCK;

class PrefixTree {
 public:
  using Tokens = std::span<const int32_t, kBlock>;

  struct Node {
    Node* parent = nullptr;  // null for a root
    uint32_t depth = 0;      // blocks from the root, itself included
    int32_t packed = -1;     // block ids; -1 for a root
    int32_t open = -1;       // only for sinks of codecs with two forms

   private:
    friend class PrefixTree;
    using Key = std::array<int32_t, kBlock>;
    std::map<Key, std::unique_ptr<Node>> children;
    const Key* key = nullptr;  // in the parent's map
    uint32_t pins = 0;
    uint64_t last_used = 0;
    std::string salt;  // of a root
  };
  struct Blocks {
    int32_t packed, open;
  };

  PrefixTree() = default;
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  /// The root for a salt, pinned once for the caller.
  Node* pin_root(std::string_view salt);
  /// The block that continues `node` with these tokens, or null. Not pinned.
  Node* child(const Node* node, Tokens tokens) const;
  /// A new child of a pinned node, pinned once for the caller. It must not exist yet.
  Node* add(Node* node, Tokens tokens, Blocks blocks);
  void pin(Node* node);
  /// May end a root that holds nothing; the node must not be used afterwards.
  void unpin(Node* node);

  /// Take out the least recently used leaf that nobody holds; empty when there is none.
  std::optional<Blocks> evict();

  uint32_t size() const { return size_; }              // nodes with a block
  uint32_t n_unpinned() const { return n_unpinned_; }  // of them, held by nobody: evict() can free them all
  size_t n_roots() const { return roots_.size(); }
  /// Recount everything and compare with the counters.
  bool consistent() const;

 private:
  void became_idle(Node* node);

  std::map<std::string, std::unique_ptr<Node>, std::less<>> roots_;
  std::set<std::pair<uint64_t, Node*>> idle_leaves_;  // oldest first
  uint64_t clock_ = 0;
  uint32_t size_ = 0, n_unpinned_ = 0;
};

}  // namespace turbo::kv
