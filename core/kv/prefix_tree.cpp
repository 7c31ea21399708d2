#include "kv/prefix_tree.h"

#include <algorithm>
#include <cassert>
#include <vector>

namespace turbo::kv {
namespace {

std::array<int32_t, kBlock> to_key(PrefixTree::Tokens tokens) {
  std::array<int32_t, kBlock> key;
  std::copy(tokens.begin(), tokens.end(), key.begin());
  return key;
}

}  // namespace

PrefixTree::Node* PrefixTree::pin_root(std::string_view salt) {
  auto found = roots_.find(salt);
  if (found == roots_.end()) {
    found = roots_.emplace(std::string(salt), std::make_unique<Node>()).first;
    found->second->salt = salt;
  }
  ++found->second->pins;
  return found->second.get();
}

PrefixTree::Node* PrefixTree::child(const Node* node, Tokens tokens) const {
  const auto found = node->children.find(to_key(tokens));
  return found == node->children.end() ? nullptr : found->second.get();
}

PrefixTree::Node* PrefixTree::add(Node* node, Tokens tokens, Blocks blocks) {
  assert(node->pins > 0);
  const auto [at, added] = node->children.emplace(to_key(tokens), std::make_unique<Node>());
  assert(added);
  Node* child = at->second.get();
  child->parent = node;
  child->depth = node->depth + 1;
  child->packed = blocks.packed;
  child->open = blocks.open;
  child->key = &at->first;
  child->pins = 1;
  ++size_;
  return child;
}

void PrefixTree::pin(Node* node) {
  if (node->parent && node->pins == 0) {
    --n_unpinned_;
    idle_leaves_.erase({node->last_used, node});
  }
  ++node->pins;
}

void PrefixTree::unpin(Node* node) {
  assert(node->pins > 0);
  if (--node->pins > 0) return;
  if (node->parent) {
    ++n_unpinned_;
    node->last_used = ++clock_;
  }
  became_idle(node);
}

// Without pins and children a root ends and any other node can be evicted.
void PrefixTree::became_idle(Node* node) {
  if (node->pins > 0 || !node->children.empty()) return;
  if (node->parent) idle_leaves_.insert({node->last_used, node});
  else roots_.erase(roots_.find(node->salt));
}

std::optional<PrefixTree::Blocks> PrefixTree::evict() {
  if (idle_leaves_.empty()) return std::nullopt;
  Node* leaf = idle_leaves_.begin()->second;
  idle_leaves_.erase(idle_leaves_.begin());
  const Blocks blocks{leaf->packed, leaf->open};
  Node* parent = leaf->parent;
  parent->children.erase(parent->children.find(*leaf->key));
  --size_;
  --n_unpinned_;
  became_idle(parent);
  return blocks;
}

bool PrefixTree::consistent() const {
  uint32_t size = 0, unpinned = 0;
  size_t idle = 0;
  std::vector<const Node*> todo;
  for (const auto& [salt, root] : roots_) {
    if (root->children.empty() && root->pins == 0) return false;
    todo.push_back(root.get());
  }
  while (!todo.empty()) {
    const Node* node = todo.back();
    todo.pop_back();
    if (node->parent) {
      ++size;
      unpinned += node->pins == 0;
      if (node->pins > 0 && node->parent->pins == 0) return false;  // a holder holds the whole path
      if (node->pins == 0 && node->children.empty()) {
        ++idle;
        if (!idle_leaves_.count({node->last_used, const_cast<Node*>(node)})) return false;
      }
    }
    for (const auto& [key, child] : node->children) todo.push_back(child.get());
  }
  return size == size_ && unpinned == n_unpinned_ && idle == idle_leaves_.size();
}

}  // namespace turbo::kv
