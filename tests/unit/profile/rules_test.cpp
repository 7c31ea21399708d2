// Unknown keys, contradictions, adjustments and the rules between keys.
#include "profile/keys.h"
#include "support.h"

namespace turbo::profile {
namespace {

TEST(UnknownKeys, SuggestTheNearest) {
  EXPECT_SAYS(parse("server:\n  prot: 1\n"),
              "/nowhere/p.yaml:2:3: 'server.prot': unknown key | did you mean 'server.port'?");
  EXPECT_SAYS(parse("modle: {}\n"), "p.yaml:1:1: 'modle': unknown key | did you mean 'model'?");
  EXPECT_SAYS(parse("port: 1\n"), "did you mean 'server.port'?");
  EXPECT_SAYS(parse("drafter: { name: phantom, ghost: 1 }\n"), "did you mean 'drafter.ghosts'?");
  EXPECT_SAYS(parse("kv_cache_dtype: tq4\n"), "in a profile this is 'kv.codec'");
  EXPECT_SAYS(parse("drafter: { speculative-num-steps: 3 }\n"), "in a profile this is 'drafter.steps'");
  EXPECT_SAYS(parse("server: { zebra: 1 }\n"), "keys under server: host, port");
  EXPECT_SAYS(parse("zebra_crossing: 1\n"), "keys at the top: schema, model");
  EXPECT_SAYS(parse("include: other.yaml\n"), "unknown key");
  EXPECT_SAYS(parse("server.port: 1\n"), "nested maps, not joined with points");
  EXPECT_SAYS(parse("kv: { options.sinks: 1 }\n"), "unknown key");
  EXPECT_SAYS(parse("model: { path: { a: 1 } }\n"), "expected a path but found a map");
  EXPECT_SAYS(parse(std::string(1000, 'x') + ": 1\n"), "unknown key");
  EXPECT_SAYS(parse("schema: 1\n", {{"server.prot", "1", "--set server.prot"}}),
              "--set server.prot: 'server.prot': unknown key | did you mean 'server.port'?");
}

TEST(KvCodec, SetsBothSidesAndEachSideOverridesIt) {
  const auto both = parse("kv: { codec: q8 }\n");
  EXPECT_EQ(both->kv.k, "q8");
  EXPECT_EQ(both->kv.v, "q8");
  const auto apart = parse("kv: { k: q8, v: tq3 }\n");
  EXPECT_EQ(apart->kv.k, "q8");
  EXPECT_EQ(apart->kv.v, "tq3");
  EXPECT_TRUE(parse("kv: { codec: q8, k: q8 }\n").is_ok());
  const auto sides = [](const auto& profile) { return profile ? profile->kv.k + "/" + profile->kv.v : profile.status().message(); };
  EXPECT_EQ(sides(parse("kv: { codec: q8, v: tq3 }\n")), "q8/tq3");
  EXPECT_EQ(sides(parse("kv: { v: tq3, codec: q8 }\n")), "q8/tq3") << "a map has no order";
  EXPECT_EQ(sides(parse("kv: { k: f16, v: tq3, codec: q8 }\n")), "f16/tq3");
  // The same within one command line; a command line as a whole outranks the environment, and both the file.
  EXPECT_EQ(sides(parse_flags({{"--kv-codec", "tq4"}, {"--set", "kv.k=q8"}})), "q8/tq4");
  EXPECT_EQ(sides(parse_flags({{"--set", "kv.k=q8"}, {"--kv-codec", "tq4"}})), "q8/tq4");
  EXPECT_EQ(sides(parse_flags({{"--set", "kv.k=q8"}, {"--set", "kv.codec=tq4"}, {"--set", "kv.k=f16"}})), "f16/tq4");
  EXPECT_EQ(sides(parse_flags({{"--kv-codec", "tq4"}}, "kv: { codec: q8, k: f16 }\n")), "tq4/tq4");
  Override side{"kv.k", "q8", "TURBO_SET"};
  side.from_environment = true;
  EXPECT_EQ(sides(parse("schema: 1\n", {side, {"kv.codec", "tq4", "--kv-codec"}})), "tq4/tq4");
  Override both_sides{"kv.codec", "tq4", "TURBO_KV_CODEC"};
  both_sides.from_environment = true;
  EXPECT_EQ(sides(parse("schema: 1\n", {both_sides, {"kv.k", "q8", "--set kv.k"}})), "q8/tq4");
  EXPECT_EQ(sides(parse("schema: 1\n", {side, both_sides})), "q8/tq4");
  const auto replaced = parse("kv: { k: q8, v: tq3 }\n", {{"kv.codec", "f16", "--kv-codec"}});
  EXPECT_EQ(replaced->kv.k + replaced->kv.v, "f16f16");
  EXPECT_EQ(parse("kv: { codec: q8 }\n", {{"kv.v", "f16", "--set kv.v"}})->kv.v, "f16");
  EXPECT_SAYS(parse("kv: { codec: 'a b' }\n"), "p.yaml:1:7: kv.codec: expected a name of letters");
  EXPECT_SAYS(parse("kv: { k: '../x' }\n"), "kv.k: expected a name of letters");
}

TEST(KvCodec, OptionsOfOneSide) {
  const auto p = parse("kv: { options: { scale: norm }, k_options: { scale: unb }, v_options: { sinks: 8 } }\n",
                       {{"kv.k_options.seed", "7", "--set kv.k_options.seed"}});
  ASSERT_TRUE(p.is_ok()) << p.status().message();
  using Options = std::map<std::string, std::string>;
  EXPECT_EQ(p->kv.options, (Options{{"scale", "norm"}}));
  EXPECT_EQ(p->kv.k_options, (Options{{"scale", "unb"}, {"seed", "7"}}));
  EXPECT_EQ(p->kv.v_options, (Options{{"sinks", "8"}}));
  EXPECT_SAYS(parse("kv: { k_options: 3 }\n"), "kv.k_options: expected a map");
  EXPECT_SAYS(parse("kv: { k_option: { a: 1 } }\n"), "did you mean 'kv.k_options'?");
}

TEST(Contradictions, TiersAndRequire) {
  EXPECT_EQ(parse("tiers: [generic, cpu]\n")->tiers, (std::vector<std::string>{"generic", "cpu"}));
  const auto required = parse("require: hip\n");
  EXPECT_EQ(required->tiers, std::vector<std::string>{"hip"});
  EXPECT_EQ(*required->require, "hip");
  EXPECT_EQ(parse("tiers: [hip, cpu]\nrequire: cpu\n")->tiers, std::vector<std::string>{"cpu"});
  EXPECT_SAYS(parse("tiers: [cpu]\nrequire: hip\n"), "p.yaml:2:1: require: 'hip' is not among tiers [cpu]");
  EXPECT_EQ(parse_flags({{"--tier", "hip"}}, "tiers: [cpu]\n")->tiers, std::vector<std::string>{"hip"});
  EXPECT_EQ(*parse_flags({{"--tier", "cpu"}}, "tiers: [hip, cpu]\n")->require, "cpu");
  EXPECT_EQ(parse_flags({{"--set", "tiers=generic,cpu"}}, "require: hip\n")->tiers.size(), 2u);
  EXPECT_SAYS(parse_flags({{"--set", "tiers=[cpu]"}, {"--tier", "hip"}}),
              "--tier: require: 'hip' is not among tiers [cpu]");
  EXPECT_SAYS(parse_flags({{"--tier", "gpu"}}), "--tier: require: expected one of hip, generic, cpu but found 'gpu'");
}

TEST(Contradictions, EngineAndPool) {
  EXPECT_SAYS(parse("engine: { max_step_tokens: 64, prefill_chunk: 128 }\n"),
              "128 rows do not fit engine.max_step_tokens 64");
  EXPECT_EQ(parse("engine: { max_step_tokens: 64 }\n")->engine.prefill_chunk, 0);
  EXPECT_EQ(parse("engine: { prefill_chunk: 1024 }\n")->engine.max_step_tokens, 1024);
  EXPECT_SAYS(parse("kv: { pool_tokens: 1024 }\nmodel: { context: 4096 }\n"),
              "p.yaml:1:7: kv.pool_tokens: 1024 tokens cannot hold one sequence of model.context 4096");
}

TEST(DrafterRules, KeysNeedTheirDrafter) {
  const auto phantom = parse("drafter: { name: phantom, draft_tokens: 8, ghosts: 4, buffers: 2 }\n");
  ASSERT_TRUE(phantom.is_ok()) << what(phantom);
  EXPECT_EQ(phantom->drafter.options.at("ghosts"), "4");
  EXPECT_EQ(phantom->drafter.draft_tokens, 8);
  EXPECT_SAYS(parse("drafter: { name: ngram, ghosts: 4 }\n"),
              "p.yaml:1:25: drafter.ghosts: drafter 'ngram' does not have it");
  EXPECT_SAYS(parse("drafter: { ghosts: 4 }\n"), "no drafter is selected");
  EXPECT_SAYS(parse("drafter: { name: off, draft_tokens: 4 }\n"),
              "p.yaml:1:23: drafter.draft_tokens: no drafter is selected");
  EXPECT_SAYS(parse("drafter: { options: { a: 1 } }\n"), "no drafter is selected");
  EXPECT_SAYS(parse("drafter: { name: phantom, topk: 2 }\n"), "drafter.topk: drafter 'phantom' does not have it");
  EXPECT_SAYS(parse("drafter: { name: ngram, model: m }\n"), "drafter.model: drafter 'ngram' does not have it");
  EXPECT_TRUE(parse("drafter: { name: off, lossless: true, adaptive: false }\n").is_ok());
  EXPECT_TRUE(parse("drafter: { name: someone_elses, options: { whatever: 1 } }\n").is_ok());
  EXPECT_SAYS(parse("drafter: { name: phantom, ghosts: 4, options: { ghosts: 2 } }\n"), "the option is given twice");
  EXPECT_SAYS(parse("drafter: { name: phantom, ghosts: 9 }\n"),
              "p.yaml:1:35: drafter.ghosts: expected a whole number from 1 to 8 but found '9'");
  EXPECT_SAYS(parse("drafter: { name: phantom, options: { ghosts: 9 } }\n"),
              "drafter.options.ghosts: expected a whole number from 1 to 8");
  EXPECT_SAYS(parse("drafter: { name: phantom, buffers: 5 }\n"), "from 1 to 4");
  EXPECT_SAYS(parse("drafter: { name: phantom, buffers: '2' }\n"), "without quotes");
  EXPECT_SAYS(parse("drafter: off\n"), "expected settings but found 'off' | write drafter: { name: ... }");
  EXPECT_SAYS(parse("drafter: { name: none }\n"), "write off");
  EXPECT_SAYS(parse("drafter: { name: PHANTOM }\n"), "did you mean 'phantom'?");
}

TEST(DrafterRules, NetworksNeedWeights) {
  for (const char* name : {"eagle", "eagle3", "standalone", "medusa", "cascade", "chimera"})
    EXPECT_SAYS(check_drafter_weights(parse(std::string("drafter: { name: ") + name + " }\n")->drafter), "needs weights but drafter.model is not set")
        << name;
  EXPECT_TRUE(check_drafter_weights(parse("drafter: { name: eagle3, model: head }\n")->drafter).is_ok());
  EXPECT_TRUE(check_drafter_weights(parse("drafter: { name: someone_elses }\n")->drafter).is_ok());
  EXPECT_SAYS(check_drafter_weights(parse("drafter: { name: merge, over: [ngram, standalone] }\n")->drafter), "drafter.over: drafter 'standalone' needs weights");
  EXPECT_TRUE(parse("drafter: { name: eagle3, model: head }\n").is_ok());
  EXPECT_SAYS(parse("drafter: { name: eagle3, model: head, token_map: missing.txt }\n"),
              "drafter.token_map: expected a file");
  EXPECT_EQ(parse("drafter: { name: eagle3, model: head, token_map: missing.txt }\n").status().code(), Code::not_found);
}

TEST(DrafterRules, DraftTokensCountTheRoot) {
  for (const char* bad : {"1", "65", "-1"})
    EXPECT_SAYS(parse(std::string("drafter: { name: phantom, draft_tokens: ") + bad + " }\n"),
                "drafter.draft_tokens: expected a whole number from 2 to 64, or auto (0) but found")
        << bad;
  EXPECT_EQ(parse("drafter: { name: phantom, draft_tokens: 64 }\n")->drafter.draft_tokens, 64);
  EXPECT_EQ(parse("drafter: { name: phantom, draft_tokens: auto }\n")->drafter.draft_tokens, 0);
  const auto chain = parse("drafter: { name: eagle3, model: m, draft_tokens: 5 }\n");
  EXPECT_EQ(chain->drafter.steps, 4);
  EXPECT_EQ(chain->drafter.topk, 1);
  EXPECT_EQ(parse("drafter: { name: eagle3, model: m, steps: 3 }\n")->drafter.draft_tokens, 4);
  const auto forced = parse("drafter: { name: eagle3, model: m, steps: 3, topk: 1, draft_tokens: 9 }\n");
  EXPECT_EQ(forced->drafter.draft_tokens, 4);
  EXPECT_TRUE(adjusted(*forced, "drafter.draft_tokens set to 4 instead of 9"));
  EXPECT_SAYS(parse("drafter: { name: eagle3, model: m, topk: 4 }\n"),
              "drafter.topk: 4 branches per step need drafter.steps");
  // Pool of 2 steps with topk 2: 1 + 2 + 4 = 7 slots.
  EXPECT_EQ(parse("drafter: { name: eagle3, model: m, steps: 2, topk: 2, draft_tokens: 7 }\n")->drafter.draft_tokens,
            7);
  EXPECT_SAYS(parse("drafter: { name: eagle3, model: m, steps: 2, topk: 2, draft_tokens: 8 }\n"),
              "drafter.draft_tokens: 8 slots are more than the 7 that 2 steps with topk 2 can fill");
}

TEST(DrafterRules, LosslessRefusesWhatChangesOutput) {
  EXPECT_SAYS(parse("drafter: { name: phantom, accept_threshold_single: 0.8 }\n"),
              "drafter.accept_threshold_single: 0.8 can change the output, but drafter.lossless is true");
  EXPECT_SAYS(parse("drafter: { name: phantom, accept_threshold_acc: 0.8, lossless: true }\n"),
              "drafter.accept_threshold_acc: 0.8");
  EXPECT_TRUE(parse("drafter: { name: phantom, accept_threshold_acc: 0.8, lossless: false }\n").is_ok());
  EXPECT_SAYS(parse("drafter: { name: phantom, accept_threshold_acc: 1.1 }\n"), "expected a number from 0 to 1");
  EXPECT_SAYS(parse("drafter: { name: phantom, accept_threshold_single: -0.1, lossless: false }\n"),
              "expected a number from 0 to 1");
  EXPECT_SAYS(parse("drafter: { name: medusa, model: m, typical_acceptance: target }\n"),
              "'target' can change the output");
  EXPECT_TRUE(parse("drafter: { name: medusa, model: m, typical_acceptance: target, lossless: false }\n").is_ok());
  EXPECT_TRUE(parse("drafter: { name: medusa, model: m, typical_acceptance: draft }\n").is_ok());
}

TEST(DrafterRules, CorpusOptions) {
  const std::string ngram = "drafter: { name: ngram, ";
  EXPECT_SAYS(parse(ngram + "max_trie_depth: 1 }\n"), "expected a whole number from 2 to");
  EXPECT_SAYS(parse(ngram + "match_type: DFS }\n"), "expected one of BFS, PROB but found 'DFS'");
  EXPECT_SAYS(parse(ngram + "min_bfs_breadth: 0 }\n"), "expected a whole number from 1");
  EXPECT_SAYS(parse(ngram + "min_bfs_breadth: 4, max_bfs_breadth: 3 }\n"),
              "max_bfs_breadth 3 is below min_bfs_breadth 4");
  EXPECT_SAYS(parse(ngram + "min_bfs_breadth: 11 }\n"), "max_bfs_breadth 10 is below min_bfs_breadth 11");
  EXPECT_SAYS(parse(ngram + "capacity: 18 }\n"), "18 nodes cannot hold one sequence of max_trie_depth 18: at least 19");
  EXPECT_SAYS(parse(ngram + "capacity: 4, max_trie_depth: 4 }\n"), "at least 5 are needed");
  EXPECT_TRUE(parse(ngram + "capacity: 5, max_trie_depth: 4 }\n").is_ok());
  EXPECT_TRUE(adjusted(*parse(ngram + "capacity: 10000000 }\n"), "up to 306 MiB"));
}

TEST(DrafterRules, MedusaAndChimeraOptions) {
  const std::string medusa = "drafter: { name: medusa, model: m, ";
  EXPECT_SAYS(parse(medusa + "head_topk: 11 }\n"), "from 1 to 10");
  EXPECT_SAYS(parse(medusa + "tree: star }\n"), "expected one of linear, mc_sim_63, auto");
  EXPECT_SAYS(parse(medusa + "posterior_threshold: 0 }\n"), "expected a number above 0 and at most 1");
  EXPECT_SAYS(parse(medusa + "posterior_alpha: 1.5 }\n"), "expected a number above 0 and at most 1");
  EXPECT_TRUE(parse(medusa + "screen_heads: '3,4' }\n").is_ok());
  EXPECT_SAYS(parse(medusa + "heads: 4, screen_heads: '3,4' }\n"),
              "head indices such as 3,4 from 0 to 3 but found '3,4'");
  EXPECT_SAYS(parse(medusa + "screen_heads: some }\n"), "expected auto, none, or head indices");
  EXPECT_SAYS(parse(medusa + "screen_heads: '1,,2' }\n"), "expected auto, none, or head indices");
  EXPECT_TRUE(parse("drafter: { name: chimera, model: m, level: 2 }\n").is_ok());
  EXPECT_SAYS(parse("drafter: { name: chimera, model: m, level: 4 }\n"), "from 1 to 3, or dynamic");
  EXPECT_TRUE(parse("drafter: { name: chimera, model: m, level: dynamic }\n").is_ok());
  // Which drafters are experimental is said by their plugins, once.
  EXPECT_TRUE(parse("drafter: { name: self_spec }\n")->adjustments.empty());
}

TEST(ServerRules, KeysOriginsAndExposure) {
  EXPECT_TRUE(adjusted(*parse("server: { host: 0.0.0.0 }\n"), "can be reached from other machines"));
  EXPECT_TRUE(parse("server: { host: 0.0.0.0, api_keys: [k] }\n")->adjustments.empty());
  EXPECT_TRUE(parse("server: { host: localhost }\n")->adjustments.empty());
  for (const char* host : {"'not a host'", "'http://localhost'", "a/b", "'127.0.0.1,::1'"})
    EXPECT_SAYS(parse(std::string("server: { host: ") + host + " }\n"), "p.yaml:1:11: server.host: expected an address or the name");
  EXPECT_SAYS(parse("server: { host: " + std::string(254, 'a') + " }\n"), "server.host: expected");
  for (const char* host : {"'::1'", "'[::1]'", "'fe80::1%eth0'", "my-host.example", "0.0.0.0"})
    EXPECT_TRUE(parse(std::string("server: { host: ") + host + " }\n").is_ok()) << host;
  EXPECT_SAYS(parse("server: { api_keys: ['a b'] }\n"), "server.api_keys: expected keys of 1 to 512 visible ASCII");
  EXPECT_SAYS(parse("server: { api_keys: [''] }\n"), "server.api_keys: expected text");
  EXPECT_SAYS(parse("server: { expose_slot_prompts: true }\n"), "needs server.expose_slots");
  EXPECT_SAYS(parse("server: { cors_origins: [example.org] }\n"), "expected an origin such as https://example.org");
}

TEST(PluginRules, PreferNamesKindAndComponent) {
  EXPECT_EQ(parse("plugins: { prefer: { 'kv_codec:f16': org.example.kv } }\n")->plugins.prefer.at("kv_codec:f16"),
            "org.example.kv");
  EXPECT_SAYS(parse("plugins: { prefer: { f16: x } }\n"), "expected kind:name");
  EXPECT_SAYS(parse("plugins: { prefer: { 'codec:f16': x } }\n"), "expected kind:name");
  EXPECT_SAYS(parse("plugins: { prefer: { 'kv_codec:f16': '' } }\n"), "expected a plugin id");
  EXPECT_EQ(parse_flags({{"--set", "plugins.prefer.kv_codec:f16=org.example.kv"}})->plugins.prefer.at("kv_codec:f16"),
            "org.example.kv");
}

TEST(KeyTable, EveryDefaultSatisfiesItsOwnRule) {
  for (const KeySpec& spec : key_table()) {
    EXPECT_FALSE(spec.doc.empty()) << spec.path;
    EXPECT_EQ(spec.doc.back(), '.') << spec.path;
    if (spec.get == nullptr) continue;
    const Value value = spec.get(Profile{});
    if (const auto* number = std::get_if<int64_t>(&value)) {
      const bool zero = *number == 0 && !spec.rule.zero_word.empty();
      EXPECT_TRUE(zero || (*number >= spec.rule.minimum && *number <= spec.rule.maximum)) << spec.path;
    }
  }
}

}  // namespace
}  // namespace turbo::profile
