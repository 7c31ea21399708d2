// What a packed cache takes, which layers it keeps in more bits and what is remembered of that, on the bundled model.
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>

#include "harness.h"
#include "support/temp_dir.h"

namespace turbo::engine::testing {
namespace {

using Options = std::map<std::string, std::string>;

std::unique_ptr<Runtime> load_with(const std::string& k, const std::string& v, const Options& options, int threads = 2, const std::string& isa = "") {
  ModelSetup setup{.threads = threads, .kv = k, .kv_v = v, .isa = isa};
  setup.tune = [&](profile::Profile& profile) { profile.kv.options = options; };
  return load(setup);
}

// Bytes of one vector of the bundled model's head size.
uint64_t vector_bytes(const std::string& codec, uint64_t d) {
  if (codec == "f16") return 2 * d;
  if (codec == "q8") return d + d / 32 * 2;
  return d * static_cast<uint64_t>(codec[2] - '0') / 8 + 2;  // tq2, tq3, tq4, rq4_..
}

namespace fs = std::filesystem;

// A cache folder for the time of a test, and what is logged meanwhile.
class CacheFolder {
 public:
  CacheFolder() : before_(spdlog::default_logger()) {
    use(folder_.path());
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log_)));
  }
  ~CacheFolder() {
    spdlog::set_default_logger(before_);
    setenv("XDG_CACHE_HOME", "", 1);
  }
  static void use(const fs::path& folder) { setenv("XDG_CACHE_HOME", folder.c_str(), 1); }
  fs::path keys() const { return folder_.path() / "turbo" / "keys"; }
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    if (fs::exists(keys()))
      for (const fs::directory_entry& entry : fs::directory_iterator(keys())) found.push_back(entry.path());
    return found;
  }
  // Since the last call.
  bool logged(const std::string& part) {
    const bool there = log_.str().find(part) != std::string::npos;
    last_ = log_.str();
    log_.str("");
    return there;
  }
  const std::string& last() const { return last_; }

 private:
  turbo::testing::TempDir folder_;
  std::ostringstream log_;
  std::string last_;
  std::shared_ptr<spdlog::logger> before_;
};

constexpr const char* kMeasured = "looked at in";

std::string read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Everything that the choice at load decides: tokens, bytes a token, and a saved prefix with its fingerprint and stored bits.
struct Traits {
  std::vector<int32_t> ids;
  uint64_t bytes_per_token = 0;
  std::string prefix;
  bool operator==(const Traits&) const = default;
};

Traits traits_of(const std::string& codec, const Options& options) {
  const auto runtime = load_with(codec, codec, options);
  if (!runtime) return {};
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 200; ++i) prompt.push_back((i * 37 + 5) % 200);
  Traits traits{greedy(*runtime, prompt, 30), runtime->memory().kv_bytes_per_token, ""};
  const turbo::testing::TempDir folder;
  const auto saved = runtime->engine().save_prefix(prompt, "", folder.path() / "prefix");
  EXPECT_TRUE(saved) << saved.status().message();
  traits.prefix = read_bytes(folder.path() / "prefix");
  return traits;
}

profile::Profile nano(const std::string& k, const std::string& v) {
  profile::Profile profile;
  profile.model.path = std::string(TURBO_SOURCE) + "/models/turbo-nano-q1.gguf";
  profile.tiers = {"cpu"};
  profile.kv.k = k;
  profile.kv.v = v;
  return profile;
}

}  // namespace

TEST(KvSetup, WhatIsRememberedHasTheSameBits) {
  for (const std::string codec : {"tq2", "q8"}) {
    const Traits fresh = traits_of(codec, {});
    ASSERT_GT(fresh.prefix.size(), 1000u);
    CacheFolder cache;
    EXPECT_EQ(traits_of(codec, {}), fresh) << codec;
    EXPECT_TRUE(cache.logged(kMeasured)) << cache.last();
    ASSERT_EQ(cache.files().size(), 1u);
    EXPECT_NE(cache.last().find(cache.files()[0].string()), std::string::npos) << cache.last();
    EXPECT_EQ(traits_of(codec, {}), fresh) << codec;
    EXPECT_FALSE(cache.logged(kMeasured)) << cache.last();
    EXPECT_NE(cache.last().find(cache.files()[0].string()), std::string::npos) << cache.last();
  }
}

TEST(KvSetup, CodecsAndOptionsShareARecordAndMeasureWhatIsMissing) {
  CacheFolder cache;
  // By turns: known options of one codec must not stand for another's.
  const std::vector<std::pair<std::string, Options>> ways{{"tq3", {}}, {"tq2", {}}, {"tq3", {{"center", "off"}}}, {"rq3_iso", {{"seed", "99"}}}};
  std::vector<Traits> fresh;
  for (const auto& [codec, options] : ways) {
    fresh.push_back(traits_of(codec, options));
    EXPECT_TRUE(cache.logged(kMeasured)) << codec << cache.last();
  }
  EXPECT_EQ(cache.files().size(), 1u);
  for (size_t i = 0; i < ways.size(); ++i) {
    EXPECT_EQ(traits_of(ways[i].first, ways[i].second), fresh[i]) << i;
    EXPECT_FALSE(cache.logged(kMeasured)) << i << cache.last();
  }
  // Centers alone are there for any codec.
  traits_of("tq4", {{"self_check", "off"}});
  EXPECT_FALSE(cache.logged(kMeasured)) << cache.last();
  CacheFolder::use("");
  for (const size_t i : {size_t{1}, size_t{2}}) EXPECT_EQ(traits_of(ways[i].first, ways[i].second), fresh[i]) << "measured beside others " << i;
}

TEST(KvSetup, ADamagedRecordIsMeasuredAnew) {
  CacheFolder cache;
  const Traits fresh = traits_of("tq3", {});
  ASSERT_EQ(cache.files().size(), 1u);
  const fs::path path = cache.files()[0];
  const std::string good = read_bytes(path);
  for (const size_t at : {size_t{0}, size_t{9}, good.size() - 50}) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    std::ofstream(path, std::ios::binary) << bytes;
    cache.logged("");
    EXPECT_EQ(traits_of("tq3", {}), fresh) << at;
    EXPECT_TRUE(cache.logged(kMeasured)) << at;
    EXPECT_NE(cache.last().find("not used"), std::string::npos) << cache.last();
    EXPECT_EQ(read_bytes(path), good) << at;
  }
}

TEST(KvSetup, AnotherModelAndAnotherPrecisionHaveTheirOwn) {
  CacheFolder cache;
  const auto load_one = [](const std::string& model, const std::string& activations) {
    ASSERT_TRUE(load({.model = model, .activations = activations, .kv = "tq3"}));
  };
  load_one("models/turbo-mini-q1.gguf", "int8");
  load_one("models/turbo-nano-q1.gguf", "int8");
  EXPECT_EQ(cache.files().size(), 2u);
  load_one("models/turbo-mini-q1.gguf", "f32");
  EXPECT_EQ(cache.files().size(), 3u);
}

TEST(KvSetup, AFolderThatCannotBeWrittenIsNoError) {
  CacheFolder cache;
  CacheFolder::use("/proc/no/cache");
  EXPECT_GT(traits_of("tq3", {}).prefix.size(), 1000u);
  EXPECT_TRUE(cache.logged("nothing is kept")) << cache.last();
}

TEST(KvSetup, TwoProcessesLoadAtOnce) {
  CacheFolder cache;
  std::vector<pid_t> children;
  for (int i = 0; i < 2; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) ::_exit(traits_of("tq3", {}).prefix.size() > 1000 ? 0 : 1);
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(cache.files().size(), 1u);
  const Traits known = traits_of("tq3", {});
  EXPECT_FALSE(cache.logged(kMeasured)) << cache.last();
  CacheFolder::use("");
  EXPECT_EQ(traits_of("tq3", {}), known);
}

TEST(KvSetup, CentersComeFromANamedFile) {
  CacheFolder cache;
  const Traits fresh = traits_of("tq3", {});
  ASSERT_EQ(cache.files().size(), 1u);
  const turbo::testing::TempDir elsewhere;
  const fs::path file = elsewhere.path() / "mini.centers";
  fs::copy(cache.files()[0], file);
  CacheFolder::use("");
  cache.logged("");
  EXPECT_EQ(traits_of("tq3", {{"center", file.string()}}), fresh);
  EXPECT_FALSE(cache.logged(kMeasured)) << "the file says it all: " << cache.last();
  EXPECT_NE(cache.last().find(file.string()), std::string::npos) << cache.last();

  profile::Profile profile;
  profile.model.path = std::string(TURBO_SOURCE) + "/models/turbo-nano-q1.gguf";
  profile.tiers = {"cpu"};
  profile.kv.k = profile.kv.v = "tq3";
  for (const fs::path& wrong : {file, elsewhere.path() / "none.centers", elsewhere.path()}) {
    profile.kv.options = {{"center", wrong.string()}};
    const auto runtime = Runtime::load(profile);
    ASSERT_FALSE(runtime) << wrong;
    EXPECT_NE(runtime.status().message().find("kv.options.center: " + wrong.string()), std::string::npos) << runtime.status().message();
    EXPECT_NE(runtime.status().hint(), "");
  }
}

TEST(KvSetup, BytesATokenAreTheFormula) {
  struct Case { std::string k, v; uint32_t boundary; std::string boundary_k, boundary_v; };
  for (const Case& c : {Case{"tq4", "tq4", 0, "", ""}, {"rq3_iso", "tq2", 0, "", ""}, {"tq3", "tq3", 2, "q8", "tq4"}, {"rq4_planar", "rq4_planar", 1, "q8", "rq4_planar"},
                        {"q8", "rq3_planar", 2, "q8", "rq4_planar"}, {"tq4", "f16", 3, "q8", "f16"}}) {
    const auto runtime = load_with(c.k, c.v, {{"self_check", "off"}, {"boundary", std::to_string(c.boundary)}});
    ASSERT_TRUE(runtime);
    const model::ModelConfig& config = runtime->config();
    const uint64_t d = config.head_dim_k, protected_layers = std::min(config.n_layers, 2 * c.boundary);
    ASSERT_EQ(d % 32, 0u);
    const uint64_t plain = vector_bytes(c.k, d) + vector_bytes(c.v, d);
    const uint64_t boundary = protected_layers ? vector_bytes(c.boundary_k, d) + vector_bytes(c.boundary_v, d) : 0;
    EXPECT_EQ(runtime->memory().kv_bytes_per_token, config.n_kv_heads * ((config.n_layers - protected_layers) * plain + protected_layers * boundary))
        << c.k << " and " << c.v << " boundary " << c.boundary;
  }
}

TEST(KvSetup, TheCheckChoosesTheSameLayersEverywhere) {
  const std::vector<int32_t> prompt(70, 41);
  std::vector<int32_t> ids;
  uint64_t bytes = 0;
  for (const auto& [threads, isa] : {std::pair{1, ""}, {3, ""}, {2, "avx2"}}) {
    const auto runtime = load_with("tq2", "tq2", {}, threads, isa);
    ASSERT_TRUE(runtime);
    const std::vector<int32_t> found = greedy(*runtime, prompt, 40);
    if (ids.empty()) {
      ids = found;
      bytes = runtime->memory().kv_bytes_per_token;
    }
    EXPECT_EQ(found, ids) << threads << isa;
    EXPECT_EQ(runtime->memory().kv_bytes_per_token, bytes) << threads << isa;
  }
  const auto unchecked = load_with("tq2", "tq2", {{"self_check", "off"}, {"boundary", "0"}});
  ASSERT_TRUE(unchecked);
  EXPECT_GT(bytes, unchecked->memory().kv_bytes_per_token) << "2-bit keys of a small model need promotion";
}

namespace {

// Ids of a run with the first token's logprob, which follows from the prompt alone.
struct FirstToken {
  std::vector<int32_t> ids;
  float logprob = 0;
  bool operator==(const FirstToken&) const = default;
};

struct LogprobOutcome : Outcome {
  std::vector<float> logprobs;
  void on_tokens(std::span<const Token> tokens) override {
    Outcome::on_tokens(tokens);
    for (const Token& token : tokens) logprobs.push_back(token.logprob);
  }
};

std::vector<int32_t> story(uint32_t n, uint32_t seed) {
  std::vector<int32_t> ids;
  for (uint32_t i = 0; i < n; ++i) ids.push_back(static_cast<int32_t>(5 + (i * i * 7 + i * seed) % 4000));
  return ids;
}

FirstToken first_token(const std::string& codec, const std::string& prefill, int chunk) {
  ModelSetup setup{.prefill_chunk = chunk, .kv = codec};
  setup.tune = [&](profile::Profile& profile) {
    if (codec != "f16") profile.kv.options = {{"self_check", "off"}, {"boundary", "0"}, {"center", "off"}, {"prefill", prefill}};
  };
  const auto runtime = load(setup);
  if (!runtime) return {};
  auto run = std::make_shared<LogprobOutcome>();
  Request request;
  request.prompt = story(230, 3);
  request.max_tokens = 40;
  request.sampling.temperature = 0;
  request.logprobs = true;
  EXPECT_TRUE(runtime->engine().submit(std::move(request), run));
  run->wait();
  EXPECT_TRUE(run->finish.status) << run->finish.status.message();
  return {run->ids, run->logprobs.empty() ? 1.0f : run->logprobs.front()};
}

}  // namespace

TEST(KvSetup, ExactPromptsReadNoPackedKeys) {
  const float plain = first_token("f16", "", 256).logprob;
  EXPECT_EQ(first_token("tq2", "exact", 256).logprob, plain) << "the prompt is one chunk";
  EXPECT_NE(first_token("tq2", "consistent", 256).logprob, plain);
  EXPECT_NE(first_token("tq2", "exact", 128).logprob, plain) << "the second chunk reads the first packed";
  EXPECT_EQ(first_token("tq2", "exact", 64), first_token("tq2", "consistent", 256)) << "a chunk inside a block has nothing packed";
}

// Layers of one form in the same pool, and every prompt in the same steps.
TEST(KvSetup, ExactPromptsOfManyRequestsHaveRoom) {
  ModelSetup setup{.prefill_chunk = 256, .kv = "rq3_iso"};
  setup.tune = [](profile::Profile& profile) {
    profile.kv.options = {{"self_check", "off"}, {"boundary", "1"}, {"prefill", "exact"}};
    profile.engine.max_step_tokens = 512;
  };
  const auto runtime = load(setup);
  ASSERT_TRUE(runtime);
  std::vector<std::shared_ptr<Outcome>> runs;
  for (uint32_t i = 0; i < 8; ++i) runs.push_back(submit_greedy(*runtime, story(300 + 40 * i, i), 5));
  for (const auto& run : runs) {
    run->wait();
    EXPECT_TRUE(run->finish.status) << run->finish.status.message();
    EXPECT_EQ(run->ids.size(), 5u);
    EXPECT_EQ(run->finish.preemptions, 0u);
  }
}

TEST(KvSetup, WrongOptionsAreRefused) {
  for (const auto& [options, part] : {std::pair{Options{{"boundary", "many"}}, "kv.options.boundary"}, {Options{{"prefill", "often"}}, "kv.options.prefill"},
                                      {Options{{"bogus", "1"}}, "bogus"}, {Options{{"boundary", "1"}, {"promote_k", "nothing"}}, "nothing"},
                                      {Options{{"promote_v", "nothing"}}, "nothing"}, {Options{{"promote_k", "tq2"}}, "no more than the 3.25"},
                                      {Options{{"boundary", "0"}, {"self_check", "off"}, {"promote_k", "nope"}}, "nope"}}) {
    profile::Profile profile = nano("tq3", "tq3");
    profile.kv.options = options;
    LoadStage stage = LoadStage::weights;
    const auto runtime = Runtime::load(profile, {}, &stage);
    ASSERT_FALSE(runtime) << part;
    EXPECT_EQ(runtime.status().code(), Code::invalid_argument) << part;
    EXPECT_TRUE(stage == LoadStage::settings || stage == LoadStage::plugins) << part << ": found before weights are read";
    EXPECT_NE(runtime.status().message().find(part), std::string::npos) << runtime.status().message();
  }
}

TEST(KvSetup, UnknownOptionsListTheCachesAndTheCodecs) {
  const auto refused = [](const std::string& k, const std::string& v, const Options& options, const Options& k_options, const Options& v_options) {
    profile::Profile profile = nano(k, v);
    profile.kv.options = options;
    profile.kv.k_options = k_options;
    profile.kv.v_options = v_options;
    const auto planned = plan(profile);
    return planned ? std::string("no error") : planned.status().message() + " | " + planned.status().hint();
  };
  EXPECT_EQ(refused("tq3", "tq3", {{"snks", "1"}}, {}, {}),
            "kv.options: unknown option 'snks'; known: boundary, center, group, mix, prefill, promote_k, promote_v, rot, scale, seed, self_check, "
            "sinks | did you mean 'sinks'?");
  EXPECT_EQ(refused("f16", "f16", {{"bondary", "1"}}, {}, {}),
            "kv.options: unknown option 'bondary'; known: boundary, center, prefill, promote_k, promote_v, self_check | did you mean 'boundary'?");
  EXPECT_EQ(refused("q8", "tq3", {}, {{"scale", "unb"}}, {}), "kv.k_options: unknown option 'scale'; known: rotate | remove the option");
  EXPECT_EQ(refused("q8", "tq3", {}, {}, {{"self_check", "off"}}),
            "kv.v_options: 'self_check' is an option of the whole cache, not of a codec | write kv.options.self_check");
  EXPECT_NE(refused("fp8_e4m3", "tq3", {{"scale", "head"}}, {}, {}).find("a value for this side alone goes into kv.v_options"), std::string::npos);
  EXPECT_EQ(refused("fp8_e4m3", "tq3", {{"scale", "head"}}, {}, {{"scale", "f32"}}), "no error");
}

// fp8 with a scale a row, and values of 3 bits whose scale is of four bytes: one key, two meanings.
TEST(KvSetup, EachSideTakesItsOwnOptions) {
  const auto bytes = [](const Options& options, const Options& k_options, const Options& v_options) {
    profile::Profile profile = nano("fp8_e4m3", "tq3");
    profile.kv.options = options;
    profile.kv.options["self_check"] = "off";
    profile.kv.options["boundary"] = "0";
    profile.kv.k_options = k_options;
    profile.kv.v_options = v_options;
    const auto planned = plan(profile);
    EXPECT_TRUE(planned) << planned.status().message();
    return planned ? planned->json["kv"]["bytes_per_token"].get<uint64_t>() : 0;
  };
  const auto config = Runtime::load(nano("f16", "f16"));
  ASSERT_TRUE(config);
  const uint64_t vectors = uint64_t{(*config)->config().n_layers} * (*config)->config().n_kv_heads;
  const uint64_t plain = bytes({}, {}, {});
  EXPECT_EQ(bytes({}, {{"scale", "head"}}, {}), plain + 2 * vectors);
  EXPECT_EQ(bytes({}, {}, {{"scale", "f32"}}), plain + 2 * vectors);
  EXPECT_EQ(bytes({}, {{"scale", "head"}}, {{"scale", "f32"}}), plain + 4 * vectors);
  EXPECT_EQ(bytes({{"scale", "head"}}, {}, {{"scale", "f32"}}), plain + 4 * vectors) << "a side's own goes before the shared one";
  EXPECT_EQ(bytes({{"sinks", "8"}}, {}, {}), plain) << "only one of the two codecs has sinks";
}

TEST(KvSetup, ThePlanTakesWhatLoadingTakes) {
  for (const char* codec : {"f16", "tq4"})
    for (const int max_running : {1, 4, 64}) {
      profile::Profile profile = nano(codec, codec);
      profile.model.context = 512;
      profile.engine.max_running = max_running;
      profile.kv.pool_bytes = 24 << 20;
      profile.kv.options = {{"self_check", "off"}, {"boundary", "0"}};
      const auto planned = plan(profile);
      ASSERT_TRUE(planned) << planned.status().message();
      const auto runtime = Runtime::load(profile);
      ASSERT_TRUE(runtime) << runtime.status().message();
      EXPECT_EQ(planned->json["kv"]["pool_bytes"].get<uint64_t>(), (*runtime)->memory().kv_pool_bytes) << codec << max_running;
      EXPECT_EQ(planned->json["kv"]["max_running"].get<uint32_t>(), (*runtime)->engine().limits().max_running);
      EXPECT_LE((*runtime)->memory().kv_pool_bytes, profile.kv.pool_bytes);
    }
}

TEST(KvSetup, ThePlanSaysWhatTheCheckMayAdd) {
  const auto kv = [](const std::string& codec, const Options& options) {
    profile::Profile profile = nano(codec, codec);
    profile.kv.options = options;
    const auto planned = plan(profile);
    EXPECT_TRUE(planned) << planned.status().message();
    return planned ? planned->json["kv"] : nlohmann::ordered_json();
  };
  const auto checked = kv("tq2", {});
  EXPECT_TRUE(checked["self_check_may_promote"].get<bool>());
  EXPECT_GT(checked["bytes_per_token_promoted"].get<uint64_t>(), checked["bytes_per_token"].get<uint64_t>());
  const auto runtime = load_with("tq2", "tq2", {});
  ASSERT_TRUE(runtime);
  profile::Profile same;
  same.model.path = runtime->file().path();
  same.tiers = {"cpu"};
  same.kv.k = same.kv.v = "tq2";
  const auto planned = plan(same);
  ASSERT_TRUE(planned);
  const uint64_t found = runtime->memory().kv_bytes_per_token;
  EXPECT_GE(found, planned->json["kv"]["bytes_per_token"].get<uint64_t>());
  EXPECT_LE(found, planned->json["kv"]["bytes_per_token_promoted"].get<uint64_t>());
  EXPECT_EQ(planned->json["kv"]["model_context"], runtime->config().context_length);
  for (const auto& settled : {kv("tq2", {{"self_check", "off"}}), kv("tq4", {}), kv("f16", {}), kv("tq2", {{"boundary", "4096"}})}) {
    EXPECT_FALSE(settled["self_check_may_promote"].get<bool>());
    EXPECT_EQ(settled["bytes_per_token_promoted"], settled["bytes_per_token"]);
  }
}

}  // namespace turbo::engine::testing
