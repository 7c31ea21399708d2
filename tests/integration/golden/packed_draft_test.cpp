// Drafts over caches that pack closed blocks. A drafter that knows the texts drafts chains and trees whose right part and
// whose wrong part end one short of a block's edge, at it, and beyond; what comes out must be what comes out without a
// drafter, and what lies in packed blocks must be the same bytes.
#include <turbo/abi/plugin.h>

#include <fstream>
#include <random>

#include "fixtures/scripted_drafter/scripted_drafter.h"
#include "harness.h"
#include "support/temp_dir.h"
#include "unit/engine/collector.h"
#include "unit/kv_float/library.h"

namespace turbo::engine::testing {
namespace {

using Options = std::map<std::string, std::string>;
using turbo::testing::DraftRound;
using turbo::testing::DraftScript;

constexpr uint32_t kVocab = 16000, kContext = 256, kBlock = 64;
const std::string kDrafterFolder = std::string(TURBO_BUILD) + "/tests/plugins/scripted_drafter";

struct Codecs {
  std::string name, k, v;
  Options options;
  bool packs = true;
};
void PrintTo(const Codecs& codecs, std::ostream* out) { *out << codecs.name; }

const Options kBare{{"self_check", "off"}, {"boundary", "0"}};
const Options kPlain{{"self_check", "off"}, {"boundary", "0"}, {"center", "off"}};
const Options kPromoted{{"self_check", "off"}, {"boundary", "1"}, {"promote_k", "q8"}};

std::vector<Codecs> all_codecs() {
  return {{"tq4", "tq4", "tq4", kPlain},     {"rq3_iso", "rq3_iso", "rq3_iso", kBare}, {"tq2", "tq2", "tq2", kPlain},
          {"q8_tq3", "q8", "tq3", kPlain}, {"promoted", "tq3", "rq3_planar", kPromoted},
          {"f16", "f16", "f16", {}, false}};  // one form: its steps cross edges
}

/// The script of the drafter library that the engine loads, emptied.
DraftScript& new_script(uint32_t seed) {
  static const test::Library library(kDrafterFolder + "/libscripted_drafter.so");
  auto* script = const_cast<DraftScript*>(static_cast<const DraftScript*>(library.component("scripted")->query_interface(turbo::testing::kDraftScript)));
  std::lock_guard lock(script->mutex);
  script->texts.clear();
  script->rounds.clear();
  script->wrong_history = false;
  script->vocabulary = kVocab;
  script->random.seed(seed);
  return *script;
}

struct Setup {
  int threads = 2, chunk = 256;
  uint32_t pool_tokens = 16 * kContext;
  bool drafts = false, prefix_cache = true;
};

std::unique_ptr<Runtime> load_codecs(const Codecs& codecs, const Setup& wanted) {
  ModelSetup setup{.model = "models/turbo-nano-q1.gguf", .threads = wanted.threads, .prefill_chunk = wanted.chunk, .kv = codecs.k, .kv_v = codecs.v};
  setup.tune = [&](profile::Profile& profile) {
    profile.kv.options = codecs.options;
    profile.kv.pool_tokens = wanted.pool_tokens;
    profile.model.context = kContext;
    profile.engine.prefix_cache = wanted.prefix_cache;
    if (!wanted.drafts) return;
    profile.drafter.name = "scripted";
    profile.drafter.adaptive = false;
    profile.plugins.paths = {kDrafterFolder};
  };
  return load(setup);
}

struct Case {
  Request request;
  std::vector<int32_t> alone;
  std::vector<int32_t> text() const { return joined(request.prompt, alone); }
};

// Prompts before, at and after an edge; greedy ones, and several samples of one prompt.
std::vector<Case> make_cases() {
  std::mt19937 rng(5);
  std::vector<Case> cases;
  const auto add = [&](const std::vector<int32_t>& prompt, std::optional<uint64_t> seed) {
    Case one;
    one.request.prompt = prompt;
    one.request.max_tokens = 84;
    one.request.sampling.temperature = seed ? 0.9f : 0.0f;
    one.request.sampling.seed = seed;
    cases.push_back(one);
  };
  std::vector<int32_t> beginning;
  for (uint32_t i = 0; i < 64; ++i) beginning.push_back(static_cast<int32_t>(rng() % kVocab));
  for (const uint32_t length : {40u, 61u, 64u, 100u, 127u}) {
    std::vector<int32_t> prompt(beginning.begin(), beginning.begin() + std::min(length, 64u));
    while (prompt.size() < length) prompt.push_back(static_cast<int32_t>(rng() % kVocab));
    add(prompt, {});
    if (length == 61 || length == 100)
      for (uint64_t n = 0; n < 3; ++n) add(prompt, rng());
  }
  return cases;
}

// What each gives when nothing runs beside it, nothing is drafted and nothing cached.
std::vector<Case> run_alone(const Codecs& codecs) {
  std::vector<Case> cases = make_cases();
  const auto runtime = load_codecs(codecs, {.threads = 1, .prefix_cache = false});
  if (!runtime) return {};
  for (Case& one : cases) {
    auto collector = std::make_shared<Collector>();
    EXPECT_TRUE(runtime->engine().submit(one.request, collector));
    EXPECT_EQ(collector->wait().reason, FinishReason::length);
    one.alone = collector->ids();
  }
  return cases;
}

// Where a part of a draft that reaches slot root + n ends: 0 short of the block's last slot, 1 at it, 2 beyond.
uint32_t ends(const DraftRound& round, uint32_t n) {
  const uint64_t at = round.root % kBlock + n;
  return at < kBlock - 1 ? 0 : at == kBlock - 1 ? 1 : 2;
}

/// Verified drafts near an edge, by [tree][end of the right part][end of all].
struct Seen {
  uint32_t n[2][3][3] = {}, dropped = 0;
  void add(const std::vector<DraftRound>& rounds, bool packs) {
    for (const DraftRound& round : rounds) {
      if (round.root % kBlock + 9 < kBlock || !round.certain) continue;
      // A step over packed blocks stays in its block: a draft that does not fit is not verified.
      if (packs && ends(round, round.nodes) == 2) {
        EXPECT_EQ(round.accepted, 0u) << "root " << round.root << " nodes " << round.nodes;
        ++dropped;
        continue;
      }
      EXPECT_EQ(round.accepted, round.right) << "root " << round.root << " nodes " << round.nodes << (round.tree ? " tree" : " chain");
      ++n[round.tree][ends(round, round.right)][ends(round, round.nodes)];
    }
  }
  // All of them came up; rejected parts only where something was left to reject.
  void expect_all(bool packs) const {
    for (const uint32_t tree : {0u, 1u})
      for (uint32_t right = 0; right < (packs ? 2u : 3u); ++right)
        for (uint32_t all = right; all < (packs ? 2u : 3u); ++all) EXPECT_GT(n[tree][right][all], 0u) << "tree " << tree << " right part " << right << " all " << all;
    if (packs) {
      EXPECT_GT(dropped, 0u);
    }
  }
};

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Positions saved, 0 when that failed.
uint32_t save(Runtime& runtime, const std::vector<int32_t>& tokens, const std::filesystem::path& path) {
  const auto saved = runtime.engine().save_prefix(tokens, "", path);
  EXPECT_TRUE(saved) << saved.status().message();
  return saved ? *saved : 0;
}

class PackedDrafts : public ::testing::TestWithParam<Codecs> {};

}  // namespace

TEST_P(PackedDrafts, TokensAreThoseWithoutADrafterInAnyChunksAndAfterPreemptions) {
  const Codecs& codecs = GetParam();
  const std::vector<Case> cases = run_alone(codecs);
  ASSERT_FALSE(cases.empty());
  if (codecs.packs) {
    // Else all below would hold for a codec that is never read.
    static const std::vector<Case> plain = run_alone(all_codecs().back());
    size_t changed = 0;
    for (size_t i = 0; i < cases.size(); ++i) changed += cases[i].alone != plain.at(i).alone;
    EXPECT_GT(changed, cases.size() / 2);
  }
  Seen seen;
  uint64_t preemptions = 0, cached = 0, accepted = 0, rejected = 0;
  for (const int chunk : {9, 64, 256}) {
    SCOPED_TRACE("chunk " + std::to_string(chunk));
    DraftScript& script = new_script(static_cast<uint32_t>(chunk));
    for (const Case& one : cases) script.texts.push_back(one.text());
    const auto runtime = load_codecs(codecs, {.chunk = chunk, .pool_tokens = kContext + 2 * kBlock, .drafts = true});
    ASSERT_TRUE(runtime);
    std::vector<std::shared_ptr<Collector>> running;
    for (const Case& one : cases) {
      running.push_back(std::make_shared<Collector>());
      ASSERT_TRUE(runtime->engine().submit(one.request, running.back()));
    }
    for (size_t i = 0; i < cases.size(); ++i) {
      const Finish finish = running[i]->wait();
      ASSERT_EQ(finish.reason, FinishReason::length) << finish.status.message();
      ASSERT_EQ(running[i]->ids(), cases[i].alone) << "request " << i << ", preempted " << finish.preemptions << " times, cached " << finish.usage.cached_tokens;
      accepted += finish.speculation.accepted;
      rejected += finish.speculation.drafted - finish.speculation.accepted;
      cached += finish.usage.cached_tokens;
    }
    EXPECT_TRUE(runtime->engine().drain(10000));
    const Snapshot end = runtime->engine().snapshot();
    EXPECT_EQ(end.kv_blocks_used, 0u);
    EXPECT_EQ(end.leaks, 0u);
    EXPECT_GT(end.preemptions, 0u) << "the pool was never too small";
    preemptions += end.preemptions;
    std::lock_guard lock(script.mutex);
    EXPECT_FALSE(script.wrong_history);
    seen.add(script.rounds, codecs.packs);
  }
  EXPECT_GT(accepted, 300u);
  EXPECT_GT(rejected, 300u);
  EXPECT_GT(cached, 0u);
  std::printf("%s: %llu preemptions, %llu cached, %llu accepted, %llu rejected, %u dropped at an edge\n", codecs.name.c_str(), static_cast<unsigned long long>(preemptions),
              static_cast<unsigned long long>(cached), static_cast<unsigned long long>(accepted), static_cast<unsigned long long>(rejected), seen.dropped);
}

// One request with much room, so that its blocks can be read while it goes on.
TEST_P(PackedDrafts, RejectedDraftsLeavePackedBytesAlone) {
  const Codecs& codecs = GetParam();
  const turbo::testing::TempDir folder;
  Seen seen;
  const auto plain = load_codecs(codecs, {.threads = 1});
  ASSERT_TRUE(plain);
  const auto drafted = load_codecs(codecs, {.drafts = true});
  ASSERT_TRUE(drafted);
  for (uint32_t round = 0; round < 12; ++round) {
    std::mt19937 rng(round);
    Request request;
    for (uint32_t i = 0; i < 40 + round; ++i) request.prompt.push_back(static_cast<int32_t>(rng() % kVocab));
    request.max_tokens = kContext - 1 - static_cast<uint32_t>(request.prompt.size());
    request.sampling.temperature = round % 2 ? 0.8f : 0.0f;
    request.sampling.seed = round;
    const auto alone = std::make_shared<Collector>(), with = std::make_shared<Collector>();
    ASSERT_TRUE(plain->engine().submit(request, alone));
    ASSERT_EQ(alone->wait().reason, FinishReason::length);
    const std::vector<int32_t> text = joined(request.prompt, alone->ids()), first(text.begin(), text.begin() + kBlock);

    DraftScript& script = new_script(round);
    script.texts = {text};
    ASSERT_TRUE(drafted->engine().submit(request, with));
    ASSERT_TRUE(with->wait_for_tokens(kBlock + 8 - request.prompt.size()));
    ASSERT_EQ(save(*drafted, first, folder.path() / "early"), kBlock);
    ASSERT_EQ(with->wait().reason, FinishReason::length);
    ASSERT_EQ(with->ids(), alone->ids()) << "round " << round;
    ASSERT_EQ(save(*drafted, first, folder.path() / "late"), kBlock);
    EXPECT_TRUE(bytes_of(folder.path() / "early") == bytes_of(folder.path() / "late")) << "a packed block changed, round " << round;

    ASSERT_EQ(save(*plain, text, folder.path() / "plain"), 3 * kBlock);
    ASSERT_EQ(save(*drafted, text, folder.path() / "drafted"), 3 * kBlock);
    const std::string want = bytes_of(folder.path() / "plain");
    EXPECT_GT(want.size(), 3 * kBlock * plain->memory().kv_bytes_per_token);
    EXPECT_TRUE(bytes_of(folder.path() / "drafted") == want) << "round " << round;
    std::lock_guard lock(script.mutex);
    EXPECT_FALSE(script.wrong_history);
    seen.add(script.rounds, codecs.packs);
  }
  seen.expect_all(codecs.packs);
}

INSTANTIATE_TEST_SUITE_P(Codecs, PackedDrafts, ::testing::ValuesIn(all_codecs()), [](const auto& info) { return info.param.name; });

// A prefix saved with packed codecs serves another engine of the same settings; one setting off and it is refused.
TEST(PackedPrefix, ServesTheSameSettingsAndNoOthers) {
  const turbo::testing::TempDir folder;
  const std::filesystem::path file = folder.path() / "prefix";
  std::mt19937 rng(3);
  std::vector<int32_t> prompt;
  for (uint32_t i = 0; i < 150; ++i) prompt.push_back(static_cast<int32_t>(rng() % kVocab));
  const auto with = [](Options more) {
    more.insert(kBare.begin(), kBare.end());
    return more;
  };
  for (const Codecs& codecs : {Codecs{"", "tq3", "rq4_iso", with({})}, Codecs{"", "q8", "tq2", kPlain}, Codecs{"", "rq3_planar", "tq4", kPromoted}}) {
    SCOPED_TRACE(codecs.k + " and " + codecs.v);
    std::vector<int32_t> ids;
    {
      const auto runtime = load_codecs(codecs, {});
      ASSERT_TRUE(runtime);
      ids = greedy(*runtime, prompt, 60);
      ASSERT_EQ(save(*runtime, prompt, file), 2 * kBlock);
    }
    const auto other = load_codecs(codecs, {.threads = 3, .chunk = 33});
    ASSERT_TRUE(other);
    const auto restored = other->engine().restore_prefix("", file);
    ASSERT_TRUE(restored) << restored.status().message();
    ASSERT_EQ(*restored, 2 * kBlock);
    const auto run = submit_greedy(*other, prompt, 60);
    run->wait();
    EXPECT_EQ(run->finish.usage.cached_tokens, 2 * kBlock);
    EXPECT_EQ(run->ids, ids);
  }
  // The file at hand is of rq3_planar and tq4 with promoted layers.
  Options seed = kPromoted, group = kPromoted, uncentered = kPromoted, spare = kPromoted, fewer = kPromoted;
  seed["seed"] = "43";
  group["group"] = "32";
  uncentered["center"] = "off";
  spare["promote_k"] = "f16";
  fewer["boundary"] = "0";
  for (const auto& [k, v, options] : {std::tuple{"rq3_planar", "tq4", seed}, {"rq3_planar", "tq4", group}, {"rq3_planar", "tq4", uncentered}, {"rq3_planar", "tq4", spare},
                                      {"rq3_planar", "tq4", fewer}, {"rq3_iso", "tq4", kPromoted}, {"rq3_planar", "rq4_iso", kPromoted}}) {
    const auto runtime = load_codecs({"", k, v, options}, {});
    ASSERT_TRUE(runtime);
    EXPECT_EQ(runtime->engine().restore_prefix("", file).status().code(), Code::unsupported) << k << " " << v << " " << ::testing::PrintToString(options);
    EXPECT_EQ(runtime->engine().snapshot().kv_blocks_cached, 0u);
  }
}

}  // namespace turbo::engine::testing
