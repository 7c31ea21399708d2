// The drafter as the engine sees it: a scripted target verifies its drafts with the engine's own accept().
#include "phantom.h"

#include <gtest/gtest.h>
#include <turbo/fake/host.hpp>

#include <functional>
#include <thread>

#include "spec/draft_tree.h"

using namespace turbo;
using namespace turbo::phantom;
using namespace std::chrono_literals;

extern "C" const turbo_plugin* turbo_plugin_query(uint32_t, uint32_t);

namespace {

constexpr int32_t kVocab = 1000;

// What the target says next is a function of the newest tokens.
using Target = std::function<int32_t(std::span<const int32_t>)>;
// A text with a period, but every 29th token is another.
int32_t periodic(std::span<const int32_t> tokens) {
  const auto n = static_cast<int32_t>(tokens.size());
  return n % 29 == 28 ? 500 + n % 7 : (n * n) % 17;
}

struct Rig {
  fake::Host host;
  std::unique_ptr<Phantom> phantom;
  const turbo_drafter* table = static_cast<const turbo_drafter*>(Phantom::interface(TURBO_DRAFTER_1));

  explicit Rig(uint32_t idle = 0, std::map<std::string, fake::Option> options = {}) {
    host.options = std::move(options);
    phantom = std::make_unique<Phantom>(Host(host.raw()), idle);
    phantom->start();
  }
  ~Rig() {
    phantom->stop();
    host.stop_workers();
  }
  turbo_status observe(uint32_t sequence, std::vector<int32_t> tokens, uint64_t position, uint32_t n_accepted = 0) {
    turbo_observation seen{};
    seen.struct_size = sizeof seen;
    seen.n_tokens = static_cast<uint32_t>(tokens.size());
    seen.tokens = tokens.data();
    seen.position = position;
    seen.n_accepted = n_accepted;
    return table->observe(phantom.get(), sequence, &seen, nullptr);
  }
  spec::DraftTree draft(uint32_t sequence, uint32_t slots, uint64_t deadline = 0) { return drafts({sequence}, {slots}, deadline)[0]; }
  std::vector<spec::DraftTree> drafts(const std::vector<uint32_t>& sequences, const std::vector<uint32_t>& slots, uint64_t deadline = 0) {
    std::vector<std::vector<int32_t>> tokens, parents;
    std::vector<turbo_proposal> proposals;
    for (const uint32_t n : slots) {
      tokens.emplace_back(n, -7);
      parents.emplace_back(n, -7);
    }
    for (size_t i = 0; i < sequences.size(); ++i)
      proposals.push_back({sizeof(turbo_proposal), sequences[i], slots[i], 99, tokens[i].data(), parents[i].data(), nullptr, deadline});
    EXPECT_EQ(table->poll(phantom.get(), proposals.data(), static_cast<uint32_t>(proposals.size()), nullptr), TURBO_OK);
    std::vector<spec::DraftTree> out(sequences.size());
    for (size_t i = 0; i < sequences.size(); ++i) {
      const uint32_t n = proposals[i].n;
      EXPECT_LT(n, std::max(1u, slots[i]));
      out[i].tokens.assign(tokens[i].begin(), tokens[i].begin() + n);
      out[i].parents.assign(parents[i].begin(), parents[i].begin() + n);
      EXPECT_EQ(spec::find_fault(out[i].tokens, out[i].parents, slots[i] - 1, kVocab), nullptr);
      EXPECT_EQ(tokens[i].back(), -7) << "past the capacity";
    }
    return out;
  }
};

struct Sequence {
  uint32_t id;
  std::vector<int32_t> tokens;
  uint32_t n_accepted = 0, n_rounds = 0;
};

// One step: verify, commit, tell.
void verify(Rig& rig, Sequence& sequence, const spec::DraftTree& tree, const Target& target) {
  std::vector<int32_t> drawn;  // by row: the root, then the nodes
  std::vector<int32_t> path = sequence.tokens;
  drawn.push_back(target(path));
  for (uint32_t node = 0; node < tree.size(); ++node) {
    path = sequence.tokens;
    std::vector<int32_t> above;
    for (int32_t at = static_cast<int32_t>(node); at >= 0; at = tree.parents[static_cast<size_t>(at)]) above.push_back(tree.tokens[static_cast<size_t>(at)]);
    path.insert(path.end(), above.rbegin(), above.rend());
    drawn.push_back(target(path));
  }
  const spec::Acceptance acceptance = spec::accept(tree, drawn);
  const uint64_t position = sequence.tokens.size();
  sequence.tokens.insert(sequence.tokens.end(), acceptance.emitted.begin(), acceptance.emitted.end());
  sequence.n_accepted += static_cast<uint32_t>(acceptance.accepted.size());
  ++sequence.n_rounds;
  ASSERT_EQ(rig.observe(sequence.id, acceptance.emitted, position, static_cast<uint32_t>(acceptance.accepted.size())), TURBO_OK);
}

Sequence begin(Rig& rig, uint32_t id, std::vector<int32_t> prompt) {
  EXPECT_EQ(rig.table->open(rig.phantom.get(), id, nullptr), TURBO_OK);
  EXPECT_EQ(rig.observe(id, prompt, 0), TURBO_OK);
  return {id, prompt};
}

std::vector<int32_t> plain(std::vector<int32_t> tokens, size_t n, const Target& target) {
  while (tokens.size() < n) tokens.push_back(target(tokens));
  tokens.resize(n);
  return tokens;
}

// The ghosts get the time that a real step takes.
void let_ghosts_work(const Rig& rig) {
  if (rig.phantom->ghosts().n_threads() == 0) return;
  const uint64_t before = rig.phantom->ghosts().n_built();
  for (int i = 0; i < 100 && rig.phantom->ghosts().n_built() == before; ++i) std::this_thread::sleep_for(100us);
}

}  // namespace

TEST(Phantom, IsAComponentWithCheckedOptions) {
  fake::Host host;
  fake::Component component(&turbo_plugin_query, "drafter", "phantom", TURBO_TIER_CPU, host);
  const auto* table = component.interface<turbo_drafter>(TURBO_DRAFTER_1);
  turbo_drafter_needs needs{};
  needs.struct_size = sizeof needs;
  ASSERT_EQ(table->needs(component.self(), &needs, nullptr), TURBO_OK);
  EXPECT_EQ(needs.max_slots, 16u);
  EXPECT_EQ(needs.wants_prompt, 1u);
  EXPECT_EQ(needs.n_taps, 0u);
  const std::vector<std::pair<std::string, fake::Option>> bad = {
      {"ghosts", int64_t{0}}, {"ghosts", int64_t{9}}, {"buffers", int64_t{0}}, {"buffers", int64_t{5}}, {"max_slots", int64_t{1}},
      {"max_slots", int64_t{65}}, {"max_trie_depth", int64_t{1}}, {"match_type", std::string("bfs")}, {"capacity", int64_t{5}},
      {"min_bfs_breadth", int64_t{20}}};
  for (const auto& [key, value] : bad) {
    fake::Host refused;
    refused.options[key] = value;
    EXPECT_THROW(fake::Component(&turbo_plugin_query, "drafter", "phantom", TURBO_TIER_CPU, refused), std::runtime_error) << key;
  }
}

TEST(Phantom, TakesOnlyCpusThatTheTargetLeavesIdle) {
  fake::Host host;
  host.options["ghosts"] = int64_t{8};
  host.compute_threads = 100000;
  {
    fake::Component component(&turbo_plugin_query, "drafter", "phantom", TURBO_TIER_CPU, host);
    EXPECT_TRUE(host.worker_names().empty());
    EXPECT_TRUE(host.logged("built when they are wanted"));
  }
  Rig two(2, {{"ghosts", int64_t{8}}}), many(100, {{"ghosts", int64_t{3}}});
  EXPECT_EQ(two.host.worker_names().size(), 2u);
  EXPECT_EQ(many.host.worker_names().size(), 3u);
}

// With the draft length that the engine asks for going up and down.
class PhantomText : public testing::TestWithParam<std::tuple<uint32_t, int64_t, int64_t>> {};

TEST_P(PhantomText, OutputIsTheTargetsAndDraftsAreAccepted) {
  const auto [idle, n_ghosts, n_buffers] = GetParam();
  Rig rig(idle, {{"ghosts", n_ghosts}, {"buffers", n_buffers}});
  Sequence sequence = begin(rig, 4, {0});
  for (int round = 0; sequence.tokens.size() < 600; ++round) {
    const uint32_t slots = round % 60 < 20 ? 8 : round % 60 < 40 ? 3 : 16;
    const spec::DraftTree tree = rig.draft(4, slots);
    let_ghosts_work(rig);
    verify(rig, sequence, tree, periodic);
  }
  EXPECT_EQ(sequence.tokens, plain({0}, sequence.tokens.size(), periodic));
  EXPECT_GT(sequence.n_accepted, sequence.n_rounds) << "more than one accepted token a round";
  EXPECT_EQ(rig.phantom->hits() + rig.phantom->misses(), rig.phantom->rounds());
  EXPECT_EQ(rig.phantom->rounds(), sequence.n_rounds);
  if (idle == 0) {
    EXPECT_EQ(rig.phantom->hits(), 0u);
    EXPECT_EQ(rig.host.counter("built_ahead"), 0);
  } else {
    EXPECT_GT(rig.phantom->hits(), 0u);  // how many depends on the machine
    EXPECT_GT(rig.host.counter("built_ahead"), 0);
  }
  EXPECT_EQ(rig.host.counter("rounds"), sequence.n_rounds);
  EXPECT_EQ(rig.host.counter("hits"), static_cast<double>(rig.phantom->hits()));
  EXPECT_EQ(rig.host.counter("misses"), static_cast<double>(rig.phantom->misses()));
  EXPECT_EQ(rig.host.gauge("ghosts_active"), rig.phantom->ghosts().n_active());
  EXPECT_GE(rig.host.gauge("filter_pairs"), 0);
}

INSTANTIATE_TEST_SUITE_P(Sizes, PhantomText,
                         testing::Values(std::tuple(0u, 1, 2), std::tuple(0u, 8, 2), std::tuple(1u, 1, 1), std::tuple(1u, 4, 2),
                                         std::tuple(3u, 3, 4), std::tuple(8u, 8, 2)));

TEST(Phantom, BatchesOfSequences) {
  for (const uint32_t idle : {0u, 2u}) {
    Rig rig(idle, {{"ghosts", int64_t{3}}});
    std::vector<Sequence> all;
    for (uint32_t id = 0; id < 20; ++id) all.push_back(begin(rig, id, {static_cast<int32_t>(100 + id), 1}));
    const Target target = [](std::span<const int32_t> tokens) { return tokens[0] + static_cast<int32_t>(tokens.size() * tokens.size() % 5); };
    for (int round = 0; round < 60; ++round) {
      // Members come and go with the size staying the same.
      std::vector<uint32_t> ids, slots;
      for (uint32_t i = 0; i < 10; ++i) ids.push_back((i * 2 + static_cast<uint32_t>(round) % 2) % 20), slots.push_back(2 + (i + static_cast<uint32_t>(round)) % 9);
      const auto trees = rig.drafts(ids, slots);
      let_ghosts_work(rig);
      for (size_t i = 0; i < ids.size(); ++i) verify(rig, all[ids[i]], trees[i], target);
    }
    for (const Sequence& sequence : all) {
      EXPECT_EQ(sequence.tokens, plain({sequence.tokens[0], 1}, sequence.tokens.size(), target));
      EXPECT_GT(sequence.n_accepted, 20u);
    }
  }
}

TEST(Phantom, TheSameCallsGiveTheSameDrafts) {
  const auto run = [] {
    Rig rig(0, {{"ghosts", int64_t{5}}});
    Sequence sequence = begin(rig, 1, {3, 1, 4});
    std::vector<int32_t> all;
    while (sequence.tokens.size() < 200) {
      const spec::DraftTree tree = rig.draft(1, 8);
      all.insert(all.end(), tree.tokens.begin(), tree.tokens.end());
      verify(rig, sequence, tree, periodic);
    }
    return all;
  };
  EXPECT_EQ(run(), run());
}

TEST(Phantom, AShorterDraftIsTheBeginningOfALongerOne) {
  Rig rig(0, {{"ghosts", int64_t{4}}});
  Sequence sequence = begin(rig, 1, plain({0}, 100, periodic));
  for (int i = 0; i < 5; ++i) rig.draft(1, 2);
  const spec::DraftTree longest = rig.draft(1, 16);
  ASSERT_GT(longest.size(), 7u);
  const spec::DraftTree three = rig.draft(1, 3);
  ASSERT_EQ(three.size(), 2u);
  EXPECT_EQ(three.tokens[0], longest.tokens[0]);
}

TEST(Phantom, PastTheDeadlineThereIsNoDraft) {
  Rig rig;
  rig.host.advance(1'000'000);
  Sequence sequence = begin(rig, 1, {1, 2, 3, 1, 2});
  EXPECT_GT(rig.draft(1, 8, 2'000'000).size(), 0u);
  EXPECT_EQ(rig.draft(1, 8, 1'000'100).size(), 0u);
  EXPECT_EQ(rig.draft(1, 8, 5).size(), 0u);
}

TEST(Phantom, UnknownAndEmptySequencesGetNoDraft) {
  Rig rig(1);
  EXPECT_EQ(rig.draft(77, 8).size(), 0u);
  EXPECT_EQ(rig.observe(77, {1}, 0), TURBO_NOT_FOUND);
  EXPECT_EQ(rig.table->open(rig.phantom.get(), 1, nullptr), TURBO_OK);
  EXPECT_EQ(rig.draft(1, 8).size(), 0u);
  EXPECT_EQ(rig.observe(1, {}, 0), TURBO_OK);
  EXPECT_EQ(rig.draft(1, 8).size(), 0u);
  rig.table->close(rig.phantom.get(), 1);
  rig.table->close(rig.phantom.get(), 1);
  rig.table->cancel(rig.phantom.get());
}

TEST(Phantom, ANonsenseObservationCostsOnlyItsSequencesContext) {
  Rig rig(1);
  Sequence sequence = begin(rig, 1, {1, 2, 3, 1, 2});
  rig.draft(1, 8);
  EXPECT_EQ(rig.observe(1, {8, 9}, 1'000'000'000'000, 4000000000u), TURBO_OK) << "a hole";
  EXPECT_EQ(rig.draft(1, 8).size(), 0u) << "nothing known of 8, 9";
  EXPECT_EQ(rig.observe(1, {-5, 2147483647}, 1'000'000'000'002, 1), TURBO_OK);
  rig.draft(1, 8);
}

TEST(Phantom, StopsAndStartsAgain) {
  Rig rig(2, {{"ghosts", int64_t{2}}});
  Sequence sequence = begin(rig, 1, plain({0}, 60, periodic));
  rig.draft(1, 8);
  rig.phantom->stop();
  for (int i = 0; i < 3; ++i) rig.draft(1, 8);  // what the ghost did not learn is learned now
  EXPECT_GT(rig.draft(1, 8).size(), 0u) << "on the calling thread";
  rig.phantom->start();
  rig.draft(1, 8);
}

// ---- what the original did wrong (phantom B1 to B12; those of the verifier are named in the README) ----

TEST(Defects, B2DraftsOfOtherContextsAreNotUsed) {
  Rig rig(2, {{"ghosts", int64_t{2}}, {"buffers", int64_t{4}}});
  // The first decode after a prompt, a draft after steps without one, a sequence number used again.
  const std::vector<int32_t> prompt = plain({0}, 40, periodic);
  for (int round = 0; round < 30; ++round) {
    Sequence sequence = begin(rig, 1, prompt);
    for (int step = 0; step < 12; ++step) {
      const bool without = step % 4 == 3;
      const spec::DraftTree tree = without ? spec::DraftTree{} : rig.draft(1, 8);
      let_ghosts_work(rig);
      // Every drafted token continues the present text somewhere: the root's children are what follows its last token.
      for (uint32_t i = 0; i < tree.size(); ++i) ASSERT_LT(tree.tokens[i], 600);
      verify(rig, sequence, tree, periodic);
    }
    ASSERT_EQ(sequence.tokens, plain(prompt, sequence.tokens.size(), periodic));
    rig.table->close(rig.phantom.get(), 1);
  }
}

TEST(Defects, B3RefusedPairsAreThoseAtTheBoundaryAndNeverAccepted) {
  Rig rig;
  Sequence sequence = begin(rig, 1, {1, 2, 3, 1, 2});
  const spec::DraftTree tree = rig.draft(1, 3);
  ASSERT_EQ(tree.tokens, (std::vector<int32_t>{3, 1}));
  verify(rig, sequence, tree, [](std::span<const int32_t>) { return 50; });  // a = 0
  EXPECT_TRUE(rig.phantom->rejected().contains(2, 3));
  EXPECT_FALSE(rig.phantom->rejected().contains(3, 1));
  EXPECT_EQ(rig.phantom->rejected().size(), 1u);

  Rig good;
  Sequence accepted = begin(good, 1, {0});
  const Target clock = [](std::span<const int32_t> tokens) { return static_cast<int32_t>(tokens.size() % 9); };
  for (int i = 0; i < 300; ++i) verify(good, accepted, good.draft(1, 8), clock);
  EXPECT_LE(good.phantom->rejected().size(), 12u) << "only what was refused while the text was new";
  for (int32_t t = 0; t < 9; ++t) EXPECT_FALSE(good.phantom->rejected().contains(t, (t + 1) % 9));
}

TEST(Defects, B4EveryDraftLengthIsServedAndGhostsGoOnHitting) {
  Rig rig(2, {{"ghosts", int64_t{2}}, {"buffers", int64_t{4}}});
  const Target clock = [](std::span<const int32_t> tokens) { return static_cast<int32_t>(tokens.size() % 9); };
  Sequence sequence = begin(rig, 1, {0});
  for (const uint32_t slots : {8u, 3u, 8u, 16u, 2u, 16u}) {
    const uint64_t hits = rig.phantom->hits();
    uint32_t fullest = 0;
    for (int i = 0; i < 30; ++i) {
      const spec::DraftTree tree = rig.draft(1, slots);
      fullest = std::max(fullest, tree.size());
      let_ghosts_work(rig);
      verify(rig, sequence, tree, clock);
    }
    EXPECT_EQ(fullest, slots - 1) << "trimmed by rank or filled with real nodes, never padded";
    EXPECT_GT(rig.phantom->hits(), hits) << slots;
  }
  EXPECT_EQ(sequence.tokens, plain({0}, sequence.tokens.size(), clock));
}

TEST(Defects, B5LaterPromptsAreLearnedAlsoAfterAReset) {
  for (const uint32_t idle : {0u, 1u}) {
    Rig rig(idle);
    for (int32_t round = 0; round < 3; ++round) {
      if (round == 2) {
        rig.phantom->stop();
        rig.phantom->start();  // starts from an empty corpus
        EXPECT_EQ(rig.phantom->corpus().n_nodes(), 0u);
      }
      std::vector<int32_t> prompt;
      for (int32_t i = 0; i < 200; ++i) prompt.push_back(round * 250 + i);
      Sequence first = begin(rig, 1, prompt);
      // A ghost learns it, or the engine thread a little at each call.
      for (int i = 0; i < 200 && rig.phantom->corpus().frequency(std::vector<int32_t>{prompt[190], prompt[191]}) == 0; ++i) {
        if (idle) std::this_thread::sleep_for(1ms);
        else rig.draft(1, 2);
      }
      rig.table->close(rig.phantom.get(), 1);
      begin(rig, 2, {prompt[150], prompt[151]});
      const spec::DraftTree tree = rig.draft(2, 4);
      ASSERT_EQ(tree.size(), 3u) << round;
      EXPECT_EQ(tree.tokens[0], prompt[152]);
      rig.table->close(rig.phantom.get(), 2);
    }
  }
}

// B7: one ghost uses the filter too, and what is moved back takes its subtree with it (any draft here is checked to be a
// legal tree).
TEST(Defects, B7TheFilterWorksWithOneGhost) {
  Rig rig;
  Sequence sequence = begin(rig, 1, {1, 2, 30, 31, 9, 1, 2, 40, 41, 9, 1, 2});
  const spec::DraftTree before = rig.draft(1, 3);
  ASSERT_FALSE(before.tokens.empty());
  EXPECT_EQ(before.tokens[0], 40) << "the latest continuation";
  ASSERT_EQ(rig.observe(1, {77}, 12, 0), TURBO_OK);  // refused
  ASSERT_EQ(rig.observe(1, {1, 2}, 13, 0), TURBO_OK);
  const spec::DraftTree after = rig.draft(1, 16);
  int32_t rank_of_40 = -1, rank_of_30 = -1;
  for (uint32_t i = 0; i < after.size(); ++i)
    if (after.parents[i] < 0) (after.tokens[i] == 40 ? rank_of_40 : after.tokens[i] == 30 ? rank_of_30 : rank_of_40) = static_cast<int32_t>(i);
  ASSERT_GE(rank_of_40, 0);
  ASSERT_GE(rank_of_30, 0);
  EXPECT_LT(rank_of_30, rank_of_40) << "the refused one comes after all others";
}

TEST(Defects, B8LosersOfOneRoundAreNotUsedInTheNext) {
  // Results that nobody took stay ready; a new job makes all of them unusable.
  Rig rig(2, {{"ghosts", int64_t{2}}, {"buffers", int64_t{4}}});
  const std::vector<int32_t> prompt = plain({0}, 60, periodic);
  Sequence sequence = begin(rig, 1, prompt);
  rig.draft(1, 8);
  let_ghosts_work(rig);
  rig.draft(1, 8);  // the same place again: what was built is for later places
  EXPECT_EQ(rig.phantom->hits(), 0u);
}
