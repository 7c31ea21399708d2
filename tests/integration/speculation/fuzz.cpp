// Engine and real drafters over tiny random models for as long as wanted: random settings, arrivals, cancels, priorities,
// preemptions, masks and seeds; ids are those of an engine without a drafter.
//
//   build/asan/tests/speculation_fuzz --seconds 600 [--seed 1]
//
// A failure names the seed of its round; --seed with that number begins there.
#include <algorithm>
#include <cstring>

#include "integration/golden/harness.h"
#include "settings.h"
#include "unit/engine/collector.h"

namespace turbo::engine::testing {
namespace {

constexpr uint32_t kTinyVocabulary = 256, kTinyContext = 256;
const char* const kModels[] = {"qwen3", "qwen2", "llama3"};
long seconds_to_run = 5;
uint32_t first_seed = 1;

struct Case {
  Request request;
  std::vector<int32_t> alone;
  FinishReason reason = FinishReason::failed;
};
struct Counts {
  uint64_t rounds = 0, compared = 0, cancelled = 0, preemptions = 0, cached = 0, drafted = 0, accepted = 0;
};

std::unique_ptr<Runtime> load_tiny(const std::string& model, const std::string& kv, const std::function<void(profile::Profile&)>& tune) {
  ModelSetup setup{.model = "tests/golden/tiny-random/" + model, .activations = "f32", .threads = 1, .kv = kv};
  setup.tune = tune;
  return load(setup);
}

// What a request of `tokens` may look like; short words repeat, so that there is something to draft.
Request random_request(std::mt19937& rng) {
  Request request;
  const uint32_t letters = rng() % 2 ? 4 : kTinyVocabulary;
  for (uint32_t n = 1 + rng() % 90; n > 0; --n) request.prompt.push_back(static_cast<int32_t>(rng() % letters));
  request.max_tokens = 1 + rng() % 60;
  request.sampling.temperature = rng() % 3 ? 0.2f + static_cast<float>(rng() % 12) / 10 : 0;
  request.sampling.seed = rng();
  if (rng() % 3 == 0) request.sampling.top_k = static_cast<int32_t>(1 + rng() % 10);
  if (rng() % 3 == 0) request.sampling.top_p = 0.5f + static_cast<float>(rng() % 5) / 10;
  if (rng() % 3 == 0) request.sampling.min_p = static_cast<float>(rng() % 4) / 10;
  if (rng() % 4 == 0) request.sampling.typical_p = 0.7f;
  if (rng() % 4 == 0) request.sampling.repetition_penalty = 1.2f;
  if (rng() % 4 == 0) request.sampling.presence_penalty = 0.5f;
  if (rng() % 4 == 0) request.sampling.frequency_penalty = -0.4f;
  if (rng() % 4 == 0) request.sampling.logit_bias = {{static_cast<int32_t>(rng() % kTinyVocabulary), 5.0f}};
  if (rng() % 4 == 0)
    for (int i = 0; i < 5; ++i) request.banned_tokens.push_back(static_cast<int32_t>(rng() % kTinyVocabulary));
  if (rng() % 3 == 0)
    for (int i = 0; i < 8; ++i) request.end_tokens.push_back(static_cast<int32_t>(rng() % kTinyVocabulary));
  if (rng() % 4 == 0) request.min_tokens = rng() % 20;
  if (rng() % 4 == 0) request.mask = std::make_shared<FollowsMask>(request.prompt.back(), kTinyVocabulary);
  return request;
}
// Masks have a state: each run takes its own.
Request fresh(const Request& of) {
  Request request = of;
  if (request.mask) request.mask = std::make_shared<FollowsMask>(request.prompt.back(), kTinyVocabulary);
  return request;
}

Runtime* reference(const std::string& model, const std::string& kv) {
  static std::map<std::string, std::unique_ptr<Runtime>> all;
  std::unique_ptr<Runtime>& one = all[model + " " + kv];
  if (!one) one = load_tiny(model, kv, [](profile::Profile& profile) { profile.engine.prefix_cache = false; });
  return one.get();
}

std::vector<Case> make_cases(std::mt19937& rng, Runtime& plain) {
  std::vector<Case> cases(6);
  for (Case& one : cases) {
    one.request = random_request(rng);
    auto collector = std::make_shared<Collector>();
    EXPECT_TRUE(plain.engine().submit(fresh(one.request), collector));
    one.reason = collector->wait().reason;
    one.alone = collector->ids();
  }
  return cases;
}

// Tiny models have no tokenizer that a second one could be compared with: their own first layer drafts in its place.
DrafterUnderTest for_tiny(DrafterUnderTest drafter) {
  const auto own = [](const std::string& name) { return name == "standalone" ? std::string("self_spec") : name; };
  drafter.name = own(drafter.name);
  drafter.model.clear();
  for (std::string& inner : drafter.over) inner = own(inner);
  const bool composed = !drafter.over.empty();
  const bool drafts_itself = drafter.name == "self_spec" || std::find(drafter.over.begin(), drafter.over.end(), "self_spec") != drafter.over.end();
  for (Options& options : drafter.options) {
    Options renamed;
    for (const auto& [key, value] : options) {
      const size_t dot = key.find('.');
      renamed[dot == std::string::npos ? key : own(key.substr(0, dot)) + key.substr(dot)] = value;
    }
    if (drafts_itself) renamed[composed ? "self_spec.layers" : "layers"] = "1";
    options = std::move(renamed);
  }
  return drafter;
}

std::unique_ptr<Runtime> random_runtime(std::mt19937& rng, const std::string& model, const std::string& kv, std::string& text) {
  const DrafterUnderTest drafter = for_tiny(drafters()[rng() % drafters().size()]);
  const size_t options = rng() % drafter.options.size();
  text = model + ", kv " + kv + ", drafter " + drafter.title() + " options " + std::to_string(options);
  return load_tiny(model, kv, [&](profile::Profile& profile) {
    use_drafter(profile, drafter, options);
    profile.drafter.draft_tokens = static_cast<int>(2 + rng() % (rng() % 2 ? 8 : 63));
    profile.drafter.adaptive = rng() % 4 == 0;
    profile.compute.threads = 1 + static_cast<int>(rng() % 2);
    profile.kv.pool_tokens = kTinyContext + 64 * (rng() % 6);
    profile.engine.max_running = 1 + static_cast<int>(rng() % 8);
    profile.engine.max_step_tokens = 16 + static_cast<int>(rng() % 120);
    profile.engine.prefill_chunk = 4 + static_cast<int>(rng() % 90);
    profile.engine.prefix_cache = rng() % 3 != 0;
  });
}

struct Running {
  const Case* of;
  RequestId id = 0;
  std::shared_ptr<Collector> collector = std::make_shared<Collector>();
  bool cancelled = false;
};

void run_round(uint32_t seed, Counts& counts) {
  std::mt19937 rng(seed);
  const std::string model = kModels[rng() % std::size(kModels)], kv = rng() % 2 ? "f16" : "f32";
  Runtime* plain = reference(model, kv);
  ASSERT_NE(plain, nullptr);
  const std::vector<Case> cases = make_cases(rng, *plain);
  std::string text;
  const auto runtime = random_runtime(rng, model, kv, text);
  ASSERT_TRUE(runtime);
  SCOPED_TRACE(text);
  Engine& engine = runtime->engine();
  std::vector<Running> running;
  for (uint32_t i = 0; i < 20; ++i) {
    Running one{&cases[rng() % cases.size()]};
    Request request = fresh(one.of->request);
    request.priority = static_cast<int32_t>(rng() % 3);
    request.client = rng() % 3;
    request.use_prefix_cache = rng() % 5 != 0;
    request.use_drafter = rng() % 8 != 0;
    if (rng() % 4 == 0) request.draft_slots = 2 + rng() % 20;
    const auto id = engine.submit(request, one.collector);
    ASSERT_TRUE(id) << id.status().message();
    one.id = *id;
    if (rng() % 4 == 0) one.collector->wait_for_tokens(1 + rng() % 8);
    if (rng() % 6 == 0) {
      Running* victim = running.empty() || rng() % 2 ? &one : &running[rng() % running.size()];
      engine.cancel(victim->id);
      victim->cancelled = true;
    }
    if (rng() % 12 == 0) {
      ASSERT_TRUE(engine.flush_prefix_cache());
    }
    running.push_back(one);
  }
  for (Running& one : running) {
    const Finish finish = one.collector->wait();
    const std::vector<int32_t> ids = one.collector->ids(), &alone = one.of->alone;
    counts.cached += finish.usage.cached_tokens;
    counts.drafted += finish.speculation.drafted;
    counts.accepted += finish.speculation.accepted;
    if (finish.reason == FinishReason::cancelled) {
      ASSERT_TRUE(one.cancelled);
      ASSERT_TRUE(ids.size() <= alone.size() && std::equal(ids.begin(), ids.end(), alone.begin()));
      ++counts.cancelled;
      continue;
    }
    ASSERT_EQ(finish.reason, one.of->reason) << finish.status.message();
    ASSERT_EQ(ids, alone) << "preempted " << finish.preemptions << " times, cached " << finish.usage.cached_tokens;
    ++counts.compared;
  }
  EXPECT_TRUE(engine.drain(10000));
  const Snapshot end = engine.snapshot();
  counts.preemptions += end.preemptions;
  ++counts.rounds;
  EXPECT_EQ(end.kv_blocks_used, 0u);
  EXPECT_EQ(end.leaks, 0u);
}

}  // namespace

TEST(SpeculationFuzz, IdsAreThoseOfNoDrafter) {
  Counts counts;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds_to_run);
  for (uint32_t seed = first_seed; std::chrono::steady_clock::now() < end && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    run_round(seed, counts);
  }
  std::printf("%llu rounds, %llu requests compared, %llu cancelled, %llu preemptions, %llu cached tokens, %llu of %llu drafted tokens accepted\n",
              static_cast<unsigned long long>(counts.rounds), static_cast<unsigned long long>(counts.compared),
              static_cast<unsigned long long>(counts.cancelled), static_cast<unsigned long long>(counts.preemptions),
              static_cast<unsigned long long>(counts.cached), static_cast<unsigned long long>(counts.accepted),
              static_cast<unsigned long long>(counts.drafted));
  EXPECT_GT(counts.accepted, 0u);
}

}  // namespace turbo::engine::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--seconds") == 0) turbo::engine::testing::seconds_to_run = std::atol(argv[i + 1]);
    else if (std::strcmp(argv[i], "--seed") == 0) turbo::engine::testing::first_seed = static_cast<uint32_t>(std::atol(argv[i + 1]));
    else return std::fprintf(stderr, "usage: speculation_fuzz [--seconds N] [--seed N]\n"), 2;
  }
  return RUN_ALL_TESTS();
}
