#include "spec/draft_tree.h"

#include <algorithm>

namespace turbo::spec {

uint32_t DraftTree::depth(uint32_t node) const {
  uint32_t depth = 0;
  for (int32_t at = static_cast<int32_t>(node); at >= 0; at = parents[at]) ++depth;
  return depth;
}

std::vector<uint32_t> DraftTree::path(uint32_t node) const {
  std::vector<uint32_t> path;
  for (int32_t at = static_cast<int32_t>(node); at >= 0; at = parents[at]) path.push_back(static_cast<uint32_t>(at));
  std::reverse(path.begin(), path.end());
  return path;
}

const char* find_fault(std::span<const int32_t> tokens, std::span<const int32_t> parents, uint32_t max_nodes, uint32_t vocab) {
  if (tokens.size() != parents.size()) return "tokens and parents differ in length";
  if (tokens.size() > max_nodes) return "more nodes than asked for";
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || static_cast<uint32_t>(tokens[i]) >= vocab) return "token outside the vocabulary";
    if (parents[i] < -1 || parents[i] >= static_cast<int32_t>(i)) return "parent after its child";
    for (size_t j = 0; j < i; ++j)
      if (parents[j] == parents[i] && tokens[j] == tokens[i]) return "siblings with equal tokens";
  }
  return nullptr;
}

Acceptance accept(const DraftTree& tree, std::span<const int32_t> drawn) {
  Acceptance result;
  int32_t at = -1;
  while (true) {
    const int32_t token = drawn[at + 1];
    result.emitted.push_back(token);
    int32_t next = -1;
    for (uint32_t i = static_cast<uint32_t>(at + 1); i < tree.size() && next < 0; ++i)
      if (tree.parents[i] == at && tree.tokens[i] == token) next = static_cast<int32_t>(i);
    if (next < 0) return result;
    result.accepted.push_back(static_cast<uint32_t>(next));
    at = next;
  }
}

}  // namespace turbo::spec
