#include "builder.h"

#include <cmath>

namespace turbo::phantom {
namespace {

constexpr uint32_t kCandidateNodes = 24;  // asked of the corpus for the tokens after one context
constexpr uint32_t kCandidates = 6;       // of them used

std::span<const int32_t> last(std::span<const int32_t> tokens, uint32_t n) {
  return tokens.last(std::min<size_t>(n, tokens.size()));
}

}  // namespace

void Builder::policy(uint32_t index, const Query& query, draft::DraftNodes& out) {
  out.clear();
  const std::span<const int32_t> window = last(query.context, window_);
  draft::NgramQuery ngram;
  if (index == 1) ngram.longest = std::max(window_ / 2, 4u);
  if (index == 2) {
    if (query.text) lookup_.match(*query.text, query.text_size, query.context, query.max_nodes, out);
    return;
  }
  if (index >= 3) ngram.skip_anchors = index - 2;
  if (!corpus_.match(window, query.max_nodes, ngram, out)) out.clear();
}

void Builder::build(const Query& query, draft::DraftNodes& out, std::vector<uint8_t>& repaired) {
  merger_.clear();
  for (uint32_t i = 0; i < n_policies_; ++i) {
    policy(i, query, candidate_);
    merger_.add(candidate_);
  }
  bool any = false;
  const auto refused = [&](int32_t parent, int32_t token) {
    const bool hit = query.repair && rejected_.contains(parent, token);
    any |= hit;
    return hit;
  };
  merger_.best(query.max_nodes, query.context.back(), refused, out);
  repaired.assign(out.size(), 0);
  if (!any) return;
  // Which nodes would not be there otherwise: walk both trees together.
  merger_.best(query.max_nodes, plain_);
  plain_of_.assign(out.size(), -1);
  for (uint32_t i = 0; i < out.size(); ++i) {
    const int32_t parent = out.parents[i];
    const bool parent_is_new = parent >= 0 && repaired[static_cast<uint32_t>(parent)];
    if (!parent_is_new) plain_of_[i] = plain_.find(out.tokens[i], parent < 0 ? -1 : plain_of_[static_cast<uint32_t>(parent)]);
    repaired[i] = plain_of_[i] < 0;
  }
}

// Tokens that may follow a context, likeliest first, distinct.
void Builder::candidates(const Query& query, std::vector<int32_t>& tokens) {
  tokens.clear();
  const auto collect = [&] {
    for (uint32_t i = 0; i < candidate_.size() && tokens.size() < kCandidates; ++i)
      if (candidate_.parents[i] < 0 && std::find(tokens.begin(), tokens.end(), candidate_.tokens[i]) == tokens.end())
        tokens.push_back(candidate_.tokens[i]);
  };
  if (n_policies_ > 2 && query.text) {
    lookup_.match(*query.text, query.text_size, query.context, 1, candidate_);
    collect();
  }
  if (corpus_.match(last(query.context, window_), kCandidateNodes, {}, candidate_)) collect();
}

void Builder::outcomes(const Query& query, const draft::DraftNodes& tree, double acceptance, uint32_t most, std::vector<Outcome>& out) {
  out.clear();
  // A node's r-th child is taken with probability p (1-p)^r; tokens that are not drafted come after the drafted ones.
  const auto share = [acceptance](uint32_t rank) { return acceptance * std::pow(1 - acceptance, rank); };
  std::vector<double> reach(tree.size());
  std::vector<uint32_t> n_children(tree.size() + 1);  // of node i - 1
  for (uint32_t i = 0; i < tree.size(); ++i) {
    const auto parent = static_cast<uint32_t>(tree.parents[i] + 1);
    reach[i] = (parent == 0 ? 1.0 : reach[parent - 1]) * share(n_children[parent]++);
  }
  std::vector<int32_t> path;
  for (int32_t node = -1; node < static_cast<int32_t>(tree.size()); ++node) {
    path.clear();
    for (int32_t at = node; at >= 0; at = tree.parents[static_cast<uint32_t>(at)]) path.push_back(tree.tokens[static_cast<uint32_t>(at)]);
    context_.assign(query.context.begin(), query.context.end());
    context_.insert(context_.end(), path.rbegin(), path.rend());
    Query after = query;
    after.context = last(context_, context_length());
    candidates(after, tokens_);
    uint32_t rank = n_children[static_cast<uint32_t>(node + 1)];
    const double reached = node < 0 ? 1.0 : reach[static_cast<uint32_t>(node)];
    for (const int32_t token : tokens_)
      if (tree.find(token, node) < 0) out.push_back({node, token, reached * share(rank++)});
  }
  std::stable_sort(out.begin(), out.end(), [](const Outcome& a, const Outcome& b) { return a.weight > b.weight; });
  if (out.size() > most) out.resize(most);
}

}  // namespace turbo::phantom
