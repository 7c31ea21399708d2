// The outcome cache around a scripted inner drafter; a scripted target verifies with the engine's own accept().
#include "saguaro.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "spec/draft_tree.h"
#include "support/inner_drafter.h"

using namespace std::chrono_literals;

extern "C" const turbo_plugin* turbo_plugin_query(uint32_t, uint32_t);

namespace turbo::saguaro {
namespace {

using turbo::testing::Driver;
using turbo::testing::InnerDrafter;
using Ids = std::vector<int32_t>;

constexpr int32_t kVocab = 100;

// What the target says is a function of the last two tokens and the length.
int32_t target(std::span<const int32_t> text) {
  const auto n = static_cast<int32_t>(text.size());
  if (n % 31 == 5) return (text.back() + n) % kVocab;
  return (text.back() * 3 + (n % 7 == 3 ? 2 : 1)) % kVocab;
}
// Mostly right, sometimes with its second choice, sometimes not at all. The first n nodes are the same for any room.
void guess(std::span<const int32_t> text, DraftTree& draft) {
  int32_t last = text.back();
  std::optional<int32_t> at = DraftTree::kRoot;
  while (at && !draft.full()) {
    const bool root = *at == DraftTree::kRoot;
    last = (last * 3 + 1) % kVocab;
    at = draft.add(last, *at, 0.5f);
    if (root) draft.add((text.back() * 3 + 2) % kVocab, DraftTree::kRoot, 0.1f);
  }
}

struct Rig {
  fake::Host host;
  InnerDrafter inner;
  std::unique_ptr<Saguaro> outer;
  Driver driver{};

  explicit Rig(InnerDrafter::Answer answer = guess, uint32_t idle = 1, bool foresees = true, std::map<std::string, fake::Option> options = {},
               InnerDrafter::Answer ahead = {})
      : inner(std::move(answer)) {
    inner.ahead_answer = std::move(ahead);
    host.options = std::move(options);
    host.facts.vocab_size = kVocab;
    host.inner_drafters = {inner.under("inner", foresees)};
    outer = std::make_unique<Saguaro>(Host(host.raw()), idle);
    outer->start();
    driver = {static_cast<const turbo_drafter*>(Saguaro::interface(TURBO_DRAFTER_1)), outer.get()};
  }
  ~Rig() {
    outer->stop();
    host.stop_workers();
  }
  // The time that a real step takes.
  void let_it_work() const {
    for (int i = 0; i < 5000 && outer->works() && !outer->foresight()->idle(); ++i) std::this_thread::sleep_for(200us);
  }
};

struct Sequence {
  uint32_t id;
  Ids tokens;
  uint32_t rounds = 0, accepted = 0;
};

Sequence begin(const Rig& rig, uint32_t id, Ids prompt) {
  EXPECT_EQ(rig.driver.open(id), TURBO_OK);
  EXPECT_EQ(rig.driver.observe(id, prompt, 0), TURBO_OK);
  return {id, std::move(prompt)};
}

template <typename Target>
void verify(const Rig& rig, Sequence& sequence, const Driver::Draft& draft, Target&& says) {
  spec::DraftTree tree;
  tree.tokens = draft.tokens;
  tree.parents = draft.parents;
  ASSERT_EQ(spec::find_fault(tree.tokens, tree.parents, 63, kVocab), nullptr);
  Ids drawn;
  for (int32_t node = -1; node < static_cast<int32_t>(tree.size()); ++node) {
    Ids path;
    for (int32_t at = node; at >= 0; at = tree.parents[static_cast<size_t>(at)]) path.push_back(tree.tokens[static_cast<size_t>(at)]);
    Ids text = sequence.tokens;
    text.insert(text.end(), path.rbegin(), path.rend());
    drawn.push_back(says(std::span<const int32_t>(text)));
  }
  const spec::Acceptance acceptance = spec::accept(tree, drawn);
  const uint64_t position = sequence.tokens.size();
  sequence.tokens.insert(sequence.tokens.end(), acceptance.emitted.begin(), acceptance.emitted.end());
  ++sequence.rounds;
  sequence.accepted += static_cast<uint32_t>(acceptance.accepted.size());
  ASSERT_EQ(rig.driver.observe(sequence.id, acceptance.emitted, position, static_cast<uint32_t>(acceptance.accepted.size())), TURBO_OK);
}

Ids plain(Ids tokens, size_t n) {
  while (tokens.size() < n) tokens.push_back(target(tokens));
  tokens.resize(n);
  return tokens;
}
void run(const Rig& rig, Sequence& sequence, size_t n, uint32_t slots = 6) {
  while (sequence.tokens.size() < n) {
    const auto draft = rig.driver.draft(sequence.id, slots);
    rig.let_it_work();
    verify(rig, sequence, draft, target);
  }
  sequence.tokens.resize(n);
}

TEST(Saguaro, HitsGiveTheDraftThatTheInnerOneWouldGive) {
  Rig rig;
  ASSERT_TRUE(rig.outer->works());
  Sequence sequence = begin(rig, 1, {1, 2, 3});
  uint64_t checked = 0;
  while (sequence.tokens.size() < 300) {
    const uint64_t hits = rig.outer->cache().hits();
    const uint32_t polls = rig.inner.n_polls;
    const auto draft = rig.driver.draft(1, 8);
    if (rig.outer->cache().hits() > hits) {
      EXPECT_EQ(rig.inner.n_polls, polls) << "a hit is free";
      Ids tokens(7), parents(7);
      turbo_proposal proposal{sizeof(turbo_proposal), 1, 8, 0, tokens.data(), parents.data(), nullptr, 0};
      DraftTree expected(proposal);
      guess(sequence.tokens, expected);
      tokens.resize(proposal.n);
      EXPECT_EQ(draft.tokens, tokens);
      ++checked;
    } else {
      EXPECT_EQ(rig.inner.n_polls, polls + 1);
    }
    rig.let_it_work();
    verify(rig, sequence, draft, target);
  }
  EXPECT_GT(checked, sequence.rounds / 2);
  sequence.tokens.resize(300);
  EXPECT_EQ(sequence.tokens, plain({1, 2, 3}, 300));
  rig.driver.table->close(rig.outer.get(), 1);
  EXPECT_EQ(rig.outer->cache().size(), 0u);
  EXPECT_EQ(rig.host.counter("hits"), static_cast<double>(checked));
  EXPECT_EQ(rig.host.counter("hits") + rig.host.counter("misses"), sequence.rounds);
  EXPECT_GT(rig.host.counter("built_ahead"), 0);
  EXPECT_GT(rig.host.counter("wasted"), 0);
  EXPECT_EQ(rig.host.gauge("bytes"), 0);
}

TEST(Saguaro, TokensAreThoseWithoutIt) {
  Rig with, without(guess, 0);
  EXPECT_FALSE(without.outer->works());
  for (uint32_t round = 0; round < 5; ++round) {
    const Ids prompt{static_cast<int32_t>(round), 5, 9};
    Sequence a = begin(with, round, prompt), b = begin(without, round, prompt);
    run(with, a, 200);
    run(without, b, 200);
    EXPECT_EQ(a.tokens, plain(prompt, 200));
    EXPECT_EQ(b.tokens, a.tokens);
    EXPECT_EQ(a.accepted, b.accepted) << "this inner drafter says the same ahead and at once";
    with.driver.table->close(with.outer.get(), round);
    without.driver.table->close(without.outer.get(), round);
  }
  EXPECT_GT(with.outer->cache().hits(), 50u);
}

// The text that is drafted for ends with the assumed tokens; nothing that was drafted there is guessed again.
TEST(Saguaro, AsksForTheRightTexts) {
  std::mutex mutex;
  std::vector<Ids> texts;
  Rig rig;
  rig.inner.ahead_answer = [&](std::span<const int32_t> text, DraftTree& draft) {
    {
      const std::lock_guard lock(mutex);
      texts.emplace_back(text.begin(), text.end());
    }
    draft.add(10, -1);
    draft.add(11, -1);
    draft.add(12, -1);
  };
  begin(rig, 1, {1, 2, 3});
  ASSERT_EQ(rig.driver.draft(1, 3).tokens, (Ids{10, 11}));
  rig.let_it_work();
  const std::lock_guard lock(mutex);
  std::set<Ids> seen(texts.begin(), texts.end());
  // What may come after each node of the draft, then a draft for each of these.
  for (const Ids& text : {Ids{1, 2, 3}, {1, 2, 3, 10}, {1, 2, 3, 11}, {1, 2, 3, 12}, {1, 2, 3, 10, 10}, {1, 2, 3, 10, 12}, {1, 2, 3, 11, 11}})
    EXPECT_TRUE(seen.count(text)) << ::testing::PrintToString(text);
  for (const Ids& text : seen) EXPECT_LE(text.size(), 5u);
}

TEST(Saguaro, DraftedTokensAreNotGuessedAtTheirOwnPlace) {
  Rig rig([](std::span<const int32_t> text, DraftTree& draft) { draft.add(text.size() == 3 ? 10 : 20, -1); });
  std::mutex mutex;
  std::set<Ids> texts;
  rig.inner.ahead_answer = [&](std::span<const int32_t> text, DraftTree& draft) {
    const std::lock_guard lock(mutex);
    texts.insert(Ids(text.begin(), text.end()));
    draft.add(10, -1);
    draft.add(11, -1);
  };
  begin(rig, 1, {1, 2, 3});
  EXPECT_EQ(rig.driver.draft(1, 6).tokens, (Ids{10}));
  rig.let_it_work();
  const std::lock_guard lock(mutex);
  EXPECT_TRUE(texts.count({1, 2, 3, 11})) << "10 was refused, then this";
  EXPECT_TRUE(texts.count({1, 2, 3, 10, 10})) << "10 was accepted, then again";
  EXPECT_TRUE(texts.count({1, 2, 3, 10, 11}));
  for (const Ids& text : texts) EXPECT_FALSE(text.size() == 5 && text[3] == 11) << "11 was never drafted";
  EXPECT_EQ(texts.count({1, 2, 3, 10}), 1u) << "as the place after the draft, not as an outcome";
}

TEST(Saguaro, NothingOfAClosedSequenceIsUsed) {
  Rig rig;
  Sequence first = begin(rig, 1, {1, 2, 3});
  run(rig, first, 60);
  rig.driver.draft(1, 6);
  rig.let_it_work();
  rig.driver.table->close(rig.outer.get(), 1);
  const uint64_t hits = rig.outer->cache().hits();
  EXPECT_EQ(rig.outer->cache().size(), 0u);
  // The same number, the same tokens: what comes late for the old one is not for the new one.
  Sequence second = begin(rig, 1, first.tokens);
  rig.driver.draft(1, 6);
  EXPECT_EQ(rig.outer->cache().hits(), hits);
  run(rig, second, 120);
  EXPECT_EQ(second.tokens, plain({1, 2, 3}, 120));
}

TEST(Saguaro, AGapInTheTokensStartsAnew) {
  Rig rig;
  Sequence sequence = begin(rig, 1, {1, 2, 3});
  rig.driver.draft(1, 6);
  rig.let_it_work();
  EXPECT_EQ(rig.driver.observe(1, {50, 51}, 90), TURBO_OK);
  const uint64_t hits = rig.outer->cache().hits();
  rig.driver.draft(1, 6);
  EXPECT_EQ(rig.outer->cache().hits(), hits);
  EXPECT_EQ(rig.outer->cache().size(), 0u);
}

TEST(Saguaro, ManySequencesAtOnceKeepApart) {
  Rig rig;
  std::vector<Sequence> sequences;
  std::vector<uint32_t> ids;
  for (uint32_t i = 0; i < 24; ++i) {
    sequences.push_back(begin(rig, i, {static_cast<int32_t>(i), 4}));
    ids.push_back(i);
  }
  for (int round = 0; round < 40; ++round) {
    const auto drafts = rig.driver.drafts(ids, 6);
    if (round % 2) rig.let_it_work();
    for (size_t i = 0; i < ids.size(); ++i) verify(rig, sequences[i], drafts[i], target);
  }
  for (const Sequence& sequence : sequences) EXPECT_EQ(sequence.tokens, plain({sequence.tokens[0], 4}, sequence.tokens.size()));
  EXPECT_GT(rig.outer->cache().hits(), 0u);
}

TEST(Saguaro, BoundsHold) {
  Rig rig(guess, 1, true, {{"entries", int64_t{5}}, {"guesses", int64_t{64}}});
  Sequence sequence = begin(rig, 1, {1, 2, 3});
  while (sequence.tokens.size() < 200) {
    const auto draft = rig.driver.draft(1, 8);
    EXPECT_LE(rig.outer->cache().size(), 5u);
    rig.let_it_work();
    verify(rig, sequence, draft, target);
  }
}

// ---- when it cannot ----

TEST(PassThrough, WithoutAheadAndSaysSoOnce) {
  Rig rig(guess, 1, false);
  EXPECT_FALSE(rig.outer->works());
  EXPECT_TRUE(rig.host.logged("drafts of 'inner' go through unchanged, none is made ahead: drafter 'inner' cannot draft"));
  EXPECT_TRUE(rig.host.worker_names().empty());
  Sequence sequence = begin(rig, 1, {1, 2, 3});
  run(rig, sequence, 100);
  EXPECT_EQ(rig.inner.n_polls, sequence.rounds);
  EXPECT_EQ(sequence.tokens, plain({1, 2, 3}, 100));
}

TEST(PassThrough, WithoutAnIdleProcessor) {
  Rig rig(guess, 0);
  EXPECT_FALSE(rig.outer->works());
  EXPECT_TRUE(rig.host.logged("the target computes on every CPU"));
  EXPECT_TRUE(rig.host.worker_names().empty());
}

// A drafter over others has the function, and knows only when asked whether all of them do. Told at the start, not by the
// first job.
TEST(PassThrough, OverOneThatSaysItCannotAndSaysSoAtTheStart) {
  const auto refuses = [](std::span<const int32_t>, DraftTree&) { throw Failure(TURBO_UNSUPPORTED, "inner drafter 'mine' cannot look ahead"); };
  Rig rig(guess, 1, true, {}, refuses);
  EXPECT_FALSE(rig.outer->works());
  EXPECT_TRUE(rig.host.logged("drafts of 'inner' go through unchanged, none is made ahead: inner drafter 'mine' cannot look ahead"));
  Sequence sequence = begin(rig, 1, {1, 2, 3});
  run(rig, sequence, 100);
  EXPECT_EQ(rig.inner.n_polls, sequence.rounds);
  EXPECT_EQ(sequence.tokens, plain({1, 2, 3}, 100));
}

// The start does not wait for one that hangs.
TEST(PassThrough, OverOneThatHangsAtTheStart) {
  std::atomic<bool> release{false};
  const auto before = std::chrono::steady_clock::now();
  Rig rig(guess, 1, true, {}, [&](std::span<const int32_t>, DraftTree&) {
    while (!release) std::this_thread::sleep_for(1ms);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - before, 1500ms);
  rig.host.advance(3'000'000'000);
  begin(rig, 1, {1, 2, 3});
  rig.driver.draft(1, 6);
  EXPECT_FALSE(rig.outer->works());
  EXPECT_TRUE(rig.host.logged("has not come back from a draft for two seconds"));
  release = true;
}

// An older table, which ends before ahead, is not read past its end.
TEST(PassThrough, WithATableFromBefore) {
  InnerDrafter inner(guess);
  turbo_inner_drafter raw = inner.under("old");
  turbo_drafter table = *raw.table;
  table.struct_size = offsetof(turbo_drafter, ahead);
  raw.table = &table;
  fake::Host host;
  host.inner_drafters = {raw};
  Saguaro outer(Host(host.raw()), 1);
  outer.start();
  EXPECT_FALSE(outer.works());
}

TEST(Load, WrappingNothingOrSeveralIsAnError) {
  fake::Host host;
  try {
    fake::Component drafter(turbo_plugin_query, "drafter", "saguaro", TURBO_TIER_CPU, host);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("there is none"), std::string::npos) << error.what();
  }
  InnerDrafter a(guess), b(guess);
  host.inner_drafters = {a.under("a"), b.under("b")};
  try {
    fake::Component drafter(turbo_plugin_query, "drafter", "saguaro", TURBO_TIER_CPU, host);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("wraps one drafter, but there are 2"), std::string::npos) << error.what();
  }
}

// ---- faults ahead cost drafts, nothing else ----

void expect_harmless(InnerDrafter::Answer ahead, const char* logged) {
  Rig rig;
  rig.inner.ahead_answer = std::move(ahead);
  Sequence sequence = begin(rig, 1, {1, 2, 3});
  run(rig, sequence, 300);
  EXPECT_EQ(sequence.tokens, plain({1, 2, 3}, 300));
  EXPECT_EQ(rig.outer->cache().hits(), 0u);
  EXPECT_FALSE(rig.outer->works());
  EXPECT_TRUE(rig.host.logged(logged));
  EXPECT_EQ(rig.outer->inner().faults(0), 0u) << "it still drafts when asked";
}

TEST(Faults, Throwing) {
  expect_harmless([](std::span<const int32_t>, DraftTree&) { throw Failure(TURBO_INTERNAL, "told to"); }, "drafts no longer ahead: it failed 16 times");
}
TEST(Faults, NotSupportedAfterAll) {
  expect_harmless([](std::span<const int32_t>, DraftTree&) { throw Failure(TURBO_UNSUPPORTED, "an inner one cannot"); },
                  "drafts no longer ahead: it cannot draft for a text");
}
// Many such answers in the first job, each of which is a fault as well.
TEST(Faults, NotSupportedIsTheReasonHoweverManySequencesAreAtWork) {
  Rig rig;
  rig.inner.ahead_answer = [](std::span<const int32_t>, DraftTree&) { throw Failure(TURBO_UNSUPPORTED, "an inner one cannot"); };
  const std::vector<uint32_t> ids{1, 2, 3, 4, 5, 6};
  for (const uint32_t id : ids) begin(rig, id, {1, 2, 3});
  rig.driver.drafts(ids, 8);
  rig.let_it_work();
  rig.driver.drafts(ids, 8);
  EXPECT_FALSE(rig.outer->works());
  EXPECT_TRUE(rig.host.logged("drafts no longer ahead: it cannot draft for a text"));
}
TEST(Faults, Nonsense) {
  expect_harmless([](std::span<const int32_t>, DraftTree& draft) { draft.add(kVocab, -1); }, "drafts no longer ahead: it failed 16 times");
}

TEST(Faults, HangingIsNoticedAndNeverWaitedFor) {
  Rig rig;
  std::atomic<bool> release{false}, inside{false};
  rig.inner.ahead_answer = [&](std::span<const int32_t>, DraftTree&) {
    inside = true;
    while (!release) std::this_thread::sleep_for(1ms);
  };
  Sequence sequence = begin(rig, 1, {1, 2, 3});
  rig.driver.draft(1, 6);
  for (int i = 0; i < 5000 && !inside; ++i) std::this_thread::sleep_for(1ms);
  ASSERT_TRUE(inside);
  const auto before = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) verify(rig, sequence, rig.driver.draft(1, 6), target);
  EXPECT_LT(std::chrono::steady_clock::now() - before, 1s);
  EXPECT_TRUE(rig.outer->works());
  rig.host.advance(3'000'000'000);
  rig.driver.draft(1, 6);
  EXPECT_FALSE(rig.outer->works());
  EXPECT_TRUE(rig.host.logged("has not come back from a draft for two seconds"));
  verify(rig, sequence, rig.driver.draft(1, 6), target);
  EXPECT_EQ(sequence.tokens, plain({1, 2, 3}, sequence.tokens.size()));
  release = true;
}

// The engine thread and the worker at full speed, closing and opening on the way.
TEST(Threads, NeitherWaitsAndNothingStaleIsUsed) {
  Rig rig(guess, 1, true, {{"guesses", int64_t{32}}});
  std::mt19937 rng(7);
  std::vector<Sequence> sequences;
  for (uint32_t i = 0; i < 4; ++i) sequences.push_back(begin(rig, i, {static_cast<int32_t>(i), 4}));
  for (int round = 0; round < 3000; ++round) {
    Sequence& sequence = sequences[rng() % 4];
    const auto draft = rig.driver.draft(sequence.id, 2 + rng() % 7);
    if (rng() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(rng() % 300));
    if (rng() % 50 == 0) {
      EXPECT_EQ(sequence.tokens, plain({sequence.tokens[0], 4}, sequence.tokens.size()));
      rig.driver.table->close(rig.outer.get(), sequence.id);
      sequence = begin(rig, sequence.id, {static_cast<int32_t>(rng() % kVocab), 4});
      continue;
    }
    if (rng() % 20 == 0) {
      rig.driver.table->cancel(rig.outer.get());
      continue;
    }
    verify(rig, sequence, draft, target);
  }
}

TEST(Threads, StopsWhileWorkIsUnderWay) {
  for (int i = 0; i < 50; ++i) {
    Rig rig;
    begin(rig, 1, {1, 2, 3});
    rig.driver.draft(1, 6);
    std::this_thread::sleep_for(std::chrono::microseconds(i * 10));
  }
}

}  // namespace
}  // namespace turbo::saguaro
