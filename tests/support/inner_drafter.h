// A drafter to compose others over: what it answers is a function of the tokens that it was told, and tests see what it
// was told. ahead may run on another thread.
#pragma once

#include <turbo/abi/draft/drafters.h>
#include <turbo/drafter.hpp>
#include <turbo/fake/host.hpp>

#include <functional>
#include <map>

namespace turbo::testing {

class InnerDrafter : public Drafter<InnerDrafter> {
 public:
  /// Chain or tree after a text; may throw.
  using Answer = std::function<void(std::span<const int32_t> text, DraftTree& draft)>;

  explicit InnerDrafter(Answer answer) : answer_(std::move(answer)) {}
  explicit InnerDrafter(const Host&) {}

  turbo_drafter_needs wanted = [] {
    turbo_drafter_needs needs{};
    needs.max_slots = 8;
    needs.wants_prompt = 1;
    return needs;
  }();
  turbo_status status = TURBO_OK;  // of every call but needs
  bool garbage = false;            // answers more nodes than there is room for,
  uint32_t spared = UINT32_MAX;    // but for this sequence
  Answer ahead_answer;             // else the usual one
  std::map<uint32_t, std::vector<int32_t>> texts;
  std::vector<uint32_t> accepted;  // of each observation
  std::vector<std::vector<int32_t>> taps;  // of each observation: the first value of each tap
  uint32_t n_polls = 0, n_closed = 0, n_cancelled = 0;

  void needs(turbo_drafter_needs& needs) override {
    if (wanted.max_slots == 0) throw Failure(TURBO_NOT_FOUND, "its weights are missing");
    const uint32_t size = needs.struct_size;
    needs = wanted;
    needs.struct_size = size;
  }
  void open(uint32_t sequence) override {
    fail();
    texts[sequence] = {};
  }
  void close(uint32_t sequence) override {
    texts.erase(sequence);
    ++n_closed;
  }
  void observe(uint32_t sequence, const Observation& seen) override {
    fail();
    std::vector<int32_t>& text = texts.at(sequence);
    text.insert(text.end(), seen.tokens().begin(), seen.tokens().end());
    accepted.push_back(seen.n_accepted());
    taps.emplace_back();
    for (uint32_t t = 0; t < seen.n_taps(); ++t) taps.back().push_back(seen.tap(t, 0) ? static_cast<int32_t>(*seen.tap(t, 0)) : -1);
  }
  bool poll(Proposals proposals) override {
    ++n_polls;
    if (status == TURBO_PENDING) return false;
    fail();
    for (uint32_t i = 0; i < proposals.size(); ++i) {
      DraftTree draft(proposals[i]);
      answer_(texts.at(draft.sequence()), draft);
      if (garbage && draft.sequence() != spared) proposals[i].n = 1000;
    }
    return true;
  }
  void cancel() override { ++n_cancelled; }
  void ahead(const Hypothesis& text, DraftTree& draft) override { (ahead_answer ? ahead_answer : answer_)(text.tokens(), draft); }

  /// As an inner drafter under this name. `foresees`: it has ahead.
  turbo_inner_drafter under(const char* name, bool foresees = true) {
    table_ = *static_cast<const turbo_drafter*>(InnerDrafter::interface(TURBO_DRAFTER_1));
    if (!foresees) table_.ahead = nullptr;
    return {sizeof(turbo_inner_drafter), 0, name, &table_, this};
  }

 private:
  void fail() const {
    if (status != TURBO_OK && status != TURBO_PENDING) throw Failure(status, "told to fail");
  }
  Answer answer_;
  turbo_drafter table_{};
};

/// The next tokens as a chain: next(text) again and again.
template <typename Next>
InnerDrafter::Answer chain_of(Next next) {
  return [next](std::span<const int32_t> text, DraftTree& draft) {
    std::vector<int32_t> tokens(text.begin(), text.end());
    for (std::optional<int32_t> at = DraftTree::kRoot; !draft.full();) {
      tokens.push_back(next(std::span<const int32_t>(tokens)));
      at = draft.add(tokens.back(), *at);
      if (!at) return;
    }
  };
}

/// Calls of a drafter as the engine makes them.
struct Driver {
  const turbo_drafter* table;
  void* self;

  turbo_status open(uint32_t sequence) const { return table->open(self, sequence, nullptr); }
  turbo_status observe(uint32_t sequence, const std::vector<int32_t>& tokens, uint64_t position, uint32_t n_accepted = 0,
                       const std::vector<turbo_view>& taps = {}) const {
    const int32_t row = 0;
    turbo_observation seen{};
    seen.struct_size = sizeof seen;
    seen.n_tokens = static_cast<uint32_t>(tokens.size());
    seen.tokens = tokens.data();
    seen.position = position;
    seen.n_accepted = n_accepted;
    seen.n_taps = static_cast<uint32_t>(taps.size());
    seen.taps = taps.data();
    seen.tap_position = position;
    seen.n_tap_rows = taps.empty() ? 0 : 1;
    seen.tap_rows = &row;
    return table->observe(self, sequence, &seen, nullptr);
  }
  struct Draft {
    std::vector<int32_t> tokens, parents;
  };
  std::vector<Draft> drafts(const std::vector<uint32_t>& sequences, uint32_t slots) const {
    std::vector<Draft> out(sequences.size());
    std::vector<turbo_proposal> proposals;
    for (size_t i = 0; i < sequences.size(); ++i) {
      out[i].tokens.assign(slots, -7);
      out[i].parents.assign(slots, -7);
      proposals.push_back({sizeof(turbo_proposal), sequences[i], slots, 99, out[i].tokens.data(), out[i].parents.data(), nullptr, 0});
    }
    EXPECT_EQ(table->poll(self, proposals.data(), static_cast<uint32_t>(proposals.size()), nullptr), TURBO_OK);
    for (size_t i = 0; i < sequences.size(); ++i) {
      EXPECT_LT(proposals[i].n, slots);
      EXPECT_EQ(out[i].tokens.back(), -7) << "past the capacity";
      out[i].tokens.resize(proposals[i].n);
      out[i].parents.resize(proposals[i].n);
    }
    return out;
  }
  Draft draft(uint32_t sequence, uint32_t slots) const { return drafts({sequence}, slots)[0]; }
};

}  // namespace turbo::testing
