// "first" and "merge" over scripted inner drafters.
#include <gtest/gtest.h>

#include "stack.h"
#include "support/inner_drafter.h"

extern "C" const turbo_plugin* turbo_plugin_query(uint32_t, uint32_t);

namespace turbo::stack {
namespace {

using turbo::testing::Driver;
using turbo::testing::InnerDrafter;

using Nodes = std::vector<std::tuple<int32_t, int32_t, float>>;  // token, parent, probability

InnerDrafter::Answer fixed(Nodes nodes) {
  return [nodes](std::span<const int32_t>, DraftTree& draft) {
    for (const auto& [token, parent, probability] : nodes) draft.add(token, parent, probability);
  };
}
const InnerDrafter::Answer nothing = [](std::span<const int32_t>, DraftTree&) {};

template <typename Drafter>
struct Rig {
  fake::Host host;
  std::unique_ptr<Drafter> outer;
  Driver driver{};

  explicit Rig(std::vector<InnerDrafter*> inner) {
    static const char* const names[] = {"alpha", "beta", "gamma"};
    for (size_t i = 0; i < inner.size(); ++i) host.inner_drafters.push_back(inner[i]->under(names[i]));
    host.facts.vocab_size = 1000;
    outer = std::make_unique<Drafter>(Host(host.raw()));
    driver = {static_cast<const turbo_drafter*>(Drafter::interface(TURBO_DRAFTER_1)), outer.get()};
  }
  void begin(uint32_t sequence) const {
    ASSERT_EQ(driver.open(sequence), TURBO_OK);
    ASSERT_EQ(driver.observe(sequence, {1, 2, 3}, 0), TURBO_OK);
  }
};
using First = Rig<Stack<Way::first>>;
using Merge = Rig<Stack<Way::merge>>;
using Ids = std::vector<int32_t>;

TEST(First, TakesTheFirstDraftThereIsAndTellsEverybodyEverything) {
  InnerDrafter a([](std::span<const int32_t> text, DraftTree& draft) {
    if (text.size() % 2 == 0) draft.add(7, -1);
  });
  InnerDrafter b(fixed({{8, -1, 0.f}, {9, 0, 0.f}}));
  First rig({&a, &b});
  rig.begin(1);
  EXPECT_EQ(rig.driver.draft(1, 8).tokens, (Ids{8, 9}));
  ASSERT_EQ(rig.driver.observe(1, {8}, 3, 1), TURBO_OK);
  EXPECT_EQ(rig.driver.draft(1, 8).tokens, (Ids{7}));
  EXPECT_EQ(b.n_polls, 1u) << "the second is asked where the first has nothing, no more";
  EXPECT_EQ(a.texts.at(1), (Ids{1, 2, 3, 8}));
  EXPECT_EQ(b.texts.at(1), (Ids{1, 2, 3, 8}));
  rig.driver.table->close(rig.outer.get(), 1);
  EXPECT_EQ(a.n_closed + b.n_closed, 2u);
}

TEST(First, AsksTheSecondForThoseSequencesOnlyThatHaveNoDraft) {
  InnerDrafter a([](std::span<const int32_t> text, DraftTree& draft) {
    if (text.back() == 5) draft.add(6, -1);
  });
  std::vector<int32_t> seen;
  InnerDrafter b([&](std::span<const int32_t> text, DraftTree& draft) {
    seen.push_back(text.back());
    draft.add(60, -1);
  });
  First rig({&a, &b});
  for (const uint32_t sequence : {1u, 2u}) rig.begin(sequence);
  rig.driver.observe(2, {5}, 3);
  const auto drafts = rig.driver.drafts({1, 2}, 4);
  EXPECT_EQ(drafts[0].tokens, (Ids{60}));
  EXPECT_EQ(drafts[1].tokens, (Ids{6}));
  EXPECT_EQ(seen, (Ids{3}));
}

// What one drafted and the target took is no success of another.
TEST(First, AcceptedCountsAreThoseOfEachOnesOwnDraft) {
  InnerDrafter a(fixed({{7, -1, 0.f}, {9, 0, 0.f}})), b(fixed({{8, -1, 0.f}}));
  Merge rig({&a, &b});
  rig.begin(1);
  rig.driver.draft(1, 8);
  rig.driver.observe(1, {7, 9, 4}, 3, 2);
  EXPECT_EQ(a.accepted.back(), 2u);
  EXPECT_EQ(b.accepted.back(), 0u);
  rig.driver.observe(1, {7, 9, 4}, 6, 2);
  EXPECT_EQ(a.accepted.back(), 0u) << "it drafted nothing since";
}

TEST(Merge, UnitesTreesBestFirst) {
  InnerDrafter a(fixed({{7, -1, 0.9f}, {9, 0, 0.4f}, {10, 1, 0.1f}})), b(fixed({{7, -1, 0.5f}, {11, 0, 0.3f}, {8, -1, 0.2f}}));
  Merge rig({&a, &b});
  rig.begin(1);
  const auto whole = rig.driver.draft(1, 8);
  EXPECT_EQ(whole.tokens, (Ids{7, 9, 11, 8, 10}));
  EXPECT_EQ(whole.parents, (Ids{-1, 0, 0, -1, 1}));
  for (uint32_t slots = 2; slots < 6; ++slots) {
    const auto part = rig.driver.draft(1, slots);
    EXPECT_EQ(part.tokens, Ids(whole.tokens.begin(), whole.tokens.begin() + slots - 1)) << "the first nodes are the best tree of that many";
  }
}

TEST(Merge, ADrafterWithoutProbabilitiesIsNotBehindAllOthers) {
  InnerDrafter a(fixed({{7, -1, 0.3f}})), b(fixed({{8, -1, 0.f}, {9, 0, 0.f}}));
  Merge rig({&a, &b});
  rig.begin(1);
  EXPECT_EQ(rig.driver.draft(1, 8).tokens, (Ids{8, 7, 9}));
}

template <typename R>
void faults_cost_one_drafter_alone() {
  InnerDrafter bad(fixed({{7, -1, 0.f}})), good(fixed({{8, -1, 0.f}}));
  R rig({&bad, &good});
  rig.begin(1);
  bad.garbage = true;
  for (uint32_t i = 0; i < draft::InnerDrafters::kMaxFaults; ++i) {
    EXPECT_TRUE(rig.outer->inner().active(0));
    EXPECT_EQ(rig.driver.draft(1, 8).tokens, (Ids{8}));
  }
  EXPECT_FALSE(rig.outer->inner().active(0));
  EXPECT_TRUE(rig.outer->inner().active(1));
  EXPECT_TRUE(rig.host.logged("inner drafter 'alpha': left out after 16 faults in a row"));
  EXPECT_EQ(rig.host.counter("inner_faults"), 16);
  bad.garbage = false;
  EXPECT_EQ(rig.driver.draft(1, 8).tokens, (Ids{8}));
  EXPECT_EQ(bad.n_polls, 16u);
}
TEST(First, FaultsCostOneDrafterAlone) { faults_cost_one_drafter_alone<First>(); }
TEST(Merge, FaultsCostOneDrafterAlone) { faults_cost_one_drafter_alone<Merge>(); }

TEST(Faults, AGoodDraftInTheSameRoundHidesNone) {
  InnerDrafter bad(fixed({{7, -1, 0.f}})), good(fixed({{8, -1, 0.f}}));
  First rig({&bad, &good});
  rig.begin(1);
  rig.begin(2);
  bad.garbage = true;
  bad.spared = 2;
  for (uint32_t i = 0; i < draft::InnerDrafters::kMaxFaults; ++i) {
    EXPECT_TRUE(rig.outer->inner().active(0)) << i;
    rig.driver.drafts({1, 2}, 8);
  }
  EXPECT_FALSE(rig.outer->inner().active(0));
}

TEST(Faults, OneThatMissedTokensIsClosedForThatSequence) {
  InnerDrafter bad(fixed({{7, -1, 0.f}})), good(fixed({{8, -1, 0.f}}));
  First rig({&bad, &good});
  rig.begin(1);
  rig.begin(2);
  bad.status = TURBO_INTERNAL;
  EXPECT_EQ(rig.driver.observe(1, {4}, 3), TURBO_OK);
  bad.status = TURBO_OK;
  const auto drafts = rig.driver.drafts({1, 2}, 8);
  EXPECT_EQ(drafts[0].tokens, (Ids{8}));
  EXPECT_EQ(drafts[1].tokens, (Ids{7}));
  EXPECT_EQ(bad.n_closed, 1u);
}

TEST(Faults, NonsenseIsNotPassedOn) {
  for (const int kind : {0, 1, 2, 3}) {
    InnerDrafter bad(nothing), good(fixed({{8, -1, 0.f}}));
    static int now;
    now = kind;
    // Written past DraftTree, which would not let it.
    turbo_inner_drafter raw = bad.under("bad");
    turbo_drafter table = *raw.table;
    table.poll = [](void*, turbo_proposal* proposals, uint32_t, turbo_error*) -> turbo_status {
      proposals->n = 2;
      proposals->tokens[0] = now == 0 ? 1000 : 5;
      proposals->tokens[1] = now == 3 ? -1 : 5;
      proposals->parents[0] = now == 1 ? 0 : -1;
      proposals->parents[1] = -1;  // equal siblings
      return TURBO_OK;
    };
    raw.table = &table;
    fake::Host host;
    host.facts.vocab_size = 1000;
    host.inner_drafters = {raw, good.under("good")};
    Stack<Way::merge> outer{Host(host.raw())};
    const Driver driver{static_cast<const turbo_drafter*>(Stack<Way::merge>::interface(TURBO_DRAFTER_1)), &outer};
    driver.open(1);
    driver.observe(1, {1}, 0);
    EXPECT_EQ(driver.draft(1, 8).tokens, (Ids{8})) << kind;
    EXPECT_EQ(outer.inner().faults(0), 1u) << kind;
  }
}

TEST(Faults, LateIsNoFault) {
  InnerDrafter late(fixed({{7, -1, 0.f}})), good(fixed({{8, -1, 0.f}}));
  First rig({&late, &good});
  rig.begin(1);
  late.status = TURBO_PENDING;
  for (int i = 0; i < 40; ++i) EXPECT_EQ(rig.driver.draft(1, 8).tokens, (Ids{8}));
  EXPECT_EQ(rig.outer->inner().faults(0), 0u);
  EXPECT_EQ(late.n_cancelled, 40u);
}

TEST(Needs, AreThoseOfAllTogether) {
  InnerDrafter a(nothing), b(nothing);
  a.wanted.max_slots = 4;
  a.wanted.wants_prompt = 0;
  a.wanted.n_taps = 2;
  a.wanted.tap_layers[0] = 3;
  a.wanted.tap_layers[1] = 9;
  b.wanted.max_slots = 12;
  b.wanted.runs_programs = 1;
  b.wanted.n_taps = 2;
  b.wanted.tap_layers[0] = 9;
  b.wanted.tap_layers[1] = 5;
  Merge rig({&a, &b});
  turbo_drafter_needs needs{};
  needs.struct_size = sizeof needs;
  ASSERT_EQ(rig.driver.table->needs(rig.outer.get(), &needs, nullptr), TURBO_OK);
  EXPECT_EQ(needs.max_slots, 12u);
  EXPECT_EQ(needs.wants_prompt, 1u);
  EXPECT_EQ(needs.runs_programs, 1u);
  ASSERT_EQ(needs.n_taps, 3u);
  EXPECT_EQ(std::vector<int32_t>(needs.tap_layers, needs.tap_layers + 3), (Ids{3, 9, 5}));

  // Each gets its own layers, in its own order.
  std::vector<float> values{30, 90, 50};
  std::vector<turbo_view> views;
  for (float& value : values) views.push_back({sizeof(turbo_view), TURBO_TYPE_F32, &value, 4, 2, TURBO_MEMORY_HOST, -1, 0, {1, 1, 0, 0}, {4, 4, 0, 0}});
  rig.driver.open(1);
  rig.driver.observe(1, {1}, 0, 0, views);
  EXPECT_EQ(a.taps.back(), (Ids{30, 90}));
  EXPECT_EQ(b.taps.back(), (Ids{90, 50}));
}

TEST(Needs, MoreLayersThanThereIsRoomForAreRefused) {
  InnerDrafter a(nothing), b(nothing);
  for (uint32_t i = 0; i < 5; ++i) {
    a.wanted.tap_layers[i] = static_cast<int32_t>(i);
    b.wanted.tap_layers[i] = static_cast<int32_t>(10 + i);
  }
  a.wanted.n_taps = b.wanted.n_taps = 5;
  try {
    First rig({&a, &b});
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_NE(failure.message.find("hidden states of more than 8 layers"), std::string::npos) << failure.message;
  }
}

TEST(Needs, SmallerOnesAreNotAskedForMore) {
  InnerDrafter a(turbo::testing::chain_of([](std::span<const int32_t> text) { return text.back() + 1; }));
  a.wanted.max_slots = 3;
  InnerDrafter b(nothing);
  b.wanted.max_slots = 16;
  First rig({&a, &b});
  rig.begin(1);
  EXPECT_EQ(rig.driver.draft(1, 16).tokens, (Ids{4, 5}));
}

TEST(Load, NoInnerDrafterIsAnErrorThatSaysWhatToDo) {
  fake::Host host;
  for (const char* name : {"first", "merge"}) try {
      fake::Component drafter(turbo_plugin_query, "drafter", name, TURBO_TIER_CPU, host);
      FAIL();
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find("there is none"), std::string::npos) << error.what();
    }
}

TEST(Load, OneThatCannotSayWhatItNeedsIsLeftOut) {
  InnerDrafter broken(nothing), good(fixed({{8, -1, 0.f}}));
  broken.wanted.max_slots = 0;
  First rig({&broken, &good});
  EXPECT_TRUE(rig.host.logged("inner drafter 'alpha': its weights are missing"));
  rig.begin(1);
  EXPECT_EQ(rig.driver.draft(1, 8).tokens, (Ids{8}));
  EXPECT_THROW(First({&broken}), Failure);
}

TEST(Ahead, IsThatOfTheInnerOnes) {
  InnerDrafter a([](std::span<const int32_t> text, DraftTree& draft) {
    if (text.back() == 5) draft.add(6, -1, 0.5f);
  });
  InnerDrafter b(fixed({{8, -1, 0.4f}}));
  First first({&a, &b});
  Merge merge({&a, &b});
  const auto ahead = [](const Driver& driver, Ids text) {
    Ids tokens(4), parents(4);
    turbo_proposal proposal{sizeof(turbo_proposal), 1, 5, 0, tokens.data(), parents.data(), nullptr, 0};
    const turbo_hypothesis hypothesis{sizeof(turbo_hypothesis), static_cast<uint32_t>(text.size()), text.data(), 0, 1, 0};
    EXPECT_EQ(driver.table->ahead(driver.self, &hypothesis, &proposal, nullptr), TURBO_OK);
    tokens.resize(proposal.n);
    return tokens;
  };
  EXPECT_EQ(ahead(first.driver, {1, 5}), (Ids{6}));
  EXPECT_EQ(ahead(first.driver, {1, 4}), (Ids{8}));
  EXPECT_EQ(ahead(merge.driver, {1, 5}), (Ids{6, 8}));
}

TEST(Ahead, IsNotThereIfOneOfThemCannot) {
  InnerDrafter a(nothing), b(nothing);
  fake::Host host;
  host.inner_drafters = {a.under("a"), b.under("b", false)};
  Stack<Way::first> outer{Host(host.raw())};
  const auto* table = static_cast<const turbo_drafter*>(Stack<Way::first>::interface(TURBO_DRAFTER_1));
  const int32_t token = 1;
  Ids tokens(4), parents(4);
  turbo_proposal proposal{sizeof(turbo_proposal), 1, 5, 0, tokens.data(), parents.data(), nullptr, 0};
  const turbo_hypothesis hypothesis{sizeof(turbo_hypothesis), 1, &token, 0, 0, 0};
  EXPECT_EQ(table->ahead(&outer, &hypothesis, &proposal, nullptr), TURBO_UNSUPPORTED);
}

}  // namespace
}  // namespace turbo::stack
