// Candidates of one draft: the t best continuations of every node that was looked at, and the best of them all. One thread.
//
// Level 0 holds the t best tokens after the text. At each further level the t live nodes get t children each, of which
// the best t become live. A score is the product of the probabilities on the way down, so a child never beats its parent.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace turbo::spec_standalone {

struct Candidate {
  int32_t token;
  float probability;  // after its parent
};

/// The `count` most probable of ids [0, vocab), best first; ties go to the lower id, NaN counts as impossible. With count 1
/// the probability is not worked out and is 1. `allowed`, if not empty, names the only ids that exist, in rising order, all
/// below vocab. Empty when no logit is a number.
void best_tokens(std::span<const float> logits, std::span<const int32_t> allowed, uint32_t count, std::vector<Candidate>& out);

class DraftPool {
 public:
  struct Node {
    int32_t token;
    int32_t parent;      // index in the pool, -1: the text
    float score;
    int32_t run_as = -1; // its number in the draft model's tree, once it ran
  };

  /// A new draft that keeps `branches` live nodes.
  void begin(uint32_t branches);
  /// Children of a live node (-1: the text).
  void expand(int32_t parent, std::span<const Candidate> children);
  /// The best of the nodes added since the last call become the live ones.
  void close_level();

  const std::vector<int32_t>& live() const { return live_; }
  Node& node(int32_t index) { return nodes_[static_cast<size_t>(index)]; }
  /// Indices of the `count` best nodes, best first. Parents come before their children.
  std::vector<int32_t> best(uint32_t count) const;

 private:
  uint32_t branches_ = 1;
  std::vector<Node> nodes_;
  std::vector<int32_t> live_;
  size_t level_ = 0;  // first node of the open level
};

}  // namespace turbo::spec_standalone
