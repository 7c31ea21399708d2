// A small model drafts for a larger one: the text is that of the larger one alone, whatever the drafts, the caches and the
// cuts into steps; and the small model's cache after any history is that of a text it saw afresh.
#include <filesystem>
#include <map>
#include <random>

#include "engine/host_program.h"
#include "harness.h"
#include "unit/engine/collector.h"

namespace turbo::engine::testing {
namespace {

constexpr const char* kDraft = "models/turbo-nano-q1.gguf";

std::string source(const std::string& path) { return std::string(TURBO_SOURCE) + "/" + path; }

std::function<void(profile::Profile&)> drafted(int steps, int topk, std::function<void(profile::Profile&)> more = {}) {
  return [=](profile::Profile& profile) {
    profile.drafter.name = "standalone";
    profile.drafter.model = source(kDraft);
    profile.drafter.steps = steps;
    profile.drafter.topk = topk;
    profile.drafter.adaptive = false;
    profile.drafter.draft_tokens = topk == 1 ? steps + 1 : std::min(12, 1 + topk + (steps - 1) * topk * topk);
    if (more) more(profile);
  };
}

std::vector<Request> make_requests() {
  std::vector<Request> requests;
  std::mt19937 rng(5);
  for (const uint32_t length : {1u, 5u, 63u, 64u, 130u, 200u}) {
    Request request;
    for (uint32_t i = 0; i < length; ++i) request.prompt.push_back(static_cast<int32_t>(length == 130 ? 20 + i % 9 : rng() % 4000));
    request.max_tokens = 60;
    request.sampling.temperature = length % 2 ? 0.0f : 0.8f;
    request.sampling.seed = 77 + length;
    requests.push_back(request);
  }
  return requests;
}

struct Answers {
  std::vector<std::vector<int32_t>> ids;
  uint64_t drafted = 0, accepted = 0, preemptions = 0;
};

Answers run_all(Runtime& runtime, const std::vector<Request>& requests, bool together) {
  Answers run;
  std::vector<std::shared_ptr<Collector>> collectors;
  const auto take = [&](Collector& collector) {
    const Finish finish = collector.wait();
    EXPECT_TRUE(finish.status) << finish.status.message();
    run.ids.push_back(collector.ids());
    run.drafted += finish.speculation.drafted;
    run.accepted += finish.speculation.accepted;
    run.preemptions += finish.preemptions;
  };
  for (const Request& request : requests) {
    collectors.push_back(std::make_shared<Collector>());
    EXPECT_TRUE(runtime.engine().submit(request, collectors.back()));
    if (!together) take(*collectors.back());
  }
  if (together)
    for (const auto& collector : collectors) take(*collector);
  return run;
}

}  // namespace

TEST(Standalone, TextsAreThoseOfTheTargetAlone) {
  struct Case {
    int topk, chunk;
  };
  const std::vector<Request> requests = make_requests();
  const std::map<std::string, std::vector<Case>> cases{{"f16", {{1, 7}, {3, 256}}}, {"tq4", {{3, 7}, {1, 64}}}};
  for (const auto& [kv, some] : cases) {
    auto alone = load({.kv = kv});
    ASSERT_TRUE(alone);
    const Answers expected = run_all(*alone, requests, false);
    alone.reset();
    for (const Case& one : some) {
      SCOPED_TRACE(fmt::format("kv {}, topk {}, chunk {}", kv, one.topk, one.chunk));
      ModelSetup setup{.prefill_chunk = one.chunk, .kv = kv};
      setup.tune = drafted(3, one.topk);
      auto runtime = load(setup);
      ASSERT_TRUE(runtime);
      const Answers run = run_all(*runtime, requests, true);
      EXPECT_EQ(run.ids, expected.ids);
      EXPECT_GT(run.drafted, 0u);
      EXPECT_GT(run.accepted, 0u);
      EXPECT_EQ(run_all(*runtime, requests, false).ids, expected.ids) << "again, out of the prefix caches";
      EXPECT_TRUE(runtime->engine().drain(10000));
      EXPECT_EQ(runtime->engine().snapshot().leaks, 0u);
    }
  }
}

TEST(Standalone, PreemptedRequestsGoOnExactly) {
  std::vector<Request> requests = make_requests();
  for (Request& request : requests) request.max_tokens = 150;  // across more blocks than admission sets aside
  ModelSetup plain{.kv = "f16"};
  auto alone = load(plain);
  ASSERT_TRUE(alone);
  const Answers expected = run_all(*alone, requests, false);
  alone.reset();
  ModelSetup setup{.kv = "f16"};
  setup.tune = drafted(3, 1, [](profile::Profile& profile) {
    profile.model.context = 384;
    profile.kv.pool_tokens = 384;
  });
  auto runtime = load(setup);
  ASSERT_TRUE(runtime);
  const Answers run = run_all(*runtime, requests, true);
  EXPECT_EQ(run.ids, expected.ids);
  EXPECT_GT(run.preemptions, 0u);
  EXPECT_GT(run.accepted, 0u);
}

// The target itself as the draft model: every greedy draft holds, but for an end of the request.
TEST(Standalone, TheTargetAsItsOwnDraftModelIsAlwaysRight) {
  ModelSetup setup{.kv = "f16"};
  setup.tune = drafted(3, 1, [](profile::Profile& profile) { profile.drafter.model = source("models/turbo-mini-q1.gguf"); });
  auto runtime = load(setup);
  ASSERT_TRUE(runtime);
  std::vector<Request> requests = make_requests();
  for (Request& request : requests) request.sampling.temperature = 0;
  for (Request& request : requests) request.max_tokens = 61;  // the prompt's token, then rounds of 4
  const Answers run = run_all(*runtime, requests, true);
  EXPECT_GT(run.drafted, 0u);
  EXPECT_EQ(run.accepted, run.drafted);
}

TEST(Standalone, SelfSpeculationKeepsTheText) {
  const std::vector<Request> requests = make_requests();
  auto alone = load({.kv = "f16"});
  ASSERT_TRUE(alone);
  const Answers expected = run_all(*alone, requests, false);
  alone.reset();
  ModelSetup setup{.kv = "f16"};
  setup.tune = [](profile::Profile& profile) {
    profile.drafter.name = "self_spec";
    profile.drafter.adaptive = false;
  };
  auto runtime = load(setup);
  ASSERT_TRUE(runtime);
  const Answers run = run_all(*runtime, requests, true);
  EXPECT_EQ(run.ids, expected.ids);
  EXPECT_GT(run.drafted, 0u);
}

// A hundred rounds of drafted nodes, of which a path is kept, against a text that was run at once: the logits after it are
// equal bit for bit.
TEST(Standalone, TheCacheAfterAnyRoundsIsThatOfAFreshText) {
  ModelSetup setup{.kv = "f16"};
  setup.tune = drafted(3, 1);
  auto runtime = load(setup);
  ASSERT_TRUE(runtime);
  // The service that the drafter was given; the engine is idle, so this thread may use it.
  HostProgram& host = runtime->host_program();
  const turbo_host_program& service = *host.table();
  const std::string path = source(kDraft);
  const turbo_draft_source from{sizeof from, 0, path.c_str()};
  turbo_draft_model* model = nullptr;
  turbo_draft_facts facts{};
  facts.struct_size = sizeof facts;
  turbo_error error{sizeof error, 0, {}, {}};
  ASSERT_EQ(service.model_open(service.ctx, &from, &model, &facts, &error), TURBO_OK) << error.message;
  EXPECT_GT(facts.kv_pool_bytes, 0u);
  EXPECT_GT(facts.weights_bytes, 0u);

  std::vector<int32_t> text;
  const auto run = [&](uint32_t sequence, const std::vector<int32_t>& tokens, uint32_t n_tokens, const std::vector<int32_t>& parents) {
    turbo_draft_group group{sizeof group, sequence, n_tokens, static_cast<uint32_t>(tokens.size()) - n_tokens, tokens.data(), parents.data(), -1, 0};
    turbo_view view{};
    view.struct_size = sizeof view;
    EXPECT_EQ(service.model_run(service.ctx, model, &group, 1, &view, &error), TURBO_OK) << error.message;
    EXPECT_EQ(group.first_logits, 0);
    const auto* values = static_cast<const float*>(view.data);
    return std::vector<float>(values, values + view.shape[0] * facts.vocab_size);
  };
  std::mt19937 rng(3);
  const auto token = [&] { return static_cast<int32_t>(rng() % facts.shared_vocab); };
  for (int round = 0; round < 100; ++round) {
    std::vector<int32_t> fresh;
    for (uint32_t n = 1 + rng() % 3 + (round == 40 ? 150 : 0); n > 0; --n) fresh.push_back(token());
    text.insert(text.end(), fresh.begin(), fresh.end());
    const std::vector<float> logits = run(1, fresh, static_cast<uint32_t>(fresh.size()), {});
    if (round % 9 == 0 || round == 41) {
      EXPECT_EQ(logits, run(1000 + static_cast<uint32_t>(round), text, static_cast<uint32_t>(text.size()), {})) << round;
      service.model_drop(service.ctx, model, 1000 + static_cast<uint32_t>(round));
    }
    // Two levels: three children of the text, then three below two of them.
    const std::vector<int32_t> first{token(), token(), token()}, second{token(), token(), token()};
    run(1, first, 0, {-1, -1, -1});
    run(1, second, 0, {1, 1, 2});
    const std::vector<std::vector<uint32_t>> paths{{}, {0}, {1, 4}, {2, 5}, {2}};
    const std::vector<uint32_t>& kept = paths[rng() % paths.size()];
    ASSERT_EQ(service.model_keep(service.ctx, model, 1, kept.data(), static_cast<uint32_t>(kept.size()), &error), TURBO_OK) << error.message;
    for (const uint32_t node : kept) text.push_back(node < 3 ? first[node] : second[node - 3]);
  }
  // What breaks the rules is refused and changes nothing.
  turbo_view view{};
  view.struct_size = sizeof view;
  const int32_t bad[] = {static_cast<int32_t>(facts.shared_vocab), -1};
  const int32_t orphan[] = {7};
  for (const turbo_draft_group& group : {turbo_draft_group{sizeof(turbo_draft_group), 1, 1, 0, bad, nullptr, -1, 0},
                                         turbo_draft_group{sizeof(turbo_draft_group), 1, 1, 0, bad + 1, nullptr, -1, 0},
                                         turbo_draft_group{sizeof(turbo_draft_group), 1, 0, 1, orphan, orphan, -1, 0},
                                         turbo_draft_group{sizeof(turbo_draft_group), 77, 0, 1, orphan, bad + 1, -1, 0},
                                         turbo_draft_group{sizeof(turbo_draft_group), 1, 0, 0, orphan, nullptr, -1, 0}}) {
    turbo_draft_group copy = group;
    EXPECT_EQ(service.model_run(service.ctx, model, &copy, 1, &view, &error), TURBO_INVALID_ARGUMENT);
  }
  const uint32_t none[] = {0};
  EXPECT_EQ(service.model_keep(service.ctx, model, 1, none, 1, &error), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(run(1, {5}, 1, {}), [&] {
    text.push_back(5);
    return run(2, text, static_cast<uint32_t>(text.size()), {});
  }());
  service.model_drop(service.ctx, model, 1);
  service.model_drop(service.ctx, model, 2);
  EXPECT_TRUE(host.check_idle()) << host.check_idle().message();
  service.model_close(service.ctx, model);
}

TEST(Standalone, ADraftModelThatCannotServeStopsTheStart) {
  const std::string folder = ::testing::TempDir() + "turbo_standalone/";
  std::filesystem::create_directories(folder + "empty");
  std::ofstream(folder + "text.gguf") << "this is no model";
  const auto why = [&](const std::string& path) {
    profile::Profile profile;
    profile.model.path = source("models/turbo-mini-q1.gguf");
    profile.tiers = {"cpu"};
    profile.drafter.name = "standalone";
    profile.drafter.model = path;
    LoadStage stage = LoadStage::engine;
    const auto runtime = Runtime::load(profile, {}, &stage);
    EXPECT_FALSE(runtime) << path;
    EXPECT_EQ(stage, LoadStage::model) << path;
    return runtime ? std::string() : runtime.status().message();
  };
  for (const std::string& path : {folder + "missing.gguf", folder + "text.gguf", folder + "empty"}) {
    const std::string message = why(path);
    EXPECT_EQ(message.rfind("drafter.model: ", 0), 0u) << message;
  }
  std::filesystem::remove_all(folder);
}

TEST(Standalone, PlanNamesTheDraftModelAndItsBytes) {
  profile::Profile profile;
  profile.model.path = source("models/turbo-mini-q1.gguf");
  profile.tiers = {"cpu"};
  profile.drafter.name = "standalone";
  profile.drafter.model = source(kDraft);
  const auto report = plan(profile);
  ASSERT_TRUE(report) << report.status().message();
  const auto& draft = report->json["draft_model"];
  EXPECT_EQ(draft["path"], source(kDraft));
  EXPECT_GT(draft["weights_bytes"].get<uint64_t>(), 0u);
  EXPECT_GT(draft["kv_bytes_per_token"].get<uint64_t>(), 0u);
  EXPECT_NE(report->text.find("turbo-nano-q1.gguf"), std::string::npos);

  ModelSetup setup{.kv = "f16"};
  setup.tune = drafted(3, 1);
  auto runtime = load(setup);
  ASSERT_TRUE(runtime);
  EXPECT_GT(runtime->memory().draft_weights_bytes, 0u);
  EXPECT_GT(runtime->memory().draft_kv_pool_bytes, 0u);
}

}  // namespace turbo::engine::testing
