// The drafters against a scripted draft model.
#include <gtest/gtest.h>
#include <turbo/fake/host.hpp>
#include <turbo/plugin.hpp>

#include <algorithm>
#include <fstream>
#include <random>

#include "model_drafter.h"
#include "support/temp_dir.h"

extern "C" const turbo_plugin* turbo_plugin_query(uint32_t, uint32_t);

namespace turbo::spec_standalone {
namespace {

constexpr uint32_t kVocab = 40;

// The "model": what follows depends on the last two tokens, so a wrong path shows.
float logit(const std::vector<int32_t>& path, int32_t token) {
  uint32_t hash = 17;
  for (size_t i = path.size() > 2 ? path.size() - 2 : 0; i < path.size(); ++i) hash = hash * 31 + static_cast<uint32_t>(path[i]);
  return static_cast<float>((hash * 2654435761u ^ static_cast<uint32_t>(token) * 40503u) % 1009) / 100.0f;
}
int32_t next(const std::vector<int32_t>& path) {
  int32_t best = 0;
  for (int32_t token = 1; token < static_cast<int32_t>(kVocab); ++token)
    if (logit(path, token) > logit(path, best)) best = token;
  return best;
}

struct Drafted {
  std::vector<int32_t> tokens, parents;
};

class Drafters : public ::testing::Test {
 protected:
  Drafters() {
    model.facts.vocab_size = kVocab;
    model.facts.shared_vocab = kVocab;
    model.logit = &logit;
    host.draft_model = &model;
    host.facts.n_layers = 6;
    host.options["model"] = std::string("draft.gguf");
  }
  void make(int64_t steps, int64_t topk, const char* name = "standalone") {
    host.options["steps"] = steps;
    host.options["topk"] = topk;
    component = std::make_unique<fake::Component>(&::turbo_plugin_query, "drafter", name, TURBO_TIER_CPU, host);
    api = component->interface<turbo_drafter>(TURBO_DRAFTER_1);
  }
  turbo_status observe(uint32_t sequence, std::vector<int32_t> tokens, uint64_t position) {
    turbo_observation seen{};
    seen.struct_size = sizeof seen;
    seen.n_tokens = static_cast<uint32_t>(tokens.size());
    seen.tokens = tokens.data();
    seen.position = position;
    return api->observe(component->self(), sequence, &seen, &error);
  }
  std::vector<Drafted> propose(std::vector<uint32_t> sequences, uint32_t max_slots) {
    std::vector<Drafted> drafts(sequences.size());
    std::vector<turbo_proposal> proposals;
    for (size_t i = 0; i < sequences.size(); ++i) {
      drafts[i].tokens.resize(max_slots - 1);
      drafts[i].parents.resize(max_slots - 1);
      proposals.push_back({sizeof(turbo_proposal), sequences[i], max_slots, 0, drafts[i].tokens.data(), drafts[i].parents.data(), nullptr, UINT64_MAX});
    }
    status = api->poll(component->self(), proposals.data(), static_cast<uint32_t>(proposals.size()), &error);
    for (size_t i = 0; i < sequences.size(); ++i) {
      drafts[i].tokens.resize(proposals[i].n);
      drafts[i].parents.resize(proposals[i].n);
    }
    return drafts;
  }
  void open(uint32_t sequence) { ASSERT_EQ(api->open(component->self(), sequence, &error), TURBO_OK); }

  fake::DraftModel model;
  fake::Host host;
  std::unique_ptr<fake::Component> component;
  const turbo_drafter* api = nullptr;
  turbo_error error{sizeof(turbo_error), 0, {}, {}};
  turbo_status status = TURBO_OK;
};

TEST_F(Drafters, AChainIsTheModelsOwnGreedyContinuation) {
  make(3, 1);
  turbo_drafter_needs needs{};
  needs.struct_size = sizeof needs;
  ASSERT_EQ(api->needs(component->self(), &needs, &error), TURBO_OK);
  EXPECT_EQ(needs.max_slots, 4u);
  EXPECT_EQ(needs.runs_programs, 1u);
  EXPECT_EQ(needs.wants_prompt, 1u);
  open(5);
  observe(5, {1, 2, 3}, 0);
  std::vector<int32_t> path{1, 2, 3};
  const Drafted draft = propose({5}, 4)[0];
  for (int i = 0; i < 3; ++i) path.push_back(next(path));
  EXPECT_EQ(draft.tokens, (std::vector<int32_t>(path.begin() + 3, path.end())));
  EXPECT_EQ(draft.parents, (std::vector<int32_t>{-1, 0, 1}));
  EXPECT_EQ(model.runs, 3u);
  EXPECT_EQ(model.rows, 3u) << "the prompt's last row and two nodes; the last drafted token never runs";
}

// A hundred rounds that accept 0..3 of 3: the model's text is the target's but for what the last round left open, and the
// drafts are those of a model that saw the text afresh.
TEST_F(Drafters, AfterAnyAcceptancesTheDraftsAreThoseOfAFreshText) {
  for (const int64_t topk : {1, 3}) {
    model.sequences.clear();
    make(3, topk);
    open(1);
    std::vector<int32_t> text{4, 7};
    observe(1, text, 0);
    for (int round = 0; round < 100; ++round) {
      const uint32_t slots = topk == 1 ? 4 : 10, rows_before = model.rows;
      const Drafted draft = propose({1}, slots)[0];
      ASSERT_EQ(status, TURBO_OK) << error.message;
      EXPECT_EQ(model.sequences[1].text, text) << "invariant: all that is final, before anything is drafted";
      if (topk == 1) {
        EXPECT_EQ(model.rows - rows_before, 3u) << "root (with or without the token that was never run) and two nodes";
      }
      open(2);
      observe(2, text, 0);
      const Drafted fresh = propose({2}, slots)[0];
      EXPECT_EQ(draft.tokens, fresh.tokens) << round;
      EXPECT_EQ(draft.parents, fresh.parents) << round;
      api->close(component->self(), 2);
      EXPECT_FALSE(model.sequences.count(2));
      // Accept a path of the draft, then a token of the target's own.
      std::vector<int32_t> accepted;
      int32_t parent = -1;
      for (size_t depth = static_cast<size_t>(round) % 4; depth > 0; --depth) {
        std::vector<size_t> children;
        for (size_t i = 0; i < draft.tokens.size(); ++i)
          if (draft.parents[i] == parent) children.push_back(i);
        if (children.empty()) break;
        const size_t node = children[static_cast<size_t>(round) % children.size()];
        accepted.push_back(draft.tokens[node]);
        parent = static_cast<int32_t>(node);
      }
      accepted.push_back(static_cast<int32_t>(round * 7 % kVocab));
      observe(1, accepted, text.size());
      text.insert(text.end(), accepted.begin(), accepted.end());
    }
  }
}

TEST_F(Drafters, ATreeHasTheBestNodesOfThePoolBestFirst) {
  make(2, 3);
  open(1);
  observe(1, {1, 2}, 0);
  const Drafted all = propose({1}, 1 + 3 + 9)[0];
  EXPECT_EQ(all.tokens.size(), 12u);
  open(2);
  observe(2, {1, 2}, 0);
  const Drafted some = propose({2}, 6)[0];
  EXPECT_EQ(some.tokens, (std::vector<int32_t>(all.tokens.begin(), all.tokens.begin() + 5))) << "the first n are the best of n";
  for (size_t i = 0; i < all.tokens.size(); ++i) {
    EXPECT_LT(all.parents[i], static_cast<int32_t>(i));
    for (size_t j = 0; j < i; ++j) EXPECT_FALSE(all.parents[i] == all.parents[j] && all.tokens[i] == all.tokens[j]);
  }
  EXPECT_EQ(all.tokens[0], next({1, 2}));
}

TEST_F(Drafters, SequencesShareTheRuns) {
  make(3, 1);
  for (uint32_t id = 0; id < 5; ++id) {
    open(id);
    observe(id, {static_cast<int32_t>(id), 2}, 0);
  }
  const auto drafts = propose({0, 1, 2, 3, 4}, 4);
  EXPECT_EQ(model.group_counts, (std::vector<uint32_t>{5, 5, 5}));
  for (uint32_t id = 0; id < 5; ++id) EXPECT_EQ(drafts[id].tokens[0], next({static_cast<int32_t>(id), 2}));
  model.group_counts.clear();
  model.facts.max_logit_rows = 64;
}

TEST_F(Drafters, MoreSequencesThanRowsOfLogitsTakeTurns) {
  model.facts.max_logit_rows = 4;
  make(2, 2);
  for (uint32_t id = 0; id < 5; ++id) {
    open(id);
    observe(id, {static_cast<int32_t>(id), 9}, 0);
  }
  const auto drafts = propose({0, 1, 2, 3, 4}, 5);
  ASSERT_EQ(status, TURBO_OK) << error.message;
  EXPECT_EQ(model.group_counts, (std::vector<uint32_t>{2, 2, 2, 2, 1, 1}));
  for (uint32_t id = 0; id < 5; ++id) EXPECT_EQ(drafts[id].tokens[0], next({static_cast<int32_t>(id), 9}));
}

TEST_F(Drafters, ATokenOutsideTheDraftsVocabularyEndsItsDraftsAndNothingElse) {
  model.facts.shared_vocab = 30;
  make(3, 1);
  open(1);
  open(2);
  EXPECT_EQ(observe(1, {1, 2, 35}, 0), TURBO_OK);
  EXPECT_EQ(observe(2, {1, 2, 3}, 0), TURBO_OK);
  const auto drafts = propose({1, 2}, 4);
  EXPECT_TRUE(drafts[0].tokens.empty());
  EXPECT_EQ(drafts[1].tokens.size(), 3u);
  EXPECT_FALSE(model.sequences.count(1));
  EXPECT_EQ(observe(1, {4}, 3), TURBO_OK);
  EXPECT_TRUE(propose({1}, 4)[0].tokens.empty());
}

TEST_F(Drafters, RowsBeyondTheSharedVocabularyAreNeverDrafted) {
  model.facts.shared_vocab = 30;
  model.logit = [](const std::vector<int32_t>&, int32_t token) { return static_cast<float>(token); };
  make(3, 2);
  open(1);
  observe(1, {1}, 0);
  const Drafted draft = propose({1}, 8)[0];
  EXPECT_FALSE(draft.tokens.empty());
  for (const int32_t token : draft.tokens) EXPECT_LT(token, 30);
}

TEST_F(Drafters, ATokenMapLimitsWhatIsDrafted) {
  const turbo::testing::TempDir dir;
  const std::string path = (dir.path() / "map").string();
  std::ofstream(path) << "3 5 8";
  host.options["token_map"] = path;
  make(3, 2);
  open(1);
  observe(1, {1, 2}, 0);
  const Drafted draft = propose({1}, 8)[0];
  EXPECT_FALSE(draft.tokens.empty());
  for (const int32_t token : draft.tokens) EXPECT_TRUE(token == 3 || token == 5 || token == 8) << token;
  std::ofstream(path) << "3 40";
  EXPECT_THROW(make(3, 2), std::runtime_error);
  component.reset();
  EXPECT_EQ(model.live, 0) << "the refused drafter closed its model too";
}

TEST_F(Drafters, AtItsContextTheModelStopsDraftingWithoutAFault) {
  model.facts.context = 12;
  make(3, 1);
  open(1);
  std::vector<int32_t> text{1, 2, 3, 4, 5, 6, 7, 8, 9};
  observe(1, text, 0);
  std::vector<size_t> sizes;
  for (int i = 0; i < 6; ++i) {
    sizes.push_back(propose({1}, 4)[0].tokens.size());
    ASSERT_EQ(status, TURBO_OK) << error.message;
    ASSERT_EQ(observe(1, {11}, text.size()), TURBO_OK);
    text.push_back(11);
  }
  EXPECT_EQ(sizes, (std::vector<size_t>{3, 3, 2, 1, 0, 0}));
}

TEST_F(Drafters, ALongPromptIsReadInPartsWhenDraftsAreWanted) {
  model.facts.context = 4096;
  make(3, 1);
  open(1);
  std::vector<int32_t> prompt;
  for (int i = 0; i < 1300; ++i) prompt.push_back(i % 40);
  observe(1, {prompt.begin(), prompt.begin() + 250}, 0);
  observe(1, {prompt.begin() + 250, prompt.end()}, 250);
  EXPECT_EQ(model.rows, 0u) << "where no draft is wanted the model costs nothing";
  for (const size_t read : {512u, 1024u}) {
    EXPECT_TRUE(propose({1}, 4)[0].tokens.empty());
    EXPECT_EQ(model.sequences[1].text.size(), read);
  }
  EXPECT_EQ(propose({1}, 4)[0].tokens[0], next(prompt));
}

TEST_F(Drafters, AFullCacheOrAFailedRunCostsThatDraft) {
  make(3, 1);
  open(1);
  observe(1, {1, 2, 3}, 0);
  model.full = 1;
  EXPECT_TRUE(propose({1}, 4)[0].tokens.empty());
  EXPECT_EQ(status, TURBO_OK);
  model.fail_runs = 1;
  propose({1}, 4);
  EXPECT_EQ(status, TURBO_INTERNAL);
  EXPECT_EQ(propose({1}, 4)[0].tokens[0], next({1, 2, 3}));
  // Half way down: the first level stands.
  observe(1, {4}, 3);
  model.full = 0;
  const Drafted whole = propose({1}, 2)[0];
  EXPECT_EQ(whole.tokens, (std::vector<int32_t>{next({1, 2, 3, 4})}));
}

TEST_F(Drafters, AHoleInTheTextIsAFault) {
  make(3, 1);
  open(1);
  EXPECT_EQ(observe(1, {1, 2}, 0), TURBO_OK);
  EXPECT_EQ(observe(1, {4}, 3), TURBO_INTERNAL);
  EXPECT_EQ(observe(9, {4}, 3), TURBO_OK) << "a sequence that was never opened";
  EXPECT_TRUE(propose({9}, 4)[0].tokens.empty());
}

TEST_F(Drafters, AReopenedSequenceBeginsAnew) {
  make(3, 1);
  open(1);
  observe(1, {1, 2, 3}, 0);
  const Drafted first = propose({1}, 4)[0];
  api->close(component->self(), 1);
  EXPECT_TRUE(model.sequences.empty());
  open(1);
  observe(1, {1, 2, 3}, 0);
  EXPECT_EQ(propose({1}, 4)[0].tokens, first.tokens);
}

TEST_F(Drafters, WhatCannotServeIsRefusedWithItsReason) {
  const auto why = [&](const char* name = "standalone") -> std::string {
    try {
      make(std::get<int64_t>(host.options.count("steps") ? host.options["steps"] : fake::Option(int64_t{3})),
           std::get<int64_t>(host.options.count("topk") ? host.options["topk"] : fake::Option(int64_t{1})), name);
    } catch (const std::runtime_error& failure) {
      return failure.what();
    }
    return "";
  };
  model.refusal = "the tokenizers differ: token 7 is 'a' in the target and 'b' in the draft model";
  EXPECT_EQ(why(), model.refusal);
  model.refusal.clear();
  host.options["steps"] = int64_t{60};
  host.options["topk"] = int64_t{4};
  EXPECT_NE(why().find("at most 64 nodes"), std::string::npos);
  EXPECT_EQ(model.live, 0);
  host.options.erase("steps");
  host.options.erase("topk");
  host.options["model"] = std::string();
  EXPECT_NE(why().find("no draft model is named"), std::string::npos);
  host.options["layers"] = int64_t{6};
  EXPECT_NE(why("self_spec").find("fewer layers than the target's 6"), std::string::npos);
  host.draft_model = nullptr;
  host.options["model"] = std::string("draft.gguf");
  EXPECT_NE(why(), "");
}

TEST_F(Drafters, SelfSpeculationOpensTheFirstLayersOfTheTarget) {
  make(2, 1, "self_spec");
  EXPECT_EQ(model.opened, (std::vector<std::string>{""}));
  EXPECT_EQ(model.opened_layers, 2u) << "a third";
  component.reset();
  EXPECT_EQ(model.live, 0);
}

}  // namespace
}  // namespace turbo::spec_standalone
