// Drafters over others: "first", the first inner one that has a draft, and "merge", the best tree of all their drafts.
// [engine]; ahead is [worker] and shares nothing with the rest but tables.
#pragma once

#include <turbo/draft/inner_drafters.hpp>
#include <turbo/draft/merge.hpp>

namespace turbo::stack {

enum class Way { first, merge };

template <Way way>
class Stack : public Drafter<Stack<way>> {
 public:
  explicit Stack(const Host& host) : host_(host), inner_(host) {}

  void start() {
    std::string names;
    for (uint32_t i = 0; i < inner_.size(); ++i) names += (i ? ", " : "") + inner_.name(i);
    host_.log(TURBO_LOG_INFO, "over " + names);
  }
  void needs(turbo_drafter_needs& needs) override {
    const uint32_t struct_size = needs.struct_size;
    needs = inner_.needs();
    needs.struct_size = struct_size;
  }
  void open(uint32_t sequence) override { inner_.open(sequence); }
  void close(uint32_t sequence) override { inner_.close(sequence); }
  void observe(uint32_t sequence, const Observation& observation) override { inner_.observe(sequence, observation); }
  void cancel() override { inner_.cancel(); }

  bool poll(Proposals proposals) override {
    asks_.assign(proposals.size(), {});
    mergers_.resize(std::max(mergers_.size(), asks_.size()));
    waiting_.clear();
    uint64_t deadline = 0;
    for (uint32_t i = 0; i < proposals.size(); ++i) {
      const turbo_proposal& proposal = proposals[i];
      asks_[i] = {proposal.sequence, proposal.max_slots, proposal.deadline_ns, {}};
      mergers_[i].clear();
      waiting_.push_back(&asks_[i]);
      deadline = proposal.deadline_ns;
    }
    for (uint32_t i = 0; i < inner_.size() && !waiting_.empty(); ++i) {
      // What is there is worth more than what would come too late.
      if (i > 0 && deadline != 0 && host_.now_ns() >= deadline) break;
      inner_.ask(i, waiting_);
      if constexpr (way == Way::first) {
        std::erase_if(waiting_, [](const draft::InnerAsk* ask) { return ask->tree.size() > 0; });
      } else {
        for (size_t k = 0; k < asks_.size(); ++k) add(mergers_[k], asks_[k].tree);
      }
    }
    for (uint32_t i = 0; i < proposals.size(); ++i) {
      DraftTree draft(proposals[i]);
      if constexpr (way == Way::merge) mergers_[i].best(draft.capacity(), asks_[i].tree);
      write(asks_[i].tree, draft);
    }
    return true;
  }

  void ahead(const Hypothesis& text, DraftTree& draft) override {
    for (uint32_t i = 0; i < inner_.size(); ++i) {
      const turbo_drafter& table = inner_.table(i);
      if (!TURBO_HAS(&table, ahead) || !table.ahead)
        throw Failure(TURBO_UNSUPPORTED, "inner drafter '" + inner_.name(i) + "' cannot draft for a text that may come to be");
    }
    ahead_merger_.clear();
    for (uint32_t i = 0; i < inner_.size(); ++i) {
      ask_ahead(i, text, draft.sequence(), draft.capacity());
      if constexpr (way == Way::first) {
        if (ahead_.size() > 0) break;
      } else {
        add(ahead_merger_, ahead_);
      }
    }
    if constexpr (way == Way::merge) ahead_merger_.best(draft.capacity(), ahead_);
    write(ahead_, draft);
  }

  const draft::InnerDrafters& inner() const { return inner_; }

 private:
  // A drafter that tells no probabilities is taken to be right half of the time.
  static void add(draft::TreeMerger& merger, draft::DraftNodes& tree) {
    const bool told = std::any_of(tree.scores.begin(), tree.scores.end(), [](float score) { return score > 0; });
    if (!told)
      for (uint32_t i = 0; i < tree.size(); ++i)
        tree.scores[i] = 0.5f * (tree.parents[i] < 0 ? 1.0f : tree.scores[static_cast<uint32_t>(tree.parents[i])]);
    merger.add(tree);
  }
  static void write(const draft::DraftNodes& tree, DraftTree& draft) {
    for (uint32_t i = 0; i < tree.size() && !draft.full(); ++i) draft.add(tree.tokens[i], tree.parents[i], i < tree.scores.size() ? tree.scores[i] : 0);
  }
  void ask_ahead(uint32_t i, const Hypothesis& text, uint32_t sequence, uint32_t capacity) {
    const uint32_t n = std::min(capacity, inner_.needs_of(i).max_slots - 1);
    ahead_.clear();
    ahead_.tokens.assign(n, -1);
    ahead_.parents.assign(n, -1);
    ahead_.scores.assign(n, 0.0f);
    turbo_proposal proposal{sizeof(turbo_proposal), sequence, n + 1, 0, ahead_.tokens.data(), ahead_.parents.data(), ahead_.scores.data(), 0};
    const turbo_hypothesis raw{sizeof(turbo_hypothesis), static_cast<uint32_t>(text.tokens().size()), text.tokens().data(), text.position(), text.n_assumed(), 0};
    const turbo_status status = inner_.table(i).ahead(inner_.self(i), &raw, &proposal, nullptr);
    if (status == TURBO_UNSUPPORTED) throw Failure(status, "inner drafter '" + inner_.name(i) + "' cannot draft for a text that may come to be");
    const uint32_t got = status == TURBO_OK && proposal.n <= n ? proposal.n : 0;
    ahead_.tokens.resize(got);
    ahead_.parents.resize(got);
    ahead_.scores.resize(got);
    if (draft::InnerDrafters::fault_of(ahead_.tokens, ahead_.parents, n + 1, inner_.vocabulary())) ahead_.clear();
  }

  const Host host_;
  draft::InnerDrafters inner_;
  std::vector<draft::InnerAsk> asks_;
  std::vector<draft::InnerAsk*> waiting_;
  std::vector<draft::TreeMerger> mergers_;
  draft::DraftNodes ahead_;  // of ahead() alone
  draft::TreeMerger ahead_merger_;
};

}  // namespace turbo::stack
