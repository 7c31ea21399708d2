// Token masks as a grammar engine drives them: the state follows committed tokens, draft rows bring their path.
#include <gtest/gtest.h>

#include <set>

#include "engine/token_mask.h"
#include "requests.h"
#include "scripted_drafter.h"

namespace turbo::engine::testing {
namespace {

bool allowed(int32_t previous, int32_t token) { return (previous + token) % 3 == 0; }

// "The sum of two neighbours is a multiple of three": what may come depends on the token before, as in a grammar.
class SumMask : public TokenMask {
 public:
  explicit SumMask(int32_t first, size_t stop_after = SIZE_MAX) : last_(first), stop_after_(stop_after) {}
  Status restrict_row(std::span<const int32_t> path, std::span<uint32_t> words) override {
    ++rows;
    int32_t previous = last_;
    for (const int32_t token : path) {
      if (!allowed(previous, token)) forbidden_path = true;
      previous = token;
    }
    for (int32_t t = 0; t < static_cast<int32_t>(kVocab); ++t)
      if (!allowed(previous, t) || committed.size() + path.size() >= stop_after_) words[t / 32] &= ~(1u << (t % 32));
    return fail_after-- == 0 ? Status(Code::internal, "the grammar broke") : Status::ok();
  }
  Status commit(std::span<const int32_t> tokens) override {
    committed.insert(committed.end(), tokens.begin(), tokens.end());
    last_ = tokens.back();
    return Status::ok();
  }
  std::vector<int32_t> committed;
  uint64_t rows = 0;
  int64_t fail_after = -1;
  bool forbidden_path = false;

 private:
  int32_t last_;
  size_t stop_after_;
};

std::vector<int32_t> expected_masked(std::vector<int32_t> tokens, uint32_t n, const std::set<int32_t>& banned) {
  std::vector<int32_t> generated;
  for (uint32_t i = 0; i < n; ++i) {
    const uint64_t hash = path_hash(tokens);
    int32_t best = -1;
    for (int32_t t = 0; t < static_cast<int32_t>(kVocab); ++t)
      if (allowed(tokens.back(), t) && !banned.count(t) && (best < 0 || path_logit(hash, t) > path_logit(hash, best))) best = t;
    tokens.push_back(best);
    generated.push_back(best);
  }
  return generated;
}

}  // namespace

TEST(Masks, PlainBatchedDraftedAndPreemptedRowsObeyAlike) {
  for (const int mode : {-1, 0, 1}) {
    for (const uint32_t n_blocks : {64u, 5u}) {
      FakeModel model(n_blocks, 8);
      ScriptedDrafter drafter;
      if (mode >= 0) {
        drafter.mode = mode;
        model.drafter = scripted_api();
        model.drafter_self = &drafter;
      }
      auto engine = std::move(Engine::start(model.parts(), limits(320))).value();
      std::mt19937 rng(11);
      struct One {
        Request request;
        std::shared_ptr<SumMask> mask;
        std::shared_ptr<Collector> collector;
      };
      std::vector<One> all;
      for (int i = 0; i < 6; ++i) {
        One one;
        one.request = greedy_request(random_prompt(rng, 20 + i), 120);
        if (i % 2) {
          one.mask = std::make_shared<SumMask>(one.request.prompt.back());
          one.request.mask = one.mask;
          one.request.banned_tokens = {3, 6, 9};
        }
        one.collector = submit(*engine, one.request);
        all.push_back(std::move(one));
      }
      for (One& one : all) {
        const Finish finish = one.collector->wait();
        ASSERT_EQ(finish.reason, FinishReason::length) << finish.status.message();
        const auto got = one.collector->ids();
        if (!one.mask) {
          ASSERT_EQ(got, expected_tokens(one.request.prompt, 120)) << "a neighbour's mask reached it";
          continue;
        }
        ASSERT_EQ(got, expected_masked(one.request.prompt, 120, {3, 6, 9}));
        EXPECT_EQ(one.mask->committed, got) << "every token once, in order";
        EXPECT_FALSE(one.mask->forbidden_path);
        if (mode >= 0) {
          EXPECT_GE(one.mask->rows, finish.speculation.rounds);
        }
      }
    }
  }
}

TEST(Masks, WithNothingAllowedTheRequestStops) {
  FakeModel model(64, 8);
  ScriptedDrafter drafter;
  model.drafter = scripted_api();
  model.drafter_self = &drafter;
  auto engine = std::move(Engine::start(model.parts(), limits())).value();
  Request request = greedy_request({1, 2, 3}, 50);
  request.mask = std::make_shared<SumMask>(3, 7);
  auto collector = submit(*engine, request);
  const Finish finish = collector->wait();
  EXPECT_EQ(finish.reason, FinishReason::stop) << finish.status.message();
  EXPECT_EQ(finish.stop_token, -1);
  EXPECT_EQ(collector->ids().size(), 7u);

  request.mask = nullptr;
  for (int32_t t = 0; t < static_cast<int32_t>(kVocab); ++t) request.banned_tokens.push_back(t);
  collector = submit(*engine, request);
  EXPECT_EQ(collector->wait().reason, FinishReason::stop);
  EXPECT_TRUE(collector->ids().empty());
}

TEST(Masks, ABrokenGrammarEndsItsRequestOnly) {
  FakeModel model(64, 8);
  auto engine = std::move(Engine::start(model.parts(), limits())).value();
  Request request = greedy_request({1, 2, 3}, 50);
  auto mask = std::make_shared<SumMask>(3);
  mask->fail_after = 10;
  request.mask = mask;
  auto broken = submit(*engine, request), plain = submit(*engine, greedy_request({1, 2, 3}, 50));
  const Finish finish = broken->wait();
  EXPECT_EQ(finish.reason, FinishReason::failed);
  EXPECT_NE(finish.status.message().find("the grammar broke"), std::string::npos);
  EXPECT_EQ(plain->wait().reason, FinishReason::length);
  EXPECT_EQ(plain->ids(), expected_tokens({1, 2, 3}, 50));
}

}  // namespace turbo::engine::testing
