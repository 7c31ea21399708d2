// A drafter's proposal as the engine uses it, and the walk that accepts it. Pure functions.
//
// Law: at each node the target's own token is drawn (greedy or by the counter-based draw at that position); a
// child is accepted iff it equals that token; otherwise that token is emitted and the walk ends. So the emitted
// tokens equal what plain decoding would emit, token for token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace turbo::spec {

/// Draft nodes without the root. parents[i] is -1 (child of the root) or an index below i.
struct DraftTree {
  std::vector<int32_t> tokens;
  std::vector<int32_t> parents;

  uint32_t size() const { return static_cast<uint32_t>(tokens.size()); }
  bool empty() const { return tokens.empty(); }
  /// Depth of node i below the root, 1 for its children.
  uint32_t depth(uint32_t node) const;
  /// Indices from the root's child down to `node`, inclusive.
  std::vector<uint32_t> path(uint32_t node) const;
};

/// Why a proposal is unusable, or null. Checks sizes, parent order, vocabulary and distinct siblings.
const char* find_fault(std::span<const int32_t> tokens, std::span<const int32_t> parents, uint32_t max_nodes, uint32_t vocab);

struct Acceptance {
  std::vector<uint32_t> accepted;  // node indices along the accepted path, in order
  std::vector<int32_t> emitted;    // accepted tokens, then one of the target's own
};

/// `drawn[0]` is the target's token after the root, `drawn[1 + i]` after node i.
Acceptance accept(const DraftTree& tree, std::span<const int32_t> drawn);

}  // namespace turbo::spec
