#include "text/multi_match.h"

#include <algorithm>
#include <numeric>

namespace turbo::text {

MultiMatch::MultiMatch(const std::vector<std::string_view>& patterns, Kind kind) {
  size_t total = 0;
  for (const std::string_view pattern : patterns) total += pattern.size();
  edges_.reserve(total);
  nodes_.reserve(total + 1);
  nodes_.emplace_back();
  std::vector<std::pair<uint32_t, uint8_t>> parents{{root, 0}};  // of each node, with the byte that leads to it
  for (const std::string_view pattern : patterns) {
    const auto index = static_cast<int32_t>(lengths_.size());
    lengths_.push_back(pattern.size());
    uint32_t at = root;
    for (const char c : pattern) {
      const auto byte = static_cast<uint8_t>(c);
      uint32_t next = child(at, byte);
      if (next == root) {
        next = static_cast<uint32_t>(nodes_.size());
        nodes_.push_back({.depth = nodes_[at].depth + 1});
        parents.emplace_back(at, byte);
        edges_.insert(edge_key(at, byte), next);
        if (at == root) root_children_[byte] = next;
      }
      at = next;
    }
    if (at == root || nodes_[at].match >= 0) continue;
    nodes_[at].match = index;
    ++n_patterns_;
  }
  link(parents, kind);
}

// Failure links, shallow nodes first. For first_start, a node where a pattern ends has no link, and so none of the nodes
// below it: every string they could fail over to starts later than that match.
void MultiMatch::link(const std::vector<std::pair<uint32_t, uint8_t>>& parents, Kind kind) {
  std::vector<uint32_t> order(nodes_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [this](uint32_t a, uint32_t b) { return nodes_[a].depth < nodes_[b].depth; });
  for (const uint32_t id : order) {
    if (id == root) continue;
    Node& node = nodes_[id];
    const auto [parent, byte] = parents[id];
    if (kind == Kind::first_start && node.match >= 0) {
      node.fail = dead;
      continue;
    }
    node.fail = parent == root ? root : step(nodes_[parent].fail, byte);
    if (node.match < 0 && node.fail != dead) node.match = nodes_[node.fail].match;
  }
}

uint32_t MultiMatch::step(uint32_t state, uint8_t byte) const {
  while (state != dead) {
    const uint32_t next = child(state, byte);
    if (next != root) return next;
    if (state == root) return root;
    state = nodes_[state].fail;
  }
  return dead;
}

MultiMatch::Found MultiMatch::find(std::string_view text, size_t from) const {
  Found found;
  uint32_t state = root;
  for (size_t at = from; at < text.size(); ++at) {
    const auto byte = static_cast<uint8_t>(text[at]);
    if (state == root && root_children_[byte] == root) continue;
    state = step(state, byte);
    if (state == dead) break;
    if (const int32_t pattern = match(state); pattern >= 0) found = {pattern, at + 1 - lengths_[pattern]};
  }
  return found;
}

}  // namespace turbo::text
