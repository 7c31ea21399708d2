// From a context to a draft tree. Each thread has a builder of its own (scratch memory); corpus and filter are shared.
#pragma once

#include "text.h"

#include <turbo/draft/merge.hpp>
#include <turbo/draft/ngram.hpp>
#include <turbo/draft/rejected_pairs.hpp>

namespace turbo::phantom {

/// A continuation that verification may end with: the draft's node that is accepted last (-1: none is) and the token
/// that the target then emits.
struct Outcome {
  int32_t node;
  int32_t token;
  double weight;
};

class Builder {
 public:
  /// `window`: tokens that the corpus remembers in a row. `n_policies`, 1..8, of: the longest matches; only matches of at
  /// most half the window; the sequence's own text at up to twice the window; and, from the fourth on, all but the
  /// longest one, two, ... matches.
  Builder(const draft::NgramCorpus& corpus, const draft::RejectedPairs& rejected, uint32_t window, uint32_t n_policies)
      : corpus_(corpus), rejected_(rejected), window_(window), n_policies_(n_policies) {}

  struct Query {
    std::span<const int32_t> context;  // the newest tokens, at least 1, at most context_length()
    const Text* text = nullptr;        // the sequence's tokens
    uint32_t text_size = 0;            // how many of them may be read
    uint32_t max_nodes = 0;
    bool repair = false;               // refused pairs come last
  };

  uint32_t context_length() const { return std::min(2 * window_, 128u); }

  /// `repaired`, one per node: 1 = there only because refused pairs came last.
  void build(const Query& query, draft::DraftNodes& out, std::vector<uint8_t>& repaired);

  /// The likeliest outcomes of verifying `tree`, best first, at most `most`. `acceptance`: of a first child, in (0, 1).
  void outcomes(const Query& query, const draft::DraftNodes& tree, double acceptance, uint32_t most, std::vector<Outcome>& out);

  /// Tree of one policy alone.
  void policy(uint32_t index, const Query& query, draft::DraftNodes& out);

 private:
  void candidates(const Query& query, std::vector<int32_t>& tokens);

  const draft::NgramCorpus& corpus_;
  const draft::RejectedPairs& rejected_;
  uint32_t window_, n_policies_;
  TextLookup lookup_;
  draft::TreeMerger merger_;
  draft::DraftNodes candidate_, plain_;
  std::vector<int32_t> context_, tokens_, plain_of_;
};

}  // namespace turbo::phantom
