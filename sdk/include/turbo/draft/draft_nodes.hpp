// Nodes of a draft tree, apart from the ABI: what corpora, merges and caches hand around.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace turbo::draft {

/// A tree without its root (the last committed token). Node i has a token, a parent (-1 = the root, else an index below
/// i) and a score (an estimated probability of the whole path, 0..1). Siblings are distinct. The order is best first,
/// so the first n nodes are the best tree of n nodes.
struct DraftNodes {
  std::vector<int32_t> tokens, parents;
  std::vector<float> scores;
  uint32_t match_length = 0;  // context tokens that the draft's best part continues

  void clear() {
    tokens.clear();
    parents.clear();
    scores.clear();
    match_length = 0;
  }
  uint32_t size() const { return static_cast<uint32_t>(tokens.size()); }

  /// Index of `token` under `parent`, or -1.
  int32_t find(int32_t token, int32_t parent) const {
    // Children come after their parent.
    for (size_t i = static_cast<size_t>(parent + 1); i < tokens.size(); ++i)
      if (parents[i] == parent && tokens[i] == token) return static_cast<int32_t>(i);
    return -1;
  }
  int32_t push(int32_t token, int32_t parent, float score) {
    tokens.push_back(token);
    parents.push_back(parent);
    scores.push_back(score);
    return static_cast<int32_t>(tokens.size() - 1);
  }
};

}  // namespace turbo::draft
