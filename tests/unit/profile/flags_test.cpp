// Command-line flags, their values, and environment variables.
#include <map>
#include <set>

#include "support.h"

namespace turbo::profile {
namespace {

Environment fake(std::map<std::string, std::string> variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto it = variables.find(name);
    if (it == variables.end()) return std::nullopt;
    return it->second;
  };
}

Result<Profile> parse_environment(const std::map<std::string, std::string>& variables,
                                  std::string_view text = "schema: 1\n") {
  TURBO_ASSIGN(std::vector<Override> overrides, environment_overrides(fake(variables)));
  return parse(text, overrides);
}

TEST(Flags, TheTableIsConsistent) {
  std::set<std::string> names;
  for (const Flag& flag : flag_table()) {
    EXPECT_TRUE(names.insert(flag.name).second) << flag.name;
    EXPECT_TRUE(flag.name.starts_with("--")) << flag.name;
    EXPECT_FALSE(flag.help.empty()) << flag.name;
    std::string entry;
    EXPECT_TRUE(flag.key.empty() || find_key(flag.key) || find_map_key(flag.key, entry)) << flag.name;
    const bool does_something = !flag.key.empty() || flag.command || flag.translate || !flag.no_effect.empty();
    EXPECT_TRUE(does_something) << flag.name;
  }
}

TEST(Flags, SharedOptions) {
  const auto p = parse_flags({{"--model", "/m.gguf"},
                              {"--threads", "4"},
                              {"--context", "4096"},
                              {"--kv-codec", "tq4"},
                              {"--drafter", "phantom"},
                              {"--draft-tokens", "6"},
                              {"--log-level", "debug"},
                              {"--log-format", "json"},
                              {"--set", "kv.options.sinks=64"},
                              {"--set", "sampler.seed=7"},
                              {"--json", ""},
                              {"--quiet", ""},
                              {"--profile", "x"}});
  ASSERT_TRUE(p.is_ok()) << what(p);
  EXPECT_EQ(p->model.path, "/m.gguf");
  EXPECT_EQ(p->compute.threads, 4);
  EXPECT_EQ(p->model.context, 4096u);
  EXPECT_EQ(p->kv.k + p->kv.v, "tq4tq4");
  EXPECT_EQ(p->drafter.name, "phantom");
  EXPECT_EQ(p->drafter.draft_tokens, 6);
  EXPECT_EQ(p->log.level + p->log.format, "debugjson");
  EXPECT_EQ(p->kv.options.at("sinks"), "64");
  EXPECT_EQ(*p->sampler.seed, 7);
}

TEST(Flags, MessagesNameFlagValueAndForms) {
  EXPECT_SAYS(parse_flags({{"--port", "http"}}),
              "--port: server.port: expected a whole number from 0 to 65535 but found 'http'");
  EXPECT_SAYS(parse_flags({{"--threads", "-2"}}),
              "--threads: compute.threads: expected a whole number from 1 to 1024, or auto");
  EXPECT_SAYS(parse_flags({{"--set", "port"}}), "--set: expected key.path=value but found 'port'");
  EXPECT_SAYS(parse_flags({{"--set", "=1"}}), "--set: expected key.path=value");
  EXPECT_SAYS(parse_flags({{"--set", "kv.options=1"}}), "name the entry: kv.options.NAME=VALUE");
  EXPECT_SAYS(parse_flags({{"--set", "server.web_page=yes"}}),
              "--set server.web_page: server.web_page: expected true or false");
}

TEST(Flags, UnknownAbbreviatedAndGone) {
  for (const char* bad : {"0", "1025"})
    EXPECT_SAYS(parse_flags({{"--threads", bad}}), "expected a whole number from 1 to 1024, or auto");
  EXPECT_EQ(parse_flags({{"--threads", "1024"}})->compute.threads, 1024);
  EXPECT_EQ(parse_flags({{"--threads", "auto"}})->compute.threads, 0);
  EXPECT_SAYS(parse_flags({{"--context", "0"}}), "or auto");
  EXPECT_SAYS(unknown_flag("--thread"), "did you mean --threads?");
  EXPECT_SAYS(unknown_flag("--kv-codek"), "did you mean '--kv-codec'?");
  EXPECT_SAYS(unknown_flag("--speculative-ngram-max"),
              "names cannot be shortened; did you mean --speculative-ngram-max-trie-depth");
  EXPECT_SAYS(unknown_flag("--zebra-crossing-everywhere"), "unknown option");
  const std::vector<std::string> own{"--prompt"};
  EXPECT_SAYS(unknown_flag("--promt", own), "did you mean '--prompt'?");
  for (const char* gone : {"--speculative-ngram-min-match-window-size", "--speculative-ngram-max-match-window-size"})
    EXPECT_SAYS(flag_to_overrides(gone, "1"), "it no longer exists: every suffix length is tried");
  EXPECT_SAYS(flag_to_overrides("--speculative-ngram-external-sam-budget", "1"), "it does not exist");
  EXPECT_SAYS(flag_to_overrides("--speculative-simulate-acc-len", "3"), "simulated acceptance does not exist");
}

TEST(Flags, Algorithms) {
  const std::pair<const char*, const char*> drafters[] = {
      {"NGRAM", "ngram"},       {"PHANTOM", "phantom"}, {"EAGLE", "eagle"},           {"NEXTN", "eagle"},
      {"EAGLE3", "eagle3"},     {"P_EAGLE", "eagle3"},  {"STANDALONE", "standalone"}, {"MEDUSA", "medusa"},
      {"P_CASCADE", "cascade"}, {"CHIMERA", "chimera"}, {"SELF_SPEC", "self_spec"}};
  for (const auto& [algorithm, drafter] : drafters) {
    FlagList flags{{"--speculative-algorithm", algorithm}};
    if (find_drafter(drafter)->needs_model) flags.push_back({"--speculative-draft-model-path", "/d"});
    const auto p = parse_flags(flags);
    ASSERT_TRUE(p.is_ok()) << algorithm << what(p);
    EXPECT_EQ(p->drafter.name, drafter);
    EXPECT_EQ(p->drafter.options.contains("mode"), std::string(algorithm) == "P_EAGLE");
  }
  EXPECT_SAYS(parse_flags({{"--speculative-algorithm", "eagle3"}}), "but found 'eagle3' | did you mean 'EAGLE3'?");
  EXPECT_SAYS(parse_flags({{"--speculative-algorithm", "LOOKAHEAD"}}),
              "--speculative-algorithm: expected one of NGRAM, PHANTOM");
  EXPECT_SAYS(parse_flags({{"--speculative-algorithm", "SAGUARO"}}), "cannot be chosen alone | choose one of NGRAM");
  EXPECT_SAYS(parse_flags({{"--speculative-algorithm", "SAGUARO"}}), "add --ssd-enable");
  EXPECT_SAYS(check_drafter_weights(parse_flags({{"--speculative-algorithm", "EAGLE3"}})->drafter), "drafter.name: drafter 'eagle3' needs weights");
  EXPECT_SAYS(parse_flags({{"--ssd-enable", ""}}),
              "--ssd-enable: drafter.outcome_cache: expected a drafter to wrap but none is selected");
  const auto wrapped = parse_flags({{"--speculative-algorithm", "NGRAM"}, {"--ssd-enable", ""}});
  EXPECT_TRUE(wrapped->drafter.outcome_cache);
  EXPECT_TRUE(wrapped->adjustments.empty()) << "that it is experimental is the plugin's to say";
}

TEST(Flags, Sizes) {
  const FlagList eagle{{"--speculative-algorithm", "EAGLE3"}, {"--speculative-draft-model", "/d"}};
  const auto with = [&](FlagList more) {
    FlagList all = eagle;
    all.insert(all.end(), more.begin(), more.end());
    return parse_flags(all);
  };
  EXPECT_EQ(with({{"--speculative-num-steps", "3"}})->drafter.draft_tokens, 4);
  const auto tree = with(
      {{"--speculative-num-steps", "5"}, {"--speculative-eagle-topk", "4"}, {"--speculative-num-draft-tokens", "8"}});
  EXPECT_EQ(tree->drafter.draft_tokens, 8);
  EXPECT_EQ(tree->drafter.topk, 4);
  EXPECT_SAYS(with({{"--speculative-eagle-topk", "4"}}),
              "--speculative-eagle-topk: drafter.topk: 4 branches per step need drafter.steps");
  EXPECT_TRUE(adjusted(*with({{"--speculative-num-steps", "3"}, {"--speculative-num-draft-tokens", "8"}}),
                       "set to 4 instead of 8"));
  for (const char* bad : {"1", "65", "x"})
    EXPECT_SAYS(with({{"--speculative-num-draft-tokens", bad}}),
                "--speculative-num-draft-tokens: drafter.draft_tokens: expected a whole number from 2 to 64")
        << bad;
  EXPECT_SAYS(with({{"--speculative-accept-threshold-single", "0.5"}}),
              "--speculative-accept-threshold-single: drafter.accept_threshold_single: 0.5 can change the output");
  EXPECT_SAYS(with({{"--speculative-accept-threshold-acc", "1.5"}}), "expected a number from 0 to 1");
  EXPECT_TRUE(with({{"--speculative-accept-threshold-acc", "0.5"}, {"--set", "drafter.lossless=false"}}).is_ok());
  EXPECT_SAYS(with({{"--speculative-token-map", "/missing/map"}}),
              "--speculative-token-map: drafter.token_map: expected a file but '/missing/map' is none");
}

TEST(Flags, OfADrafterThatIsNotSelectedWarn) {
  const auto p =
      parse_flags({{"--speculative-algorithm", "NGRAM"}, {"--phantom-num-ghosts", "4"}, {"--medusa-topk", "99"}});
  ASSERT_TRUE(p.is_ok()) << what(p);
  EXPECT_TRUE(
      adjusted(*p, "--phantom-num-ghosts has no effect: it belongs to drafter phantom, and 'ngram' is selected"));
  EXPECT_TRUE(p->drafter.options.empty());
  const auto off = parse_flags({{"--draft-tokens", "5"},
                                {"--speculative-num-steps", "3"},
                                {"--phantom-num-ghosts", "2"},
                                {"--set", "drafter.ghosts=2"}});
  ASSERT_TRUE(off.is_ok()) << what(off);
  EXPECT_TRUE(adjusted(*off, "--draft-tokens has no effect: no drafter is selected"));
  EXPECT_EQ(off->drafter.draft_tokens, 0);
  EXPECT_TRUE(off->drafter.options.empty());
  EXPECT_TRUE(adjusted(*parse_flags({{"--drafter", "ngram"}, {"--speculative-eagle-topk", "2"}}),
                       "--speculative-eagle-topk has no effect"));
  for (const char* key : {"drafter.model", "drafter.token_map"}) {
    const auto path = parse_flags({{"--drafter", "ngram"}, {"--set", std::string(key) + "=somewhere"}});
    ASSERT_TRUE(path.is_ok()) << what(path);
    EXPECT_TRUE(adjusted(*path, fmt::format("--set {} has no effect: drafter 'ngram' does not have it", key)));
    EXPECT_TRUE(path->drafter.model.empty() && path->drafter.token_map.empty());
  }
}

// Whatever a row reads out of a profile it takes back: a setting without effect is undone that way.
TEST(Keys, EveryRowTakesItsOwnDefault) {
  for (const KeySpec& key : key_table()) {
    if (!key.get) continue;  // kv.codec: a way to write two others
    Profile p;
    EXPECT_NO_THROW(key.set(p, key.get(Profile{}))) << key.path;
    EXPECT_EQ(key.get(p), key.get(Profile{})) << key.path;
  }
}

TEST(Flags, AnotherDrafterDropsTheFilesSettings) {
  const char* file = "drafter: { name: phantom, draft_tokens: 8, ghosts: 4, adaptive: false }\n";
  const auto off = parse_flags({{"--drafter", "off"}}, file);
  ASSERT_TRUE(off.is_ok()) << what(off);
  EXPECT_EQ(off->drafter.name, "off");
  EXPECT_TRUE(adjusted(*off, "--drafter selects drafter 'off': the profile's settings for 'phantom' are not used"));
  const auto ngram = parse_flags({{"--set", "drafter.capacity=1000"}, {"--drafter", "ngram"}}, file);
  ASSERT_TRUE(ngram.is_ok()) << what(ngram);
  EXPECT_EQ(ngram->drafter.options.size(), 1u);
  EXPECT_EQ(ngram->drafter.draft_tokens, 0);
  EXPECT_FALSE(ngram->drafter.adaptive);
  EXPECT_EQ(parse_flags({{"--drafter", "phantom"}}, file)->drafter.options.at("ghosts"), "4");
}

TEST(Flags, RangesOfDrafterFlags) {
  const auto phantom = [](const char* flag, const char* value) {
    return parse_flags({{"--drafter", "phantom"}, {flag, value}});
  };
  EXPECT_EQ(phantom("--phantom-num-ghosts", "8")->drafter.options.at("ghosts"), "8");
  for (const char* bad : {"0", "9", "two", "1.5", ""})
    EXPECT_SAYS(phantom("--phantom-num-ghosts", bad),
                "--phantom-num-ghosts: drafter.options.ghosts: expected a whole number from 1 to 8")
        << bad;
  EXPECT_SAYS(phantom("--phantom-num-buffers", "5"), "from 1 to 4");
  const auto ngram = [](const char* flag, const char* value) {
    return parse_flags({{"--drafter", "ngram"}, {flag, value}});
  };
  EXPECT_SAYS(ngram("--speculative-ngram-max-trie-depth", "1"), "from 2 to");
  EXPECT_SAYS(ngram("--speculative-ngram-match-type", "bfs"), "expected one of BFS, PROB");
  EXPECT_SAYS(ngram("--speculative-ngram-min-bfs-breadth", "0"), "from 1 to");
  EXPECT_SAYS(ngram("--speculative-ngram-max-bfs-breadth", "0"), "from 1 to");
  EXPECT_SAYS(ngram("--speculative-ngram-capacity", "10"), "at least 19 are needed");
  const auto medusa = [](const char* flag, const char* value) {
    return parse_flags({{"--drafter", "medusa"}, {"--medusa-model-path", "/m"}, {flag, value}});
  };
  EXPECT_EQ(medusa("--medusa-num-heads", "5")->drafter.model, "/m");
  EXPECT_SAYS(medusa("--medusa-num-heads", "0"), "from 1 to 64");
  EXPECT_SAYS(medusa("--medusa-topk", "11"), "from 1 to 10");
  EXPECT_SAYS(medusa("--medusa-tree-structure", "x"), "linear, mc_sim_63, auto");
  EXPECT_EQ(medusa("--medusa-typical-acceptance", "")->drafter.options.at("typical_acceptance"), "draft");
  EXPECT_SAYS(medusa("--medusa-posterior-threshold", "0"), "above 0 and at most 1");
  EXPECT_SAYS(medusa("--medusa-posterior-alpha", "2"), "above 0 and at most 1");
  EXPECT_SAYS(medusa("--medusa-paltrow-heads", "99"),
              "--medusa-paltrow-heads: drafter.options.screen_heads: expected auto, none, or head indices");
  const auto chimera = [](const char* flag, const char* value) {
    return parse_flags({{"--drafter", "chimera"}, {"--speculative-draft-model", "/m"}, {flag, value}});
  };
  EXPECT_EQ(chimera("--chimera-num-steps", "6")->drafter.steps, 6);
  EXPECT_TRUE(chimera("--chimera-ssd-enable", "")->drafter.outcome_cache);
  EXPECT_SAYS(chimera("--chimera-level", "4"),
              "--chimera-level: drafter.options.level: expected a whole number from 1 to 3");
}

TEST(Flags, KvCacheDtype) {
  const auto codec = [](const char* value) { return parse_flags({{"--kv-cache-dtype", value}}); };
  EXPECT_EQ(codec("auto")->kv.k, "f16");
  EXPECT_EQ(codec("bfloat16")->kv.k, "bf16");
  for (const char* same :
       {"fp8_e5m2", "fp8_e4m3", "bf16", "tq4", "tq3", "tq2", "rq3_planar", "rq4_planar", "rq3_iso", "rq4_iso"}) {
    EXPECT_EQ(codec(same)->kv.k, same);
    EXPECT_EQ(codec(same)->kv.v, same);
  }
  EXPECT_SAYS(codec("fp4_e2m1"), "--kv-cache-dtype: there is no codec 'fp4_e2m1' | choose one of auto, bf16");
}

TEST(Flags, AcceptedWithoutEffect) {
  const FlagList inert{{"--trust-remote-code", ""},
                       {"--disable-overlap-schedule", ""},
                       {"--disable-cuda-graph", ""},
                       {"--dtype", "bfloat16"},
                       {"--mem-fraction-static", "0.8"},
                       {"--load-format", "gguf"},
                       {"--attention-backend", "triton"},
                       {"--speculative-draft-model-revision", "main"},
                       {"--speculative-draft-load-format", "auto"},
                       {"--speculative-draft-model-quantization", "unquant"},
                       {"--speculative-attention-mode", "decode"},
                       {"--speculative-draft-attention-backend", "triton"},
                       {"--medusa-no-step0", ""},
                       {"--sam-enabled", "auto"},
                       {"--gtt-pool-mb", "4096"},
                       {"--paltrow-pin-memory", ""},
                       {"--no-paltrow-pin-memory", ""}};
  for (const auto& [name, value] : inert) {
    const auto p = parse_flags({{name, value}});
    ASSERT_TRUE(p.is_ok()) << what(p);
    EXPECT_EQ(to_json_text(*p), to_json_text(*parse("schema: 1\n"))) << name;
    EXPECT_EQ(p->adjustments.size(), 1u) << name;
    EXPECT_TRUE(adjusted(*p, name)) << name;
  }
  EXPECT_TRUE(parse_flags({{"--trust-remote-code", "false"}})->adjustments.empty());
  EXPECT_SAYS(parse_flags({{"--trust-remote-code", "maybe"}}), "--trust-remote-code: expected no value, true or false");
  EXPECT_SAYS(parse_flags({{"--load-format", "pickle"}}),
              "--load-format: expected one of auto, gguf, safetensors but found 'pickle'");
  EXPECT_SAYS(parse_flags({{"--dtype", "int3"}}), "--dtype: expected one of auto, half");
  EXPECT_SAYS(parse_flags({{"--mem-fraction-static", "1.5"}}),
              "--mem-fraction-static: expected a number above 0 and at most 1");
  EXPECT_SAYS(parse_flags({{"--sam-enabled", "x"}}), "--sam-enabled: expected one of auto, true, false");
  EXPECT_SAYS(parse_flags({{"--attention-backend", "x"}}),
              "--attention-backend: expected one of hip, generic, cpu, triton");
  EXPECT_SAYS(parse_flags({{"--speculative-attention-mode", "x"}}), "expected one of prefill, decode");
}

TEST(Flags, General) {
  const auto p = parse_flags({{"--model-path", "/m"},
                              {"--attention-backend", "generic"},
                              {"--max-running-requests", "7"},
                              {"--host", "127.0.0.2"},
                              {"--port", "8081"},
                              {"--api-key", "a,b"},
                              {"--served-model-name", "n"}});
  ASSERT_TRUE(p.is_ok()) << what(p);
  EXPECT_EQ(p->model.path, "/m");
  EXPECT_EQ(*p->require, "generic");
  EXPECT_EQ(p->engine.max_running, 7);
  EXPECT_EQ(p->server.port, 8081);
  EXPECT_EQ(p->server.api_keys.size(), 2u);
  EXPECT_EQ(p->model.name, "n");
}

TEST(Flags, KeysAreNotLostToAnEmptyList) {
  const auto both = parse_flags({{"--api-key", "secret"}, {"--set", "server.api_keys=[]"}});
  EXPECT_SAYS(both, "--set server.api_keys: server.api_keys: an empty list contradicts --api-key");
  EXPECT_EQ(parse_flags({{"--set", "server.api_keys=[]"}, {"--api-key", "secret"}})->server.api_keys.size(), 1u);
  const auto file = parse_flags({{"--set", "server.api_keys="}}, "server: { api_keys: [k] }\n");
  ASSERT_TRUE(file.is_ok()) << what(file);
  EXPECT_TRUE(file->server.api_keys.empty());
  EXPECT_TRUE(adjusted(*file, "removes the keys of /nowhere/p.yaml:1:11: clients need none"));
  EXPECT_TRUE(parse_flags({{"--set", "server.api_keys=[]"}})->adjustments.empty());
}

TEST(EnvironmentVariables, TwinOfEveryFlag) {
  EXPECT_EQ(environment_name("--kv-codec"), "TURBO_KV_CODEC");
  EXPECT_EQ(environment_name("--no-paltrow-pin-memory"), "TURBO_NO_PALTROW_PIN_MEMORY");
  const auto p = parse_environment({{"TURBO_THREADS", "3"},
                                    {"TURBO_KV_CACHE_DTYPE", "tq3"},
                                    {"TURBO_PORT", ""},
                                    {"TURBO_SET", "sampler.seed=4;kv.options.sinks=8\nlog.level=warn"},
                                    {"TURBO_PROFILE", "x"}});
  ASSERT_TRUE(p.is_ok()) << what(p);
  EXPECT_EQ(p->compute.threads, 3);
  EXPECT_EQ(p->kv.k, "tq3");
  EXPECT_EQ(p->server.port, 30000);
  EXPECT_EQ(*p->sampler.seed, 4);
  EXPECT_EQ(p->kv.options.at("sinks"), "8");
  EXPECT_EQ(p->log.level, "warn");
  EXPECT_SAYS(parse_environment({{"TURBO_THREADS", "many"}}),
              "TURBO_THREADS: compute.threads: expected a whole number");
  EXPECT_SAYS(parse_environment({{"TURBO_SPECULATIVE_ALGORITHM", "x"}}),
              "TURBO_SPECULATIVE_ALGORITHM: expected one of");
}

TEST(EnvironmentVariables, TheNativeNameBeatsTheCompatibleOne) {
  const auto kv = parse_environment({{"TURBO_KV_CODEC", "tq4"}, {"TURBO_KV_CACHE_DTYPE", "fp8_e4m3"}});
  EXPECT_EQ(kv->kv.k, "tq4");
  EXPECT_TRUE(adjusted(*kv, "TURBO_KV_CACHE_DTYPE has no effect: TURBO_KV_CODEC sets kv.codec"));
  const auto drafter = parse_environment({{"TURBO_SPECULATIVE_ALGORITHM", "PHANTOM"}, {"TURBO_DRAFTER", "ngram"}});
  EXPECT_EQ(drafter->drafter.name, "ngram");
  EXPECT_TRUE(adjusted(*drafter, "TURBO_SPECULATIVE_ALGORITHM has no effect"));
  const auto set = parse_environment({{"TURBO_SET", "kv.codec=q8"}, {"TURBO_KV_CACHE_DTYPE", "tq4"}});
  EXPECT_EQ(set->kv.v, "q8");
  const auto same = parse_environment({{"TURBO_KV_CODEC", "f16"}, {"TURBO_KV_CACHE_DTYPE", "auto"}});
  EXPECT_EQ(same->kv.k, "f16");
  EXPECT_TRUE(same->adjustments.empty()) << "they say the same";
  EXPECT_EQ(parse_environment({{"TURBO_KV_CACHE_DTYPE", "tq4"}})->kv.k, "tq4");
}

TEST(EnvironmentVariables, CommandLineBeatsEnvironmentBeatsFile) {
  auto overrides = *environment_overrides(fake({{"TURBO_THREADS", "3"}, {"TURBO_CONTEXT", "2048"}}));
  const auto line = *flag_to_overrides("--threads", "5");
  overrides.insert(overrides.end(), line.begin(), line.end());
  const auto p = parse("compute: { threads: 1 }\nmodel: { context: 1024, name: n }\n", overrides);
  EXPECT_EQ(p->compute.threads, 5);
  EXPECT_EQ(p->model.context, 2048u);
  EXPECT_EQ(p->model.name, "n");
}

TEST(EnvironmentVariables, OfTheCompatibleEngine) {
  EXPECT_SAYS(parse_environment({{"SGLANG_SIMULATE_ACC_LEN", "3"}}),
              "SGLANG_SIMULATE_ACC_LEN='3': simulated acceptance does not exist");
  EXPECT_TRUE(parse_environment({{"SGLANG_SIMULATE_ACC_LEN", "-1"}}).is_ok());
  const char* ngram = "drafter: { name: ngram }\n";
  EXPECT_SAYS(parse_environment({{"SGLANG_NGRAM_FORCE_GREEDY_VERIFY", "1"}}, ngram),
              "greedy verification changes the output");
  EXPECT_TRUE(parse_environment({{"SGLANG_NGRAM_FORCE_GREEDY_VERIFY", "0"}}, ngram)->adjustments.empty());
  const auto lossy =
      parse_environment({{"SGLANG_NGRAM_FORCE_GREEDY_VERIFY", "1"}}, "drafter: { name: ngram, lossless: false }\n");
  EXPECT_TRUE(adjusted(*lossy, "force_greedy_verify has no effect"));
  EXPECT_TRUE(lossy->drafter.options.empty());
  EXPECT_TRUE(adjusted(*parse_environment({{"SGLANG_KV_CACHE_TURBOQUANT_QJL", "1"}}), "QJL"));
  EXPECT_TRUE(parse_environment({{"SGLANG_KV_CACHE_TURBOQUANT_ROPE", "0"}})->adjustments.empty());
  EXPECT_TRUE(adjusted(*parse_environment({{"SGLANG_ENABLE_SPEC_V2", "1"}}), "SGLANG_ENABLE_SPEC_V2 has no effect"));
}

}  // namespace
}  // namespace turbo::profile
