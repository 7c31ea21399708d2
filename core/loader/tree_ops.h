// Which component computes each tree op: the first of those offered whose results on small known trees are right, else the
// host's own code, which is always there. Chosen once, op by op. [load]; the chosen calls are those of abi/draft/tree_ops.h.
#pragma once

#include <turbo/abi/draft/tree_ops.h>

#include <span>
#include <string>
#include <vector>

namespace turbo::loader {

/// Ops of a component of the chosen tier.
struct TreeOpsOffer {
  std::string who;
  const turbo_tree_ops* table = nullptr;
  void* self = nullptr;
};

struct TreeOps {
  struct Choice {
    std::string op, who;
    std::vector<std::string> losses;  // "who: why"
  };
  /// Each op of `table` is called with its own `self`.
  turbo_tree_ops table{};
  void *build_self = nullptr, *link_self = nullptr, *greedy_self = nullptr, *coins_self = nullptr;
  std::vector<Choice> choices;

  /// "build, link: org.example.pack/one; verify_greedy: host" for logs.
  std::string text() const;
};

/// Offers are tried in order. Runs their self-tests, which may wait for a device.
TreeOps choose_tree_ops(std::span<const TreeOpsOffer> offers);

}  // namespace turbo::loader
