// Nodes of a draft tree, apart from the ABI: what corpora, merges and caches hand around.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
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

/// What verification left of a draft: the nodes from the root on that hold.
struct AcceptedPath {
  uint32_t length = 0;
  int32_t last = -1;  // its last node; -1: the root
};

/// The first `n_accepted` of the tokens that the target said, as far as they are a path of `draft`: some of them may be of
/// another draft that was verified beside it. visit(node) for each node, in order.
template <typename Visit>
AcceptedPath accepted_path(const DraftNodes& draft, std::span<const int32_t> said, uint32_t n_accepted, Visit&& visit) {
  AcceptedPath path;
  while (path.length < std::min<size_t>(n_accepted, said.size())) {
    const int32_t node = draft.find(said[path.length], path.last);
    if (node < 0) break;
    visit(node);
    path.last = node;
    ++path.length;
  }
  return path;
}
inline AcceptedPath accepted_path(const DraftNodes& draft, std::span<const int32_t> said, uint32_t n_accepted) {
  return accepted_path(draft, said, n_accepted, [](int32_t) {});
}

/// The running share of drafted tokens that hold, `before` with one verified draft more, in [least, 0.95]. Each node of the
/// path was a trial, and so was the token after it, unless the draft ended there.
inline double running_acceptance(double before, const DraftNodes& draft, const AcceptedPath& path, double least) {
  const bool ended = std::find(draft.parents.begin(), draft.parents.end(), path.last) == draft.parents.end();
  const uint32_t trials = path.length + !ended;
  return trials == 0 ? before : std::clamp(0.95 * before + 0.05 * path.length / trials, least, 0.95);
}

}  // namespace turbo::draft
