#include "loader/resolve.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "helpers.h"

namespace turbo::loader {
namespace {

class Resolve : public testing::Test {
 protected:
  Resolve() {
    request.weight_types = {{41, "q1_0"}, {0, "f32"}};
    request.kv_k = request.kv_v = "f16";
    services.log = log.logger();
  }

  Status resolve() {
    resolution.reset();
    CatalogSettings settings = installation.settings();
    settings.plugin_paths = request.plugin_paths;
    Result<Catalog> scanned = Catalog::scan(settings);
    if (!scanned) return scanned.status();
    catalog = std::make_unique<Catalog>(*std::move(scanned));
    Result<Resolution> resolved = loader::resolve(request, *catalog, services, &report);
    if (resolved) resolution = std::make_unique<Resolution>(*std::move(resolved));
    return resolved.status();
  }

  const Report::Slot& slot(const std::string& name) const {
    for (const Report::Slot& slot : report.slots)
      if (slot.slot == name) return slot;
    ADD_FAILURE() << "no slot " << name;
    static const Report::Slot none;
    return none;
  }
  std::string plugin(const std::string& name) const { return slot(name).chosen ? slot(name).chosen->plugin : ""; }
  // Why a plugin lost a slot on a tier; "" when it did not.
  std::string reason(const std::string& name, const std::string& plugin, const std::string& tier) const {
    for (const Report::Rejected& rejected : slot(name).rejected)
      if (rejected.plugin == plugin && rejected.tier == tier) return rejected.reason;
    return "";
  }
  std::string warnings() const { return fmt::format("{}", fmt::join(report.warnings, "\n")); }

  Installation installation;
  CapturedLog log;
  Request request;
  Services services;
  Report report;
  std::unique_ptr<Catalog> catalog;  // outlived by nothing: tables do not need it
  std::unique_ptr<Resolution> resolution;
};

TEST_F(Resolve, TheHighestTierOfTheListServes) {
  installation.add_all_tiers();
  const Status status = resolve();
  ASSERT_TRUE(status.is_ok()) << status.message();
  EXPECT_EQ(resolution->tier(), TURBO_TIER_HIP);
  EXPECT_STREQ(resolution->device().name, "Fixture test.hip");
  for (const char* name :
       {"arch_pack", "weight_format:q1_0", "weight_format:f32", "kv_codec:k", "kv_codec:v", "sampler", "op:rms_norm"})
    EXPECT_EQ(plugin(name), "test.hip") << name;
  EXPECT_FALSE(slot("op:top_k").chosen);
  EXPECT_TRUE(resolution->arch_pack());
  EXPECT_TRUE(resolution->weight_format(41));
  EXPECT_TRUE(resolution->weight_format(0));
  EXPECT_FALSE(resolution->weight_format(1));
  EXPECT_TRUE(resolution->sampler());
  EXPECT_NE(resolution->kv_codec(TURBO_KV_SIDE_K).self, resolution->kv_codec(TURBO_KV_SIDE_V).self);
  EXPECT_FALSE(resolution->drafter());
  EXPECT_EQ(reason("arch_pack", "test.cpu", "cpu"), "tier hip comes before cpu");
  EXPECT_EQ(warnings().find("instead of"), std::string::npos) << warnings();
}

TEST_F(Resolve, FallsDownTheChainWithReasons) {
  installation.add_all_tiers();
  const ScopedEnv no_gpu("FIXTURE:test.hip:arch_pack:score", "0");
  const ScopedEnv why("FIXTURE:test.hip:arch_pack:reason", "no gfx1031 device found");
  const ScopedEnv bad_test("FIXTURE:test.generic:arch_pack:self_test", "fail");
  const Status status = resolve();
  ASSERT_TRUE(status.is_ok()) << status.message();
  EXPECT_EQ(report.tier, "cpu");
  EXPECT_EQ(plugin("arch_pack"), "test.cpu");
  EXPECT_EQ(reason("arch_pack", "test.hip", "hip"), "no gfx1031 device found");
  EXPECT_TRUE(contains(reason("arch_pack", "test.generic", "generic"), "self_test: rms_norm: 3 of 8 values differ"));
  EXPECT_TRUE(contains(reason("kv_codec:k", "test.hip", "hip"),
                       "usable, but its tier lost: hip: arch_pack: no gfx1031 device found"));
  EXPECT_TRUE(contains(reason("sampler", "test.generic", "generic"), "its tier lost: generic: arch_pack"));
  EXPECT_TRUE(contains(warnings(), "tier cpu is used instead of hip: hip: arch_pack: no gfx1031 device found"));
  EXPECT_GE(log.find("self_test: rms_norm"), 0) << "a failure that should not be is logged";
  // What the generic tier had created is gone, and before the cpu tier was built.
  EXPECT_EQ(log.count("test.generic/standard: create"), log.count("test.generic/standard: destroy"));
}

TEST_F(Resolve, ATierWithAHoleIsNotLoaded) {
  installation.add_cpu();
  const Status status = resolve();
  ASSERT_TRUE(status.is_ok()) << status.message();
  EXPECT_EQ(report.tier, "cpu");
  EXPECT_TRUE(contains(
      reason("arch_pack", "", "hip"),
      "no plugin provides an arch_pack for tier hip; put the plugin's folder into " + installation.plugins().string()));
  EXPECT_TRUE(contains(reason("kv_codec:k", "", "generic"), "no plugin provides kv_codec 'f16' for tier generic"));
  EXPECT_TRUE(contains(reason("weight_format:q1_0", "", "hip"),
                       "no plugin provides a weight_format for q1_0 (GGUF type 41) for tier hip"));
}

TEST_F(Resolve, EveryKindCanLoseATier) {
  installation.add_cpu();
  installation.add_stack("stack_hip", "test.hip", "hip");
  for (const char* kind : {"weight_format", "kv_codec", "sampler"}) {
    for (const char* what : {"score", "create"}) {
      const bool create = std::string(what) == "create";
      const ScopedEnv broken(fmt::format("FIXTURE:test.hip:{}:{}", kind, what), create ? "fail" : "0");
      const Status status = resolve();
      ASSERT_TRUE(status.is_ok()) << kind << what << status.message();
      EXPECT_EQ(report.tier, "cpu") << kind << what;
      const char* name = std::string(kind) == "sampler"    ? "sampler"
                         : std::string(kind) == "kv_codec" ? "kv_codec:k"
                                                           : "weight_format:q1_0";
      EXPECT_TRUE(contains(reason(name, "test.hip", "hip"), create ? "create: fixture: told to fail" : "unusable here"))
          << kind << what;
      EXPECT_TRUE(contains(reason("arch_pack", "test.hip", "hip"), "its tier lost"));
    }
  }
}

TEST_F(Resolve, AFormatServesWhatItsManifestSays) {
  installation.add_cpu();
  const ScopedEnv less("FIXTURE:test.cpu:weight_format:types", "less");
  const Status status = resolve();
  ASSERT_FALSE(status.is_ok());
  EXPECT_TRUE(contains(status.message(), "the manifest lists GGUF type 41 but the library does not serve it"));
}

TEST_F(Resolve, NoTierIsAnErrorWithAllReasons) {
  installation.add_cpu();
  const ScopedEnv no_sampler("FIXTURE:test.cpu:sampler:score", "0");
  const Status status = resolve();
  ASSERT_FALSE(status.is_ok());
  EXPECT_EQ(status.code(), Code::unsupported);
  for (const char* part : {"no tier can serve this model: ", "hip: arch_pack: no plugin provides", "generic: sampler",
                           "cpu: sampler: probe says unusable here"})
    EXPECT_TRUE(contains(status.message(), part));
  EXPECT_EQ(report.tier, "");
  EXPECT_TRUE(contains(report.text(), "tier: none"));
}

TEST_F(Resolve, OneReasonOfManySlotsIsSaidOnce) {
  installation.add_cpu();
  request.tiers = {"cpu"};
  const ScopedEnv no_sampler("FIXTURE:test.cpu:sampler:score", "0"), no_pack("FIXTURE:test.cpu:arch_pack:score", "0");
  const Status status = resolve();
  const std::string why = "probe says unusable here";
  ASSERT_TRUE(contains(status.message(), why));
  EXPECT_EQ(status.message().find(why), status.message().rfind(why)) << status.message();
  EXPECT_TRUE(contains(status.message(), "(arch_pack, sampler)")) << status.message();
  // What is installed already needs no installing.
  EXPECT_FALSE(contains(status.hint(), "plugins.paths")) << status.hint();
}

TEST_F(Resolve, RequireTurnsALossIntoAnError) {
  installation.add_all_tiers();
  request.require = "hip";
  ASSERT_TRUE(resolve().is_ok());
  EXPECT_EQ(report.tier, "hip");
  EXPECT_EQ(reason("arch_pack", "test.cpu", "cpu"), "tier hip is required");
  const ScopedEnv no_gpu("FIXTURE:test.hip:arch_pack:score", "0");
  const Status status = resolve();
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_TRUE(contains(status.message(), "required tier hip cannot be used: hip: arch_pack: probe says unusable"));
  EXPECT_TRUE(contains(status.hint(), "remove `require`"));
}

TEST_F(Resolve, OnlyListedTiersAreTried) {
  installation.add_all_tiers();
  request.tiers = {"cpu", "hip"};
  ASSERT_TRUE(resolve().is_ok());
  EXPECT_EQ(report.tier, "cpu");
  EXPECT_EQ(reason("sampler", "test.generic", "generic"), "tier generic is not in the profile's list");
  EXPECT_EQ(reason("sampler", "test.hip", "hip"), "tier cpu comes before hip");
  request.tiers = {"hpi"};
  const Status status = resolve();
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_EQ(status.hint(), "did you mean 'hip'?");
  request.tiers = {};
  EXPECT_FALSE(resolve().is_ok());
}

TEST_F(Resolve, DuplicatesNeedAPreference) {
  installation.add_cpu();
  installation.add_stack("stack_cpu_other", "test.other_cpu", "cpu");
  request.tiers = {"cpu"};
  Status status = resolve();
  ASSERT_FALSE(status.is_ok());
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_TRUE(contains(status.message(), "comes from several plugins: 'test.cpu' and 'test.other_cpu'"));
  EXPECT_TRUE(contains(status.hint(), "prefer: { \"arch_pack:pack\": test.cpu }"));
  request.prefer = {{"arch_pack:pack", "test.other_cpu"},
                    {"weight_format:q1", "test.cpu"},
                    {"weight_format:basic", "test.cpu"},
                    {"kv_codec:f16", "test.other_cpu"},
                    {"sampler:standard", "test.cpu"}};
  status = resolve();
  ASSERT_TRUE(status.is_ok()) << status.message();
  EXPECT_EQ(plugin("arch_pack"), "test.other_cpu");
  EXPECT_EQ(plugin("kv_codec:v"), "test.other_cpu");
  EXPECT_EQ(plugin("sampler"), "test.cpu");
  EXPECT_EQ(reason("sampler", "test.other_cpu", "cpu"), "plugins.prefer names 'test.cpu'");
}

TEST_F(Resolve, PreferencesMustMakeSense) {
  installation.add_cpu();
  const struct {
    const char *key, *id, *expected;
  } cases[] = {{"sampler", "test.cpu", "expected kind:name"},
               {"toaster:x", "test.cpu", "expected kind:name"},
               {"sampler:standard", "test.gpu", "plugin 'test.gpu' does not provide it; providers: test.cpu"},
               {"sampler:absent", "test.cpu", "providers: none"}};
  for (const auto& c : cases) {
    request.prefer = {{c.key, c.id}};
    const Status status = resolve();
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_TRUE(contains(status.message(), c.expected));
  }
}

TEST_F(Resolve, TheHigherScoreWinsThenTheId) {
  installation.add_cpu();
  // Another pack and other names, so that nothing is a duplicate: only formats for the same type compete here.
  std::string manifest = fault_manifest();
  installation.add("fault", "fault.so", manifest);
  request.tiers = {"cpu"};
  request.sampler = "faulty";
  ASSERT_TRUE(resolve().is_ok());
  EXPECT_EQ(plugin("sampler"), "test.fault");
  EXPECT_EQ(slot("sampler").chosen->score, 100);
}

TEST_F(Resolve, UnknownNamesListWhatIsInstalled) {
  installation.add_cpu();
  request.kv_v = "f61";
  Status status = resolve();
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_EQ(status.message(), "kv_codec 'f61': no plugin provides it; installed: f16, q8");
  EXPECT_EQ(status.hint(), "did you mean 'f16'?");
  request.kv_v = "f16";
  request.sampler = "zebra";
  EXPECT_TRUE(contains(resolve().message(), "sampler 'zebra': no plugin provides it; installed: standard"));
  request.sampler = "standard";
  request.drafter = "fantom";
  EXPECT_TRUE(contains(resolve().hint(), "did you mean 'phantom'?"));
}

TEST_F(Resolve, ANameOfARefusedPluginGivesTheRefusal) {
  installation.add_cpu();
  const auto folder = installation.add("fault", "fault.so", fault_manifest());
  ASSERT_EQ(::chmod(folder.c_str(), 0777), 0);
  request.sampler = "faulty";
  const Status status = resolve();
  EXPECT_TRUE(contains(status.message(), "its plugin 'test.fault' was refused"));
  EXPECT_TRUE(contains(status.message(), "everybody may write"));
}

TEST_F(Resolve, OptionsReachTheirInstance) {
  installation.add_cpu();
  request.kv_k = request.kv_v = "q8";
  request.options["kv_codec:k"] = {{"sinks", "8"}};
  request.options["weight_format"] = {{"fast", "yes"}};
  ASSERT_TRUE(resolve().is_ok());
  EXPECT_EQ(log.count("create kv_codec sinks=8"), 1);
  EXPECT_EQ(log.count("create kv_codec sinks=4"), 1) << "the other side has the default";
  EXPECT_EQ(log.count("create weight_format fast=yes"), 1);
}

TEST_F(Resolve, SharedOptionsNeedOneWhoKnowsThem) {
  installation.add_cpu();
  request.kv_k = "q8";  // f16 on the V side has no options
  request.options["kv_codec"] = {{"sinks", "8"}};
  ASSERT_TRUE(resolve().is_ok());
  EXPECT_EQ(log.count("create kv_codec sinks=8"), 1);
  request.options["kv_codec"] = {{"snks", "8"}};
  const Status status = resolve();
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_TRUE(contains(status.message(), "kv_codec: unknown option 'snks'; known: sinks"));
  EXPECT_EQ(status.hint(), "did you mean 'sinks'?");
}

TEST_F(Resolve, OptionsIfKnownReachOnlyThoseThatHaveThem) {
  installation.add_cpu();
  request.kv_k = "q8";  // f16 on the V side has no options
  request.options_if_known["kv_codec:k"] = {{"sinks", "8"}, {"device", "1"}};
  request.options_if_known["kv_codec:v"] = {{"sinks", "8"}};
  ASSERT_TRUE(resolve().is_ok());
  EXPECT_EQ(log.count("create kv_codec sinks=8"), 1);
  request.options["kv_codec:k"] = {{"sinks", "16"}};
  ASSERT_TRUE(resolve().is_ok());
  EXPECT_EQ(log.count("create kv_codec sinks=16"), 1) << "the slot's own goes before";
  request.options = {};
  request.options_if_known["kv_codec:k"] = {{"sinks", "many"}};
  EXPECT_EQ(resolve().code(), Code::invalid_argument) << "a value is checked where it is known";
}

TEST_F(Resolve, UnknownOptionsAreSaidInTheUsersWords) {
  installation.add_cpu();
  request.kv_k = "q8";
  request.option_words["kv_codec"] = {"kv.options", {"boundary", "center"}};
  request.option_words["kv_codec:v"] = {"kv.v_options", {}};
  request.options["kv_codec"] = {{"bondary", "8"}};
  Status status = resolve();
  EXPECT_EQ(status.message(), "kv.options: unknown option 'bondary'; known: boundary, center, sinks");
  EXPECT_EQ(status.hint(), "did you mean 'boundary'?");
  request.options = {{"kv_codec:v", {{"sinks", "8"}}}};
  status = resolve();
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_EQ(status.message(), "kv.v_options: unknown option 'sinks'; what was chosen has no options");
}

TEST_F(Resolve, OptionsOfASideGoBeforeTheShared) {
  installation.add_cpu();
  request.kv_k = request.kv_v = "q8";
  request.options["kv_codec"] = {{"sinks", "8"}};
  request.options["kv_codec:v"] = {{"sinks", "16"}};
  ASSERT_TRUE(resolve().is_ok());
  EXPECT_EQ(log.count("create kv_codec sinks=8"), 1);
  EXPECT_EQ(log.count("create kv_codec sinks=16"), 1);
}

// Options of the side's codec are no spare's: it takes what it knows and keeps its defaults for the rest.
TEST_F(Resolve, ASpareCodecTakesTheOptionsThatFit) {
  installation.add_cpu();
  request.kv_k = "f16";
  request.spare_codecs[TURBO_KV_SIDE_V] = {"f16", "q8"};
  request.kv_v = "q8";
  request.options["kv_codec:v"] = {{"sinks", "16"}};
  ASSERT_TRUE(resolve().is_ok());
  EXPECT_TRUE(resolution->spare_codec(TURBO_KV_SIDE_V, "f16"));
  EXPECT_TRUE(resolution->spare_codec(TURBO_KV_SIDE_V, "q8"));
  EXPECT_EQ(log.count("create kv_codec sinks=16"), 2);
}

TEST_F(Resolve, WrongOptionsAreErrors) {
  installation.add_cpu();
  request.kv_k = "q8";
  const struct {
    const char *slot, *key, *value, *expected;
  } cases[] = {{"kv_codec:k", "sink", "1", "unknown option 'sink'; known: sinks"},
               {"kv_codec:k", "sinks", "many", "option 'sinks': expected a whole number"},
               {"kv_codec:k", "sinks", "65", "expected 0 to 64"},
               {"kv_codec:v", "sinks", "4", "it has no options"},
               {"weight_format:q1_0", "fast", "maybe", "expected one of no, yes"},
               {"weight_format:q9", "fast", "yes", "there is no such slot"},
               {"sampler", "x", "1", "unknown option 'x'"},
               {"arch_pack", "x", "1", "unknown option 'x'"},
               {"drafter", "ghosts", "4", "the drafter is off"}};
  for (const auto& c : cases) {
    request.options = {{c.slot, {{c.key, c.value}}}};
    const Status status = resolve();
    EXPECT_EQ(status.code(), Code::invalid_argument) << c.slot;
    EXPECT_TRUE(contains(status.message(), c.expected));
  }
  request.options = {};
  request.drafter = "phantom";
  request.options["drafter"] = {{"ghosts", "4"}};
  EXPECT_TRUE(contains(resolve().message(), "unknown option 'ghosts'"));
}

TEST_F(Resolve, LifeCycleOrder) {
  installation.add_cpu();
  request.drafter = "phantom";
  ASSERT_TRUE(resolve().is_ok());
  ASSERT_TRUE(resolution->start().is_ok());
  EXPECT_FALSE(resolution->drafter());
  turbo_host_program program{};
  ASSERT_TRUE(resolution->open_drafter(&program).is_ok());
  EXPECT_TRUE(resolution->drafter());
  EXPECT_EQ(log.count("create drafter with program"), 1);
  resolution.reset();
  const auto at = [&](const char* line) {
    const int position = log.find(line);
    EXPECT_GE(position, 0) << line << "\n" << log.text();
    return position;
  };
  EXPECT_LT(at("create weight_format"), at("create arch_pack"));
  EXPECT_LT(at("create kv_codec"), at("create arch_pack"));
  EXPECT_LT(at("create arch_pack"), at("self_test arch_pack"));
  EXPECT_LT(at("self_test arch_pack"), at("start arch_pack"));
  EXPECT_LT(at("start arch_pack"), at("create drafter"));
  EXPECT_LT(at("stop drafter"), at("stop arch_pack"));
  EXPECT_LT(at("stop weight_format"), at("destroy drafter")) << "everything is stopped before anything is destroyed";
  EXPECT_LT(at("destroy drafter"), at("destroy arch_pack"));
  EXPECT_LT(at("destroy arch_pack"), at("destroy kv_codec"));
  EXPECT_LT(at("destroy kv_codec"), at("destroy weight_format"));
  for (const char* what : {"create", "start", "stop", "destroy"})
    EXPECT_EQ(log.count(fmt::format(": {} kv_codec", what)), 2) << what;
}

TEST_F(Resolve, AResolutionThatIsDroppedUnstartedLeavesNothingBehind) {
  installation.add_cpu();
  request.drafter = "phantom";
  ASSERT_TRUE(resolve().is_ok());
  EXPECT_EQ(report.tier, "cpu");
  EXPECT_TRUE(slot("drafter").chosen);
  resolution.reset();
  EXPECT_GT(log.count(": create "), 0);
  EXPECT_EQ(log.count(": create "), log.count(": destroy "));
  EXPECT_EQ(log.count(": start "), 0);
  EXPECT_EQ(log.count("create drafter"), 0) << "its network would need the weights";
}

TEST_F(Resolve, TheDrafterMayStayOnALowerTier) {
  installation.add_all_tiers();
  request.drafter = "phantom";
  {
    const ScopedEnv none("FIXTURE:test.hip:drafter:score", "0");
    request.require = "hip";  // speaks about the compute tier; the host is always there
    ASSERT_TRUE(resolve().is_ok());
    EXPECT_EQ(report.tier, "hip");
    EXPECT_EQ(slot("drafter").chosen->tier, "cpu");
    request.require.reset();
    ASSERT_TRUE(resolve().is_ok());
    EXPECT_EQ(slot("drafter").chosen->tier, "generic");
    EXPECT_EQ(reason("drafter", "test.cpu", "cpu"), "tier generic comes before cpu");
  }
  request.tiers = {"cpu"};
  ASSERT_TRUE(resolve().is_ok());
  EXPECT_EQ(slot("drafter").chosen->tier, "cpu");
  EXPECT_EQ(reason("drafter", "test.hip", "hip"), "its tier is above cpu");
  EXPECT_TRUE(contains(warnings(), "drafter 'phantom' is experimental"));
}

TEST_F(Resolve, ADrafterThatCannotRunIsAWarning) {
  installation.add_cpu();
  request.drafter = "phantom";
  const ScopedEnv none("FIXTURE:test.cpu:drafter:score", "0");
  ASSERT_TRUE(resolve().is_ok());
  EXPECT_FALSE(slot("drafter").chosen);
  EXPECT_TRUE(contains(warnings(), "no drafter: drafter 'phantom': probe says unusable here"));
  EXPECT_TRUE(resolution->open_drafter(nullptr).is_ok());
  request.require = "cpu";
  EXPECT_EQ(resolve().code(), Code::unsupported);
}

TEST_F(Resolve, ADrafterThatFailsToOpenMakesWay) {
  installation.add_all_tiers();
  request.tiers = {"generic", "cpu"};
  request.drafter = "phantom";
  ASSERT_TRUE(resolve().is_ok());
  EXPECT_EQ(slot("drafter").chosen->plugin, "test.generic");
  {
    const ScopedEnv fails("FIXTURE:test.generic:drafter:create", "fail");
    EXPECT_TRUE(resolution->open_drafter(nullptr).is_ok());
  }
  report = resolution->report();
  EXPECT_EQ(slot("drafter").chosen->plugin, "test.cpu");
  EXPECT_TRUE(contains(reason("drafter", "test.generic", "generic"), "told to fail"));
  EXPECT_EQ(reason("drafter", "test.cpu", "cpu"), "");

  ASSERT_TRUE(resolve().is_ok());
  const ScopedEnv first("FIXTURE:test.generic:drafter:create", "fail"),
      second("FIXTURE:test.cpu:drafter:create", "fail");
  const Status status = resolution->open_drafter(nullptr);
  EXPECT_FALSE(status.is_ok());
  EXPECT_FALSE(resolution->drafter());
  report = resolution->report();
  EXPECT_FALSE(slot("drafter").chosen);
  EXPECT_TRUE(contains(warnings(), "no drafter: "));
}

TEST_F(Resolve, TheReportHasTheShapeOfTurboPlan) {
  installation.add_cpu();
  request.drafter = "phantom";
  ASSERT_TRUE(resolve().is_ok());
  const nlohmann::json json = resolution->explain_json();
  EXPECT_EQ(json["tier"], "cpu");
  EXPECT_EQ(json["device"],
            (nlohmann::json{{"name", "Fixture test.cpu"}, {"isa", "isa0"}, {"memory_bytes", 1u << 30}, {"threads", 8}}));
  EXPECT_TRUE(json["warnings"].is_array());
  bool seen = false;
  for (const auto& entry : json["slots"]) {
    ASSERT_TRUE(entry.contains("slot") && entry.contains("chosen") && entry["rejected"].is_array()) << entry.dump();
    for (const auto& rejected : entry["rejected"]) {
      EXPECT_EQ(rejected.size(), 3u);
      EXPECT_TRUE(rejected["plugin"].is_string() && rejected["tier"].is_string() && rejected["reason"].is_string());
    }
    if (entry["slot"] != "weight_format:q1_0") continue;
    seen = true;
    EXPECT_EQ(entry["chosen"],
              (nlohmann::json{
                  {"plugin", "test.cpu"}, {"version", "1.2.3"}, {"component", "q1"}, {"tier", "cpu"}, {"score", 100}}));
  }
  EXPECT_TRUE(seen);
  const std::string text = resolution->explain_text();
  for (const char* part : {"tier: cpu", "device: Fixture test.cpu (isa0), 1024 MiB", "slot ", "kv_codec:k ",
                           "no plugin provides an arch_pack for tier hip", "warning: "})
    EXPECT_TRUE(contains(text, part));
}

TEST_F(Resolve, GfxIsTheNameOfTheIsaOnHip) {
  installation.add_stack("stack_hip", "test.hip", "hip");
  ASSERT_TRUE(resolve().is_ok());
  EXPECT_EQ(resolution->explain_json()["device"]["gfx"], "isa0");
}

TEST_F(Resolve, APluginThatCrashesInProbeCostsItsTierOnly) {
  installation.add_cpu();
  installation.add_stack("stack_hip", "test.hip", "hip");
  const ScopedEnv garbage("FIXTURE:test.hip:arch_pack:score", "5000");
  ASSERT_TRUE(resolve().is_ok());
  EXPECT_EQ(report.tier, "cpu");
  EXPECT_TRUE(contains(reason("arch_pack", "test.hip", "hip"), "garbage: score 5000"));
}

TEST_F(Resolve, NothingInstalled) {
  const Status status = resolve();
  ASSERT_FALSE(status.is_ok());
  EXPECT_TRUE(contains(status.message(), "kv_codec 'f16': no plugin provides it; installed: none"));
  EXPECT_TRUE(contains(status.hint(), installation.plugins().string()));
}

}  // namespace
}  // namespace turbo::loader
