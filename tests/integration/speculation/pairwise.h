// Token ids with a drafter against ids without, for real prompts, the bundled model and rows of a covering array.
//
// Reference: an engine without a drafter that runs one request at a time, on one thread, without a prefix cache and with
// room for all. Under test: an engine of the row's settings, its requests arriving while others run.
#pragma once

#include <cstdio>
#include <fstream>
#include <map>
#include <random>

#include "integration/golden/harness.h"
#include "settings.h"
#include "unit/engine/collector.h"

namespace turbo::engine::testing {

using turbo::testing::covering_rows;
using turbo::testing::Levels;

/// What ran and what came of it, by drafter and by greedy or sampled.
struct Tally {
  uint64_t compared = 0, tokens = 0, rounds = 0, drafted = 0, accepted = 0;
  void add(const Finish& finish) {
    ++compared;
    tokens += finish.usage.completion_tokens;
    rounds += finish.speculation.rounds;
    drafted += finish.speculation.drafted;
    accepted += finish.speculation.accepted;
  }
};

class Pairwise {
 public:
  static constexpr uint32_t kSeed = 1;  // of the array and of all that a row draws

  Pairwise() {
    std::ifstream file(std::string(TURBO_SOURCE) + "/tests/integration/speculation/prompts.json");
    texts_ = nlohmann::json::parse(file).get<std::vector<std::string>>();
    Runtime* plain = reference("f16");
    if (!plain) return;
    const auto tokenizer = plain->tokenizer();
    EXPECT_TRUE(tokenizer) << tokenizer.status().message();
    if (!tokenizer) return;
    for (const std::string& text : texts_) {
      prompts_.push_back((*tokenizer)->encode(text));
      EXPECT_FALSE(prompts_.back().empty());
      if (prompts_.back().size() > kTightPool - 96) prompts_.back().resize(kTightPool - 96);
    }
    settings_ = all_settings((*tokenizer)->encode(" the").at(0));
    Levels sizes;
    for (const auto& levels : settings_) sizes.push_back(static_cast<uint32_t>(levels.size()));
    rows_ = covering_rows(sizes, kSeed);
  }
  size_t n_rows() const { return rows_.size(); }
  size_t n_prompts() const { return prompts_.size(); }
  const std::map<std::string, Tally>& tallies() const { return tallies_; }
  uint64_t preemptions() const { return preemptions_; }

  /// The first `n` rows, and the first ones that run each drafter greedily and sampled.
  std::vector<size_t> first_rows(size_t n) const {
    std::vector<size_t> chosen;
    for (uint32_t drafter = 0; drafter < drafters().size(); ++drafter)
      for (const bool greedy : {true, false})
        chosen.push_back(static_cast<size_t>(std::find_if(rows_.begin(), rows_.end(), [&](const Levels& row) { return row[kDrafter] == drafter && (row[kSampling] == 0) == greedy; }) - rows_.begin()));
    for (size_t row = 0; row < std::min(n, rows_.size()); ++row) chosen.push_back(row);
    std::sort(chosen.begin(), chosen.end());
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    return chosen;
  }

  /// Row `index` with prompts [first, first + n), each of which generates `max_tokens` at most. Each comes twice, and the
  /// second time the drafter may know the answer.
  void run(size_t index, size_t first, size_t n, uint32_t max_tokens) {
    SCOPED_TRACE("row " + std::to_string(index) + " of seed " + std::to_string(kSeed) + ", prompts " + std::to_string(first) + " to " +
                 std::to_string(first + n - 1) + ": " + describe(rows_.at(index)));
    std::mt19937 rng(kSeed * 1000 + static_cast<uint32_t>(index));
    const Levels& row = rows_.at(index);
    auto runtime = load(model_setup(row));
    ASSERT_TRUE(runtime);
    // Only texts that grow by more blocks than admission sets aside can be preempted.
    const uint32_t most = row[kPool] > 0 && row[kBatch] >= 4 ? 3 * max_tokens : max_tokens;
    std::vector<Wanted> all;
    for (size_t i = 0; i < 2 * n; ++i) all.push_back(wanted(row, first + i % n, most));
    const std::string kind = drafters().at(row[kDrafter]).title() + (row[kSampling] == 0 ? " greedy" : " sampled");
    arrive(*runtime, row[kBatch] + 1, all, rng);
    std::vector<Answer> answers;
    for (size_t i = 0; i < all.size(); ++i) {
      SCOPED_TRACE("prompt " + std::to_string(first + i % n) + (i < n ? "" : " again") + ", seed " + std::to_string(*all[i].request.sampling.seed));
      const Finish finish = all[i].run->wait();
      if (i < n) answers.push_back(plain_answer(settings_[kCodec][row[kCodec]].text, all[i].request));
      compare(*all[i].run, finish, answers[i % n], all[i].request);
      if (::testing::Test::HasFailure()) return;
      tallies_[kind].add(finish);
    }
    EXPECT_TRUE(runtime->engine().drain(10000));
    const Snapshot end = runtime->engine().snapshot();
    EXPECT_EQ(end.kv_blocks_used, 0u);
    EXPECT_EQ(end.leaks, 0u);
    EXPECT_EQ(runtime->engine().metrics().plugin_errors.Value(), 0);
    preemptions_ += end.preemptions;
  }

  void print() const {
    for (const auto& [kind, tally] : tallies_)
      std::printf("%s: %llu requests, %llu tokens in %llu rounds, %llu of %llu drafted tokens accepted\n", kind.c_str(),
                  static_cast<unsigned long long>(tally.compared), static_cast<unsigned long long>(tally.tokens),
                  static_cast<unsigned long long>(tally.rounds), static_cast<unsigned long long>(tally.accepted),
                  static_cast<unsigned long long>(tally.drafted));
    std::printf("%llu preemptions\n", static_cast<unsigned long long>(preemptions_));
  }

 private:
  struct Wanted {
    Request request;
    std::shared_ptr<Collector> run = std::make_shared<Collector>();
  };
  struct Answer {
    std::vector<Token> tokens;
    FinishReason reason = FinishReason::failed;
    int32_t stop_token = -1;
  };
  // As Collector, and what came with each token.
  struct Keeper : Collector {
    std::vector<Token> tokens;
    void on_tokens(std::span<const Token> fresh) override {
      tokens.insert(tokens.end(), fresh.begin(), fresh.end());
      Collector::on_tokens(fresh);
    }
  };

  std::string describe(const Levels& row) const {
    std::string text;
    for (size_t f = 0; f < row.size(); ++f) text += std::string(f ? ", " : "") + factor_name(f) + " " + settings_[f][row[f]].text;
    return text;
  }
  ModelSetup model_setup(const Levels& row) const {
    ModelSetup setup;
    setup.tune = [this, row](profile::Profile& profile) {
      profile.model.context = kContext;
      for (size_t f = 0; f < row.size(); ++f)
        if (settings_[f][row[f]].tune) settings_[f][row[f]].tune(profile);
      use_drafter(profile, drafters().at(row[kDrafter]), row[kDrafterOptions]);
    };
    return setup;
  }
  Wanted wanted(const Levels& row, size_t prompt, uint32_t max_tokens) const {
    Wanted one;
    one.run = std::make_shared<Keeper>();
    one.request.prompt = prompts_.at(prompt);
    one.request.max_tokens = max_tokens;
    one.request.sampling.seed = 77 * prompt + 5;
    for (size_t f = 0; f < row.size(); ++f)
      if (settings_[f][row[f]].ask) settings_[f][row[f]].ask(one.request);
    return one;
  }

  // At most `most` at once; a new one comes at a random moment of those that run.
  static void arrive(Runtime& runtime, uint32_t most, std::vector<Wanted>& all, std::mt19937& rng) {
    for (size_t i = 0; i < all.size(); ++i) {
      if (i >= most) all[i - most].run->wait();
      else if (i > 0) all[i - 1].run->wait_for_tokens(rng() % 6);
      const auto id = runtime.engine().submit(all[i].request, all[i].run);
      ASSERT_TRUE(id) << id.status().message();
    }
  }

  Runtime* reference(const std::string& codec) {
    std::unique_ptr<Runtime>& runtime = references_[codec];
    if (runtime) return runtime.get();
    ModelSetup setup{.threads = 1, .kv = codec};
    setup.tune = [codec](profile::Profile& profile) {
      profile.model.context = kContext;
      profile.kv.pool_tokens = 2 * kContext;
      profile.engine.prefix_cache = false;
      if (codec != "f16") profile.kv.options = packed_options();
    };
    runtime = load(setup);
    return runtime.get();
  }
  // A mask has a state of its own: the reference gets a new one.
  Answer plain_answer(const std::string& codec, Request request) {
    Runtime* runtime = reference(codec);
    if (!runtime) return {};
    if (request.mask) request.mask = std::make_shared<FollowsMask>(request.prompt.back(), kVocabulary);
    const auto keeper = std::make_shared<Keeper>();
    const auto id = runtime->engine().submit(request, keeper);
    EXPECT_TRUE(id) << id.status().message();
    if (!id) return {};
    const Finish finish = keeper->wait();
    EXPECT_EQ(finish.speculation.drafted, 0u);
    return {keeper->tokens, finish.reason, finish.stop_token};
  }

  static void compare(Collector& run, const Finish& finish, const Answer& right, const Request& request) {
    ASSERT_NE(right.reason, FinishReason::failed);
    const std::vector<Token>& tokens = static_cast<Keeper&>(run).tokens;
    std::vector<int32_t> ids;
    for (const Token& token : right.tokens) ids.push_back(token.id);
    ASSERT_EQ(run.ids(), ids) << finish.status.message() << " preempted " << finish.preemptions << " times";
    ASSERT_EQ(finish.reason, right.reason) << finish.status.message();
    ASSERT_EQ(finish.stop_token, right.stop_token);
    // Accepted tokens are emitted ones, each round adds one of the target's own at most.
    EXPECT_LE(finish.speculation.accepted, ids.size());
    EXPECT_EQ(finish.speculation.emitted, ids.size() + (finish.stop_token >= 0));
    EXPECT_LE(ids.size(), finish.speculation.accepted + finish.speculation.rounds);
    uint64_t by_depth = 0;
    for (const uint64_t n : finish.speculation.accepted_by_depth) by_depth += n;
    EXPECT_EQ(by_depth, finish.speculation.accepted);
    if (!request.logprobs) return;
    for (size_t i = 0; i < tokens.size(); ++i) {
      ASSERT_EQ(tokens[i].logprob, right.tokens[i].logprob) << "token " << i;
      ASSERT_EQ(tokens[i].top.size(), right.tokens[i].top.size());
      for (size_t k = 0; k < tokens[i].top.size(); ++k) {
        ASSERT_EQ(tokens[i].top[k].id, right.tokens[i].top[k].id) << "token " << i << " alternative " << k;
        ASSERT_EQ(tokens[i].top[k].logprob, right.tokens[i].top[k].logprob) << "token " << i << " alternative " << k;
      }
    }
  }

  std::vector<std::string> texts_;
  std::vector<std::vector<int32_t>> prompts_;
  std::vector<std::vector<Setting>> settings_;
  std::vector<Levels> rows_;
  std::map<std::string, std::unique_ptr<Runtime>> references_;  // by codec
  std::map<std::string, Tally> tallies_;
  uint64_t preemptions_ = 0;
};

/// Each drafter ran greedily and sampled, and had drafts accepted and refused: else equal texts would prove nothing.
inline void expect_drafting(const Pairwise& pairwise) {
  for (const DrafterUnderTest& drafter : drafters()) {
    uint64_t accepted = 0, drafted = 0;
    for (const char* how : {" greedy", " sampled"}) {
      const auto found = pairwise.tallies().find(drafter.title() + how);
      ASSERT_NE(found, pairwise.tallies().end()) << drafter.title() << how << " never ran";
      accepted += found->second.accepted;
      drafted += found->second.drafted;
    }
    EXPECT_GT(accepted, 0u) << drafter.title();
    EXPECT_GT(drafted, accepted) << drafter.title() << ": nothing was ever refused";
  }
}

}  // namespace turbo::engine::testing
