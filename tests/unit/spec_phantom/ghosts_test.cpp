// The threads that build ahead: hits, refusals of stale work, scaling, stopping.
#include "ghosts.h"

#include <gtest/gtest.h>
#include <turbo/fake/host.hpp>

#include <chrono>
#include <thread>

using namespace turbo;
using namespace turbo::phantom;
using namespace std::chrono_literals;

namespace {

// Waits for something that must come; false after a time that means it never will.
template <typename Done>
bool eventually(Done&& done) {
  for (int i = 0; i < 20000; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

struct GhostsTest : testing::Test {
  draft::NgramCorpus corpus{{.max_depth = 6}};
  draft::RejectedPairs rejected;
  std::shared_ptr<Text> text = std::make_shared<Text>();
  fake::Host host;
  std::unique_ptr<Ghosts> ghosts;

  void start(uint32_t n_threads, uint32_t n_buffers = 2, uint32_t active = 1) {
    ghosts = std::make_unique<Ghosts>(corpus, rejected, GhostSettings{n_threads, n_threads, n_buffers, 6, 8});
    ghosts->start(Host(host.raw()));
    ghosts->scale(active);
  }
  ~GhostsTest() override {
    if (ghosts) ghosts->stop();
    host.stop_workers();
  }

  JobPart part(uint64_t session, std::vector<int32_t> context, std::vector<int32_t> drafted) {
    JobPart out{session, context.size(), text, text->size(), std::move(context), {}, 0.7};
    for (size_t i = 0; i < drafted.size(); ++i) out.tree.push(drafted[i], static_cast<int32_t>(i) - 1, 1);
    return out;
  }
  void post(std::vector<JobPart> parts) {
    auto job = std::make_shared<Job>();
    job->parts = std::move(parts);
    ghosts->post(std::move(job));
  }
  static DraftKey key(uint64_t session, std::vector<int32_t> tokens, uint32_t window = 6) {
    const std::span<const int32_t> all = tokens;
    return {session, tokens.size(), hash_context(all.last(std::min<size_t>(window, all.size()))), tokens.back()};
  }
  // Tokens of what is ready for a key.
  std::vector<int32_t> take(const DraftKey& wanted, uint32_t slots = 8) {
    std::vector<int32_t> found;
    ghosts->take(std::span(&wanted, 1), [&](size_t) { return slots; },
                 [&](size_t, const draft::DraftNodes& nodes, const std::vector<uint8_t>&) { found = nodes.tokens; });
    return found;
  }
};

const std::vector<int32_t> kCounting = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

}  // namespace

TEST_F(GhostsTest, TheNextDraftIsReadyWhenTheExpectedHappens) {
  corpus.insert(kCounting);
  start(1);
  post({part(1, {1, 2, 3}, {4, 5})});
  ASSERT_TRUE(eventually([&] { return ghosts->n_built() > 0; }));
  std::vector<int32_t> found;
  // All of 4, 5 accepted, then 6: the draft goes on with 7.
  ASSERT_TRUE(eventually([&] { return !(found = take(key(1, {1, 2, 3, 4, 5, 6}))).empty(); }));
  EXPECT_EQ(found[0], 7);
  EXPECT_EQ(found[1], 8);
}

// Each guard on its own: session, length, context, root, slots, job.
TEST_F(GhostsTest, NothingStaleIsUsed) {
  corpus.insert(kCounting);
  start(1);
  const auto posted_and_built = [&] {
    const uint64_t before = ghosts->n_built();
    post({part(1, {1, 2, 3}, {4, 5})});
    return eventually([&] { return ghosts->n_built() > before; });
  };
  const DraftKey good = key(1, {1, 2, 3, 4, 5, 6});
  const auto refused = [&](DraftKey bad, uint32_t slots = 8) { return posted_and_built() && take(bad, slots).empty(); };
  DraftKey bad = good;
  bad.session = 2;
  EXPECT_TRUE(refused(bad));
  bad = good;
  ++bad.position;
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.context ^= 1;
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.root = 7;
  EXPECT_TRUE(refused(bad));
  EXPECT_TRUE(refused(good, 9)) << "built for fewer slots than wanted";
  ASSERT_TRUE(posted_and_built());
  EXPECT_TRUE(eventually([&] { return !take(good).empty(); })) << "while the right one is found";
  ASSERT_TRUE(posted_and_built());
  post({part(9, {200, 201}, {})});
  EXPECT_TRUE(take(good).empty()) << "of a job that was replaced";
  ASSERT_TRUE(posted_and_built());
  ghosts->invalidate();
  EXPECT_TRUE(take(good).empty());
}

TEST_F(GhostsTest, MembersOfABatchFindTheirOwn) {
  corpus.insert(kCounting);
  corpus.insert(std::vector<int32_t>{21, 22, 23, 24, 25, 26, 27, 28});
  start(2, 4, 2);
  post({part(1, {1, 2, 3}, {4}), part(2, {21, 22}, {23})});
  const DraftKey keys[] = {key(2, {21, 22, 23, 24}), key(1, {1, 2, 3, 4, 5}), key(3, {1, 2, 3, 4, 5})};
  std::vector<int32_t> found[3];
  ASSERT_TRUE(eventually([&] {
    ghosts->take(keys, [](size_t) { return 4u; },
                 [&](size_t i, const draft::DraftNodes& nodes, const std::vector<uint8_t>&) { found[i] = nodes.tokens; });
    return !found[0].empty() && !found[1].empty();
  }));
  EXPECT_EQ(found[0][0], 25);
  EXPECT_EQ(found[1][0], 6);
  EXPECT_TRUE(found[2].empty()) << "not a member";
}

TEST_F(GhostsTest, BuffersHoldAsManyPacks) {
  // Every token may follow every other, so there are more outcomes than four packs take.
  std::vector<int32_t> tokens;
  for (int32_t step = 1; step < 7; ++step)
    for (int32_t i = 0; i < 7; ++i) tokens.push_back(100 + i * step % 7);
  corpus.insert(tokens);
  for (uint32_t n = 1; n <= 4; ++n) {
    start(1, n);
    post({part(1, {100, 101}, {102, 103, 104, 105, 106})});
    EXPECT_TRUE(eventually([&] { return ghosts->n_built() >= n * Ghosts::kPack; }));
    ghosts->stop();
    EXPECT_EQ(ghosts->n_built(), n * Ghosts::kPack);
  }
}

TEST_F(GhostsTest, SeveralGhostsShareTheOutcomes) {
  for (int32_t token = 100; token < 104; ++token) corpus.insert(std::vector<int32_t>{1, 2, token, token + 100, token + 200});
  start(4, 1, 4);
  post({part(1, {1, 2}, {})});
  // One pack of four each: alone, none of them could have more; together every continuation is ready.
  for (int32_t token = 100; token < 104; ++token)
    EXPECT_TRUE(eventually([&] {
      if (!take(key(1, {1, 2, token})).empty()) return true;
      post({part(1, {1, 2}, {})});
      std::this_thread::sleep_for(2ms);
      return false;
    })) << token;
  EXPECT_EQ(host.worker_names(), (std::vector<std::string>{"ghost-0", "ghost-1", "ghost-2", "ghost-3"}));
}

TEST_F(GhostsTest, ScalingDownDropsWhatTheLastGhostsHad) {
  for (int32_t token = 100; token < 104; ++token) corpus.insert(std::vector<int32_t>{1, 2, token, token + 100, token + 200});
  start(2, 4, 2);
  EXPECT_EQ(ghosts->n_active(), 2u);
  post({part(1, {1, 2}, {})});
  ASSERT_TRUE(eventually([&] { return ghosts->n_built() >= 4; })) << "two each";
  ghosts->scale(1);
  EXPECT_EQ(ghosts->n_active(), 1u);
  ghosts->scale(2);
  size_t ready = 0;
  for (int32_t token = 100; token < 104; ++token) {
    const DraftKey wanted = key(1, {1, 2, token});
    ready += !take(wanted).empty();
  }
  EXPECT_LE(ready, 2u) << "only the first ghost's";
  ghosts->scale(0);
  EXPECT_EQ(ghosts->n_active(), 1u);
  ghosts->scale(9);
  EXPECT_EQ(ghosts->n_active(), 2u);
}

TEST_F(GhostsTest, LearnsLongTextsInTheBackgroundAndResetDropsThem) {
  std::vector<int32_t> tokens(5000);
  for (int32_t i = 0; i < 5000; ++i) tokens[static_cast<size_t>(i)] = i;
  text->append(tokens);
  start(1);
  EXPECT_TRUE(ghosts->learn_later(text));
  EXPECT_TRUE(eventually([&] { return text->inserted.load() == 5000; }));
  EXPECT_TRUE(ghosts->learn(*text, 1));
  draft::DraftNodes out;
  ASSERT_TRUE(corpus.match(std::vector<int32_t>{4000, 4001}, 1, {}, out));
  EXPECT_EQ(out.tokens, (std::vector<int32_t>{4002}));

  for (int round = 0; round < 50; ++round) {
    auto another = std::make_shared<Text>();
    another->append(tokens);
    ghosts->learn_later(another);
    ghosts->reset();
    EXPECT_EQ(corpus.n_nodes(), 0u) << "nothing comes after a reset";
    std::this_thread::sleep_for(100us);
    EXPECT_EQ(corpus.n_nodes(), 0u);
  }
  auto later = std::make_shared<Text>();
  later->append(kCounting);
  EXPECT_TRUE(ghosts->learn_later(later));
  EXPECT_TRUE(eventually([&] { return corpus.n_nodes() > 0 && later->inserted.load() == kCounting.size(); })) << "texts after a reset are learned";
}

TEST_F(GhostsTest, TheBacklogIsBounded) {
  start(1);
  // Long ones, made beforehand: a ghost gets through few of them while they come in, on any machine.
  std::vector<int32_t> tokens(4000);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i);
  std::vector<std::shared_ptr<Text>> texts;
  for (int i = 0; i < 2000; ++i) {
    texts.push_back(std::make_shared<Text>());
    texts.back()->append(tokens);
  }
  size_t taken = 0;
  for (const std::shared_ptr<Text>& each : texts) taken += ghosts->learn_later(each);
  EXPECT_GE(taken, Ghosts::kMostBacklog);
  EXPECT_LT(taken, 2000u);
}

TEST_F(GhostsTest, CountsAreTrueHoweverATextArrives) {
  start(0);
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 300; ++i) tokens.push_back(i * i % 7);
  draft::NgramCorpus at_once({.max_depth = 6});
  at_once.insert(tokens);
  for (size_t i = 0; i < tokens.size(); i += 3) {
    text->append(std::span(tokens).subspan(i, 3));
    ghosts->learn(*text, 2);
  }
  while (!ghosts->learn(*text, 2)) {
  }
  EXPECT_EQ(corpus.n_nodes(), at_once.n_nodes());
  for (size_t i = 0; i + 4 < tokens.size(); ++i)
    EXPECT_EQ(corpus.frequency(std::span(tokens).subspan(i, 4)), at_once.frequency(std::span(tokens).subspan(i, 4)));
}

TEST_F(GhostsTest, WithoutThreadsThereIsNothing) {
  start(0);
  EXPECT_EQ(ghosts->n_active(), 0u);
  post({part(1, {1, 2}, {})});
  EXPECT_FALSE(ghosts->learn_later(text));
  EXPECT_TRUE(take(key(1, {1, 2, 3})).empty());
}

TEST_F(GhostsTest, AHostThatGivesNoThreadsIsServedWithout) {
  host.absent.insert(TURBO_HOST_THREADS);
  start(4);
  EXPECT_EQ(ghosts->n_threads(), 0u);
  post({part(1, {1, 2}, {})});
}

// Every ghost ends, whatever it is doing, and can be started again.
TEST_F(GhostsTest, StopWaitsForAll) {
  std::vector<int32_t> tokens(200000);
  for (int32_t i = 0; i < 200000; ++i) tokens[static_cast<size_t>(i)] = i * 7919 % 1013;
  text->append(tokens);
  start(4, 4, 4);
  ghosts->learn_later(text);
  post({part(1, {1, 2}, {3, 4, 5, 6, 7})});
  ghosts->stop();
  EXPECT_EQ(ghosts->n_threads(), 0u);
  EXPECT_LT(text->inserted.load(), text->size()) << "it did not finish the text first";
  ghosts->stop();
}

// The engine thread against all ghosts at once; for the race detector, and no draft may be wrong.
TEST_F(GhostsTest, StressEveryDraftThatIsTakenFitsItsContext) {
  start(3, 2, 3);
  std::vector<int32_t> said;
  uint64_t session = 1, hits = 0;
  uint32_t state = 1;
  const auto random = [&] { return (state = state * 1664525 + 1013904223) >> 16; };
  for (int round = 0; round < 3000; ++round) {
    if (round % 500 == 499) {
      ghosts->reset();
      text = std::make_shared<Text>();
      said.clear();
      ++session;
    }
    if (round % 97 == 0) ghosts->scale(1 + random() % 3);
    // Text that repeats with a period, so that drafts can be checked: after t comes (t + 1) % 11.
    std::vector<int32_t> fresh(1 + random() % 4);
    for (int32_t& token : fresh) {
      token = said.empty() ? 0 : (said.back() + 1) % 11;
      said.push_back(token);
    }
    text->append(fresh);
    if (!ghosts->learn(*text, 16)) ghosts->learn_later(text);
    rejected.insert(static_cast<int32_t>(random() % 50), 60);
    DraftKey wanted = key(session, said);
    ghosts->take(std::span(&wanted, 1), [](size_t) { return 8u; },
                 [&](size_t, const draft::DraftNodes& nodes, const std::vector<uint8_t>&) {
                   ++hits;
                   for (uint32_t i = 0; i < nodes.size(); ++i) {
                     const int32_t before = nodes.parents[i] < 0 ? said.back() : nodes.tokens[static_cast<size_t>(nodes.parents[i])];
                     ASSERT_EQ(nodes.tokens[i], (before + 1) % 11);
                   }
                 });
    std::vector<int32_t> context(said.end() - static_cast<std::ptrdiff_t>(std::min<size_t>(12, said.size())), said.end());
    JobPart next = part(session, context, {(said.back() + 1) % 11, (said.back() + 2) % 11});
    next.position = said.size();
    post({std::move(next)});
    if (round % 3 == 0) std::this_thread::sleep_for(50us);
  }
  EXPECT_GT(hits, 0u);
}
