// The drafter through the ABI, its worker, and the corpus file.
#include <turbo/abi/drafter.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>
#include <turbo/draft/ngram/state.hpp>
#include <turbo/fake/host.hpp>

#include "corpus_file.h"
#include "learner.h"
#include "session.h"
#include "support.h"
#include "support/temp_dir.h"

extern "C" const turbo_plugin* turbo_plugin_query(uint32_t, uint32_t);

using namespace turbo;
using namespace turbo::draft;
using spec_ngram::Learner;

namespace {

struct Answer {
  std::vector<int32_t> tokens, parents;
};

class Ngram {
 public:
  explicit Ngram(fake::Host& host) : component(turbo_plugin_query, "drafter", "ngram", TURBO_TIER_CPU, host) {}
  void open(uint32_t sequence) { ASSERT_EQ(table->open(component.self(), sequence, nullptr), TURBO_OK); }
  void close(uint32_t sequence) { table->close(component.self(), sequence); }
  turbo_status tell(uint32_t sequence, const Tokens& tokens) {
    turbo_observation seen{};
    seen.struct_size = sizeof seen;
    seen.n_tokens = static_cast<uint32_t>(tokens.size());
    seen.tokens = tokens.data();
    return table->observe(component.self(), sequence, &seen, nullptr);
  }
  Answer ask(uint32_t sequence, uint32_t max_slots = 12) {
    Answer answer;
    answer.tokens.assign(max_slots + 4, -7);
    answer.parents.assign(max_slots + 4, -7);
    std::vector<float> probabilities(max_slots + 4, -7);
    turbo_proposal proposal{};
    proposal.struct_size = sizeof proposal;
    proposal.sequence = sequence;
    proposal.max_slots = max_slots;
    proposal.tokens = answer.tokens.data();
    proposal.parents = answer.parents.data();
    proposal.probabilities = probabilities.data();
    EXPECT_EQ(table->poll(component.self(), &proposal, 1, nullptr), TURBO_OK);
    EXPECT_LT(proposal.n, max_slots);
    for (size_t i = proposal.n; i < answer.tokens.size(); ++i)
      EXPECT_EQ(answer.tokens[i], -7) << "nothing pads a draft";
    for (uint32_t i = 0; i < proposal.n; ++i)
      EXPECT_TRUE(probabilities[i] >= 0 && probabilities[i] <= 1) << probabilities[i];
    answer.tokens.resize(proposal.n);
    answer.parents.resize(proposal.n);
    return answer;
  }
  fake::Component component;
  const turbo_drafter* table = component.interface<turbo_drafter>(TURBO_DRAFTER_1);
};

void set_facts(fake::Host& host) {
  host.facts.vocab_size = 1000;
  host.facts.tokenizer_fingerprint = 42;
  host.options["capacity"] = int64_t{100000};
  host.compute_threads = 4096;  // no core is idle: everything happens inside the calls
}

std::vector<uint8_t> bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<uint8_t> state_of(const NgramCorpus& corpus, uint64_t fingerprint = 42) {
  std::vector<uint8_t> bytes;
  NgramState::save(corpus, fingerprint, [&](const void* from, size_t n) {
    bytes.insert(bytes.end(), static_cast<const uint8_t*>(from), static_cast<const uint8_t*>(from) + n);
  });
  return bytes;
}
void load_state(NgramCorpus& corpus, const std::vector<uint8_t>& bytes, uint64_t fingerprint = 42) {
  size_t at = 0;
  NgramState::load(corpus, fingerprint, 1000, bytes.size(), [&](void* to, size_t n) {
    ASSERT_LE(at + n, bytes.size());
    std::memcpy(to, bytes.data() + at, n);
    at += n;
  });
}
std::string failure_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Failure& failure) {
    return failure.message;
  }
  return "";
}

}  // namespace

TEST(NgramDrafterTest, DraftsFromThePromptAndFromOtherSequences) {
  fake::Host host;
  set_facts(host);
  Ngram drafter(host);
  turbo_drafter_needs needs{};
  needs.struct_size = sizeof needs;
  ASSERT_EQ(drafter.table->needs(drafter.component.self(), &needs, nullptr), TURBO_OK);
  EXPECT_EQ(needs.max_slots, 12u);
  EXPECT_EQ(needs.wants_prompt, 1u);
  drafter.open(1);
  EXPECT_TRUE(drafter.ask(1).tokens.empty()) << "nothing seen";
  EXPECT_EQ(drafter.tell(1, {1, 2, 3, 4, 5, 6, 7, 8, 1, 2}), TURBO_OK);
  EXPECT_EQ(drafter.ask(1, 4).tokens, (Tokens{3, 4, 5}));
  EXPECT_EQ(drafter.ask(1, 4).parents, (std::vector<int32_t>{-1, 0, 1}));
  EXPECT_TRUE(drafter.ask(1, 1).tokens.empty());
  drafter.open(2);
  EXPECT_EQ(drafter.tell(2, {500, 6}), TURBO_OK);
  EXPECT_EQ(drafter.ask(2, 3).tokens, (Tokens{7, 8})) << "one corpus for all";
  drafter.close(1);
  EXPECT_TRUE(drafter.ask(1).tokens.empty());
  EXPECT_NE(drafter.tell(1, {1}), TURBO_OK) << "closed";
  drafter.open(1);
  EXPECT_EQ(drafter.tell(1, {7}), TURBO_OK);
  EXPECT_EQ(drafter.ask(1, 2).tokens, (Tokens{8}));
}

TEST(NgramDrafterTest, ARepeatLongerThanTheTrieIsContinuedInOneChain) {
  for (const char* suffix : {"on", "off"}) {
    fake::Host host;
    set_facts(host);
    host.options["max_trie_depth"] = int64_t{4};
    host.options["suffix"] = std::string(suffix);
    Ngram drafter(host);
    drafter.open(1);
    // After 4 5 6 came 7 at first and 90 later, but only the first is the longer repeat.
    Tokens text = range(1, 40);
    text.insert(text.end(), {100, 4, 5, 6, 90, 101, 1, 2, 3, 4, 5, 6});
    ASSERT_EQ(drafter.tell(1, text), TURBO_OK);
    const Answer answer = drafter.ask(1, 9);
    if (std::string(suffix) == "on")
      EXPECT_EQ(answer.tokens, range(7, 8));
    else
      EXPECT_EQ(answer.tokens.front(), 90);
  }
}

TEST(NgramDrafterTest, WithoutAnIdleCoreALongPromptIsLearntStepByStep) {
  fake::Host host;
  set_facts(host);
  host.options["suffix"] = std::string("off");
  Ngram drafter(host);
  EXPECT_TRUE(host.worker_names().empty());
  drafter.open(1);
  Tokens text;
  for (int i = 0; i < 3000; ++i) text.push_back(i % 900);
  ASSERT_EQ(drafter.tell(1, text), TURBO_OK);
  for (int i = 0; i < 590; ++i) ASSERT_EQ(drafter.tell(1, {(3000 + i) % 900}), TURBO_OK);
  const int32_t last = 3589 % 900;
  EXPECT_EQ(drafter.ask(1, 3).tokens, (Tokens{last + 1, last + 2}));
}

TEST(NgramDrafterTest, AWorkerLearnsLongPromptsWhereACoreIsIdle) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP();
  fake::Host host;
  set_facts(host);
  host.compute_threads = 1;
  Ngram drafter(host);
  ASSERT_EQ(host.worker_names(), (std::vector<std::string>{"ngram-learn"}));
  drafter.open(1);
  ASSERT_EQ(drafter.tell(1, range(1, 600)), TURBO_OK);
  drafter.open(2);
  ASSERT_EQ(drafter.tell(2, {300}), TURBO_OK);
  Answer answer;
  for (int i = 0; i < 1000 && answer.tokens.empty(); ++i) {
    answer = drafter.ask(2, 3);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(answer.tokens, (Tokens{301, 302}));
}

TEST(NgramDrafterTest, ATextToldAgainIsCountedOnce) {
  NgramCorpus corpus({4, 1, 4, NgramMatch::bfs, 100000});
  fake::Host host;
  Learner learner(corpus, Host(host.raw()));
  spec_ngram::KnownPrefixes known;
  const Tokens text = range(1, 200);
  for (int turn = 0; turn < 3; ++turn) {  // preempted twice, told again from the start
    spec_ngram::Session session({4, true});
    session.observe(text);
    while (session.n_waiting() > 0) session.learn(learner, known, true, spec_ngram::LearnWhen::ended);
  }
  // The last, unfinished block is not recognised.
  EXPECT_EQ(corpus.frequency(std::span(text).first(4)), 1u);
  spec_ngram::Session other({4, true});
  other.observe(Tokens(text.begin() + 1, text.end()));
  while (other.n_waiting() > 0) other.learn(learner, known, true, spec_ngram::LearnWhen::ended);
  EXPECT_EQ(corpus.frequency(std::span(text).subspan(1, 4)), 2u) << "another text counts";
}

TEST(NgramDrafterTest, TokensAreLearntInBatchesWhenDraftsAreWantedAndAtTheEnd) {
  for (const bool drafts : {true, false}) {
    NgramCorpus corpus({4, 1, 4, NgramMatch::bfs, 100000}), at_once({4, 1, 4, NgramMatch::bfs, 100000});
    fake::Host host;
    Learner learner(corpus, Host(host.raw()));
    spec_ngram::KnownPrefixes known;
    const Tokens text = range(1, 50);
    spec_ngram::Session session({4, true});
    size_t most = 0;
    for (const int32_t token : text) {
      session.observe(Tokens{token});
      session.learn(learner, known, false, drafts ? spec_ngram::LearnWhen::asked : spec_ngram::LearnWhen::heard);
      most = std::max(most, session.n_waiting());
    }
    EXPECT_EQ(most, drafts ? 15u : text.size());
    session.learn(learner, known, false, spec_ngram::LearnWhen::ended);
    EXPECT_EQ(session.n_waiting(), 0u);
    at_once.insert(text);
    EXPECT_EQ(corpus.n_nodes(), at_once.n_nodes());
    for (size_t i = 0; i + 4 <= text.size(); ++i) EXPECT_EQ(corpus.frequency(std::span(text).subspan(i, 4)), 1u) << i;
  }
}

TEST(NgramDrafterTest, ALongTextWithoutDraftsDoesNotPileUp) {
  NgramCorpus corpus({4, 1, 4, NgramMatch::bfs, 100000});
  fake::Host host;
  Learner learner(corpus, Host(host.raw()));
  spec_ngram::KnownPrefixes known;
  spec_ngram::Session session({4, true});
  for (int32_t i = 0; i < 20000; ++i) {
    session.observe(Tokens{i % 700});
    session.learn(learner, known, false, spec_ngram::LearnWhen::heard);
    ASSERT_LE(session.n_waiting(), 2048u);
  }
}

TEST(NgramDrafterTest, SessionsStayBounded) {
  NgramCorpus corpus({4, 1, 4, NgramMatch::bfs, 1000});
  fake::Host host;
  Learner learner(corpus, Host(host.raw()));
  spec_ngram::KnownPrefixes known;
  spec_ngram::Session session({4, false});
  for (int32_t i = 0; i < 60000; ++i) {
    session.observe(Tokens{i % 500});
    session.learn(learner, known, false, spec_ngram::LearnWhen::heard);
  }
  EXPECT_LT(session.bytes(), 200000u);
  EXPECT_EQ(session.n_waiting(), 0u);
  EXPECT_EQ(session.context().back(), 59999 % 500);
  NgramProbe::check(corpus);
}

namespace {

/// A learner with a worker, whose first piece of work waits until it is let go.
struct HeldLearner {
  HeldLearner()
      : learner(corpus, Host(host.raw()), [this](auto context, auto fresh) {
          ++n_calls;
          while (!let_go) std::this_thread::yield();
          if (fails) throw std::runtime_error("no more room");
          corpus.extend(context, fresh);
        }) {
    host.compute_threads = 0;
    learner.start();
  }
  ~HeldLearner() {
    let_go = true;
    learner.stop();
  }
  void wait_for_call() const {
    while (n_calls == 0) std::this_thread::yield();
  }
  fake::Host host;
  NgramCorpus corpus{NgramSettings{4, 1, 4, NgramMatch::bfs, 10000}};
  std::atomic<int> n_calls{0};
  std::atomic<bool> let_go{false}, fails{false};
  Learner learner;
};

}  // namespace

// Items that were queued before a reset must not be inserted after it.
TEST(NgramLearner, AResetDropsWhatIsQueued) {
  HeldLearner held;
  ASSERT_TRUE(held.learner.has_worker());
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(held.learner.later(range(1 + 100 * i, 50), 0));
  held.wait_for_call();
  std::thread reset([&] { held.learner.reset(); });  // waits for the piece that is being learnt
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  held.let_go = true;
  reset.join();
  held.learner.drain();
  EXPECT_EQ(held.corpus.n_nodes(), 0u);
  ASSERT_TRUE(held.learner.later(range(1, 50), 0));
  held.learner.drain();
  EXPECT_EQ(edges(match(held.corpus, {3}, 1)), "^>4") << "it goes on after the reset";
}

TEST(NgramLearner, TheEngineThreadNeitherWaitsNorQueuesWithoutBound) {
  HeldLearner held;
  ASSERT_TRUE(held.learner.later(range(1, 50), 0));
  held.wait_for_call();
  EXPECT_FALSE(held.learner.now({}, range(1, 3))) << "the worker is at it";
  size_t queued = 0;
  while (held.learner.later(range(1, 2), 0)) ASSERT_LE(++queued, Learner::kQueuedTexts);
  EXPECT_FALSE(held.learner.later(Tokens(Learner::kQueuedTokens + 1), 0));
}

TEST(NgramLearner, AFailureCostsDraftsOnly) {
  HeldLearner held;
  held.fails = held.let_go = true;
  ASSERT_TRUE(held.learner.later(range(1, 50), 0));
  ASSERT_TRUE(held.learner.later(range(1, 50), 0));
  held.learner.drain();
  EXPECT_TRUE(held.learner.now({}, range(1, 3)));
  EXPECT_TRUE(held.host.logged("tokens were not learnt: no more room"));
  EXPECT_EQ(held.host.counter("ngram_learn_failures"), 3);
  size_t lines = 0;
  for (const auto& line : held.host.log()) lines += line.level >= TURBO_LOG_WARN;
  EXPECT_EQ(lines, 1u) << "said once";
  held.fails = false;
  ASSERT_TRUE(held.learner.later(range(1, 50), 0));
  held.learner.drain();
  EXPECT_EQ(edges(match(held.corpus, {3}, 1)), "^>4");
}

class NgramStateTest : public ::testing::TestWithParam<NgramMatch> {};
INSTANTIATE_TEST_SUITE_P(Both, NgramStateTest, ::testing::Values(NgramMatch::bfs, NgramMatch::prob),
                         [](const auto& info) { return info.param == NgramMatch::bfs ? "bfs" : "prob"; });

TEST_P(NgramStateTest, ComesBackAsItWas) {
  std::mt19937 random(6);
  NgramCorpus corpus({5, 1, 4, GetParam(), 700});
  for (int i = 0; i < 30; ++i) corpus.insert(random_text(random, 40, 12));
  const auto bytes = state_of(corpus);
  EXPECT_EQ(bytes.size(), NgramState::bytes(corpus));
  NgramCorpus back({5, 1, 4, GetParam(), 700});
  load_state(back, bytes);
  NgramProbe::check(back);
  EXPECT_EQ(NgramProbe::counts(back), NgramProbe::counts(corpus));
  EXPECT_TRUE(GetParam() == NgramMatch::prob || state_of(back) == bytes);
  for (int i = 0; i < 50; ++i) {  // it also forgets in the same order from here on
    const Tokens text = random_text(random, 20, 12);
    corpus.insert(text);
    back.insert(text);
    const Tokens context = random_text(random, 6, 12);
    ASSERT_EQ(match(back, context, 11), match(corpus, context, 11));
  }
  EXPECT_EQ(NgramProbe::counts(back), NgramProbe::counts(corpus));

  NgramCorpus small({3, 1, 4, GetParam(), 50}), empty({5, 1, 4, GetParam(), 700});
  load_state(small, bytes);
  NgramProbe::check(small);
  EXPECT_GT(small.n_nodes(), 20u) << "the newest that fit";
  small.insert(random_text(random, 100, 12));
  NgramProbe::check(small);
  load_state(back, state_of(empty));
  EXPECT_EQ(back.n_nodes(), 0u);
}

TEST_P(NgramStateTest, EveryDamageIsFound) {
  std::mt19937 random(6);
  NgramCorpus corpus({5, 1, 4, GetParam(), 700});
  corpus.insert(random_text(random, 60, 6));
  const auto bytes = state_of(corpus);
  NgramCorpus back({5, 1, 4, GetParam(), 700});
  for (size_t at = 0; at < bytes.size(); ++at) {
    auto damaged = bytes;
    damaged[at] = static_cast<uint8_t>(damaged[at] ^ (1 << random() % 8));
    // The depth it was made with is only told.
    ASSERT_NE(failure_of([&] { load_state(back, damaged); }), "") << "byte " << at;
    ASSERT_EQ(back.n_nodes(), 0u);
    ASSERT_NO_FATAL_FAILURE(NgramProbe::check(back));
  }
  for (size_t size = 0; size < bytes.size(); size += 7)
    ASSERT_NE(failure_of([&] {
                load_state(back, {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)});
              }),
              "")
        << size;
  EXPECT_NE(failure_of([&] { load_state(back, bytes, 43); }).find("another tokenizer"), std::string::npos);
  corpus.insert(Tokens{5000, 5001});
  EXPECT_NE(failure_of([&] { load_state(back, state_of(corpus)); }).find("outside the vocabulary"), std::string::npos);
}

TEST(NgramCorpusFile, TextsAreLinesOfTokenIds) {
  fake::Host host;
  set_facts(host);
  host.files["c.txt"] = [] {
    const std::string text = "1 2,3\t4\r\n\n5 6 7";
    return std::vector<uint8_t>(text.begin(), text.end());
  }();
  NgramCorpus corpus({4, 1, 4, NgramMatch::bfs, 1000});
  const Host view(host.raw());
  EXPECT_EQ(spec_ngram::load_corpus(view, "c.txt", corpus), spec_ngram::CorpusForm::text);
  EXPECT_EQ(edges(match(corpus, {2}, 3)), "^>3 3>4");
  EXPECT_EQ(edges(match(corpus, {4}, 3)), "") << "texts do not run into each other";
  EXPECT_EQ(edges(match(corpus, {5}, 3)), "^>6 6>7");
  EXPECT_EQ(spec_ngram::load_corpus(view, "none.txt", corpus), spec_ngram::CorpusForm::none);
  for (const auto& [text, why] : std::vector<std::pair<std::string, std::string>>{
           {"1 2\n3 x", "corpus c.txt: line 2: expected token ids"},
           {"1 -2", "line 1: expected token ids"},
           {"1 1000", "line 1: a token id is not below the vocabulary's 1000"},
           {"99999999999999999999999999", "not below the vocabulary"},
           {std::string("\0\1\2", 3), "expected token ids"}}) {
    host.files["c.txt"].assign(text.begin(), text.end());
    EXPECT_NE(failure_of([&] { spec_ngram::load_corpus(view, "c.txt", corpus); }).find(why), std::string::npos) << why;
    EXPECT_EQ(corpus.n_nodes(), 0u);
  }
}

TEST(NgramCorpusFile, AFolderThatDoesNotExistIsToldAtTheStart) {
  const turbo::testing::TempDir folder;
  fake::Host host;
  set_facts(host);
  host.options["corpus"] = (folder.path() / "absent" / "corpus.ngram").string();
  try {
    Ngram drafter(host);
    FAIL() << "it started";
  } catch (const std::exception& failure) {
    EXPECT_NE(std::string(failure.what()).find("its folder does not exist"), std::string::npos) << failure.what();
  }
}

TEST(NgramCorpusFile, IsSavedAtTheEndInOneStroke) {
  const turbo::testing::TempDir folder;
  const std::string path = (folder.path() / "corpus.ngram").string();
  std::vector<uint8_t> first;
  {
    fake::Host host;
    set_facts(host);
    host.options["corpus"] = path;
    Ngram drafter(host);
    EXPECT_TRUE(host.logged("nothing there yet, it will be written at the end"));
    drafter.open(1);
    ASSERT_EQ(drafter.tell(1, range(1, 10)), TURBO_OK);
  }
  first = bytes_of(path);
  ASSERT_FALSE(first.empty());
  EXPECT_EQ(std::filesystem::status(path).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  {
    fake::Host host;
    set_facts(host);
    host.options["corpus"] = path;
    host.files[path] = first;
    Ngram drafter(host);
    drafter.open(1);
    ASSERT_EQ(drafter.tell(1, {3, 4}), TURBO_OK);
    EXPECT_EQ(drafter.ask(1, 3).tokens, (Tokens{5, 6}));
    std::filesystem::remove(path);
    std::filesystem::create_directory(path);  // the new state cannot take its place
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    EXPECT_EQ(entry.path().string(), path) << "nothing is left behind";
  {
    fake::Host host;
    set_facts(host);
    host.options["corpus"] = path;
    host.files[path] = std::vector<uint8_t>(first.begin(), first.end() - 1);
    try {
      Ngram drafter(host);
      FAIL() << "a damaged file";
    } catch (const std::runtime_error& failure) {
      EXPECT_NE(std::string(failure.what()).find(path), std::string::npos) << failure.what();
    }
  }
}

// As touch and mktemp make them: a name for a corpus, not a text.
TEST(NgramCorpusFile, AnEmptyFileIsAPlaceForACorpus) {
  const turbo::testing::TempDir folder;
  const std::string path = (folder.path() / "corpus.ngram").string();
  std::ofstream(path).close();
  fake::Host host;
  set_facts(host);
  host.options["corpus"] = path;
  host.files[path] = {};
  {
    Ngram drafter(host);
    EXPECT_TRUE(host.logged("nothing there yet, it will be written at the end"));
    drafter.open(1);
    ASSERT_EQ(drafter.tell(1, range(1, 10)), TURBO_OK);
  }
  EXPECT_FALSE(bytes_of(path).empty());
}

TEST(NgramCorpusFile, ATextIsNotReplaced) {
  const turbo::testing::TempDir folder;
  const std::string path = (folder.path() / "corpus.txt").string();
  fake::Host host;
  set_facts(host);
  host.options["corpus"] = path;
  host.files[path] = {'1', ' ', '2'};
  {
    Ngram drafter(host);
    drafter.open(1);
    ASSERT_EQ(drafter.tell(1, {1}), TURBO_OK);
    EXPECT_EQ(drafter.ask(1, 3).tokens, (Tokens{2}));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

namespace {

Answer ask_ahead(const Ngram& drafter, const Tokens& text, uint32_t n_assumed, uint32_t max_slots = 12) {
  Answer answer;
  answer.tokens.assign(max_slots, -7);
  answer.parents.assign(max_slots, -7);
  turbo_proposal proposal{sizeof(turbo_proposal), 1, max_slots, 0, answer.tokens.data(), answer.parents.data(), nullptr, 0};
  const turbo_hypothesis hypothesis{sizeof(turbo_hypothesis), static_cast<uint32_t>(text.size()), text.data(), 0, n_assumed, 0};
  EXPECT_EQ(drafter.table->ahead(drafter.component.self(), &hypothesis, &proposal, nullptr), TURBO_OK);
  EXPECT_LT(proposal.n, max_slots);
  answer.tokens.resize(proposal.n);
  answer.parents.resize(proposal.n);
  return answer;
}

}  // namespace

TEST(NgramDrafterTest, AheadIsWhatItWouldProposeThere) {
  fake::Host host;
  set_facts(host);
  Ngram drafter(host);
  drafter.open(1);
  const Tokens text{1, 2, 3, 4, 5, 6, 7, 8, 1, 2};
  ASSERT_EQ(drafter.tell(1, text), TURBO_OK);
  const Answer now = drafter.ask(1);
  ASSERT_FALSE(now.tokens.empty());
  EXPECT_EQ(ask_ahead(drafter, text, 0).tokens, now.tokens);
  Tokens assumed = text;
  assumed.push_back(3);
  const Answer ahead = ask_ahead(drafter, assumed, 1);
  ASSERT_FALSE(ahead.tokens.empty());
  EXPECT_EQ(ahead.tokens.front(), 4);
  EXPECT_EQ(drafter.ask(1).tokens, now.tokens) << "asking ahead changes nothing";
  EXPECT_TRUE(ask_ahead(drafter, {999}, 1).tokens.empty());
}

// Where the sequence's own repeats may know more than the corpus, nothing is said ahead.
TEST(NgramDrafterTest, AheadLeavesLongRepeatsToTheSequence) {
  Tokens text;
  for (int32_t i = 0; i < 60; ++i) text.push_back(i);
  for (int32_t i = 0; i < 30; ++i) text.push_back(i);
  for (const bool suffix : {true, false}) {
    fake::Host host;
    set_facts(host);
    host.options["suffix"] = std::string(suffix ? "on" : "off");
    Ngram drafter(host);
    drafter.open(1);
    for (const int32_t token : text) ASSERT_EQ(drafter.tell(1, {token}), TURBO_OK);
    EXPECT_EQ(ask_ahead(drafter, text, 1).tokens.empty(), suffix);
    EXPECT_FALSE(drafter.ask(1).tokens.empty());
  }
}

TEST(NgramDrafterTest, AheadMayRunBesideEverythingElse) {
  fake::Host host;
  set_facts(host);
  Ngram drafter(host);
  std::mt19937 rng(4);
  std::atomic<bool> end{false};
  std::atomic<uint64_t> answered{0};
  std::thread other([&] {
    std::mt19937 own(5);
    while (!end) {
      Tokens text;
      for (int i = 0; i < 20; ++i) text.push_back(static_cast<int32_t>(own() % 8));
      answered += !ask_ahead(drafter, text, 2).tokens.empty();
    }
  });
  for (uint32_t round = 0; round < 300 || (answered == 0 && round < 100000); ++round) {
    const uint32_t sequence = round % 3;
    if (round % 17 < 3) {
      drafter.close(sequence);
      drafter.open(sequence);
    }
    drafter.tell(sequence, {static_cast<int32_t>(rng() % 8), static_cast<int32_t>(rng() % 8)});
    drafter.ask(sequence);
  }
  end = true;
  other.join();
  EXPECT_GT(answered, 0u);
}
