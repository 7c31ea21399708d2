// Opening and proving a library: each way in which it can misbehave has a culprit and a named refusal.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "helpers.h"
#include "loader/files.h"
#include "loader/instance.h"

namespace turbo::loader {
namespace {

namespace fs = std::filesystem;

class Open : public testing::Test {
 protected:
  fs::path add_fault(const std::string& manifest = fault_manifest()) {
    return installation.add("fault", "fault.so", manifest);
  }

  // The status of opening the one sampler that is installed.
  Status open(const CatalogSettings& settings) {
    Result<Catalog> scanned = Catalog::scan(settings);
    if (!scanned) return scanned.status();
    catalog = std::make_unique<Catalog>(*std::move(scanned));
    const auto refs = catalog->components("sampler");
    if (refs.size() != 1)
      return error(Code::not_found, "{} samplers; {}", refs.size(), fmt::join(catalog->warnings(), "; "));
    const auto opened = catalog->open(refs[0]);
    component = opened ? *opened : nullptr;
    return opened.status();
  }
  Status open() { return open(installation.settings()); }

  Installation installation;
  std::unique_ptr<Catalog> catalog;
  const turbo_component* component = nullptr;
};

TEST_F(Open, AGoodPluginOpens) {
  add_fault();
  const Status status = open();
  EXPECT_TRUE(status.is_ok()) << status.message();
  ASSERT_NE(component, nullptr);
  EXPECT_TRUE(catalog->warnings().empty());
  ComponentHost host({.label = "t"});
  EXPECT_EQ(probe_here(*component, host.host(), nullptr).score, 100);
}

TEST_F(Open, MisbehaviourIsNamed) {
  const struct {
    const char *fault, *expected;
  } cases[] = {
      {"null_query", "answered null: the plugin does not serve ABI 1.0"},
      {"struct_size_0", "turbo_plugin.struct_size: expected 80 to 4096 but found 0"},
      {"struct_size_absurd", "turbo_plugin.struct_size"},
      {"wrong_major", "built for ABI 2.0, but this turbo has ABI 1.0"},
      {"too_new_minor", "needs a host of ABI 1.7 or later, but this turbo has ABI 1.0"},
      {"null_id", "must not be null"},
      {"bad_id", "id: expected reverse DNS"},
      {"other_id", "id: the manifest says 'test.fault' but the library says 'test.other'"},
      {"other_version", "version: the manifest says '1.0.0' but the library says '9.9.9'"},
      {"other_name", "components: the manifest says 'sampler:faulty:cpu' but the library says 'sampler:other:cpu'"},
      {"no_components", "n_components: expected 1 to 256 but found 0"},
      {"absurd_count", "n_components"},
      {"twice", "is defined twice"},
      {"component_bytes_absurd", "component_bytes"},
      {"component_size_0", "component 0: struct_size"},
      {"null_create", "required calls are null: create"},
      {"bad_name", "name: expected 1 to 32 characters"},
      {"bad_tier", "tier: expected 1 to 3 but found 9"},
      {"bad_kind", "kind: expected one of"},
      {"crash_in_load", "its initialiser "},
      {"crash_in_query", "its turbo_plugin_query "},
      {"throw_in_query", "threw an exception"},
      {"crash_in_probe", "its probe "},
      {"exit_in_probe", "its probe ended the process with status 0"},
      {"throw_in_probe", "threw an exception: thrown by the fixture"},
      {"garbage_to_host", "its probe wrote garbage to the host"},
      {"garbage_score", "garbage: score 123456"},
      {"negative_score", "garbage: score -1"},
      {"odd_status", "unknown status 4711"},
  };
  int number = 0;
  for (const auto& c : cases) {
    // A folder of its own: a library that was mapped once stays mapped under its path.
    const Installation fresh;
    fresh.add(fmt::format("fault{}", number++), "fault.so", fault_manifest());
    const ScopedEnv fault("FIXTURE_FAULT", c.fault);
    const Status status = open(fresh.settings());
    ASSERT_FALSE(status.is_ok()) << c.fault;
    EXPECT_TRUE(contains(status.message(), c.expected)) << c.fault;
    EXPECT_FALSE(status.hint().empty() && status.code() != Code::unsupported && status.code() != Code::internal)
        << c.fault;
  }
}

TEST_F(Open, AHangIsCutOffAndRemembered) {
  for (const char* where : {"hang_in_probe", "hang_in_load"}) {
    Installation fresh;
    fresh.add("fault", "fault.so", fault_manifest());
    CatalogSettings settings = fresh.settings();
    settings.probe.step_limit = std::chrono::milliseconds(700);
    {
      const ScopedEnv fault("FIXTURE_FAULT", where);
      const auto begin = std::chrono::steady_clock::now();
      const Status status = open(settings);
      ASSERT_FALSE(status.is_ok());
      EXPECT_TRUE(contains(status.message(), "did not answer within 700 ms"));
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
    }
    // Well again, but the same file: not run a second time, and the message says how to forget.
    const Status status = open(settings);
    ASSERT_FALSE(status.is_ok());
    const std::string all = status.message() + status.hint();
    EXPECT_TRUE(contains(all, "did not answer within 700 ms"));
    EXPECT_TRUE(contains(all, "remembered from an earlier start; remove " + fresh.cache().string()));
    fs::remove_all(fresh.cache());
    EXPECT_TRUE(open(fresh.settings()).is_ok());
  }
}

TEST_F(Open, AnotherFileIsAnotherVerdict) {
  const fs::path folder = add_fault();
  {
    const ScopedEnv fault("FIXTURE_FAULT", "crash_in_probe");
    EXPECT_FALSE(open().is_ok());
  }
  EXPECT_FALSE(open().is_ok());
  fs::last_write_time(folder / "fault.so", fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_TRUE(open().is_ok());
}

TEST_F(Open, ARefusalThatCanBeMendedIsNotRemembered) {
  add_fault();
  {
    const ScopedEnv fault("FIXTURE_FAULT", "null_query");
    EXPECT_FALSE(open().is_ok());
  }
  EXPECT_TRUE(open().is_ok());
}

TEST_F(Open, AGoodVerdictIsRemembered) {
  add_fault();
  ASSERT_TRUE(open().is_ok());
  CatalogSettings settings = installation.settings();
  settings.probe.executable = "/no/such/executable";  // a child would fail to start, and there would be a warning
  EXPECT_TRUE(open(settings).is_ok());
  EXPECT_TRUE(catalog->warnings().empty());
}

TEST_F(Open, WithoutAChildProbingIsInProcessAndSaysSo) {
  add_fault();
  CatalogSettings settings = installation.settings();
  settings.probe.executable = "/no/such/executable";
  EXPECT_TRUE(open(settings).is_ok());
  ASSERT_EQ(catalog->warnings().size(), 1u);
  EXPECT_TRUE(contains(catalog->warnings()[0], "probed inside this process"));
}

TEST_F(Open, AReadOnlyOrAbsentCacheIsNoTrouble) {
  add_fault();
  CatalogSettings settings = installation.settings();
  settings.probe.cache_folder = "/proc/no/cache";
  EXPECT_TRUE(open(settings).is_ok());
  settings.probe.cache_folder.clear();
  EXPECT_TRUE(open(settings).is_ok());
  EXPECT_TRUE(catalog->warnings().empty());
}

TEST_F(Open, ADamagedCacheIsIgnored) {
  const fs::path folder = add_fault();
  const auto identity = identify_file(folder / "fault.so");
  ASSERT_TRUE(identity);
  for (const char* text : {"", "{", "[1]", "{\"library\": 3}", "\xff\xff", "null"}) {
    write_file(verdict_file(installation.cache(), *identity), text);
    EXPECT_TRUE(open().is_ok()) << text;
  }
  // Right identity, wrong contents.
  ASSERT_TRUE(open().is_ok());
  const auto stored = read_bounded(verdict_file(installation.cache(), *identity), 1 << 20);
  ASSERT_TRUE(stored);
  nlohmann::json damaged = nlohmann::json::parse(*stored);
  damaged["bad"] = {{"component", "zero"}};
  write_file(verdict_file(installation.cache(), *identity), damaged.dump());
  EXPECT_TRUE(open().is_ok());
}

TEST_F(Open, OneBadComponentDoesNotTakeTheOthersWithIt) {
  installation.add_cpu();
  // Only the sampler's probe answers garbage.
  const ScopedEnv garbage("FIXTURE:test.cpu:sampler:score", "5000");
  Catalog scanned = installation.scan();
  EXPECT_FALSE(scanned.open(scanned.components("sampler")[0]));
  EXPECT_TRUE(scanned.open(scanned.components("kv_codec")[0]));
  EXPECT_TRUE(scanned.open(scanned.components("drafter")[0]));
}

TEST_F(Open, NotAPlugin) {
  const fs::path folder = add_fault();
  write_file(folder / "fault.so", "this is text " + std::string(4096, 'x'));
  Status status = open();
  EXPECT_TRUE(contains(status.message(), "fault.so: cannot load the library: "));
  EXPECT_TRUE(contains(status.message(), "invalid ELF header")) << "the loader's own words";
  EXPECT_FALSE(status.hint().empty());

  fs::remove(folder / "fault.so");
  status = open();
  EXPECT_EQ(status.code(), Code::not_found);

  fs::create_directory(folder / "fault.so");
  EXPECT_TRUE(contains(open().message(), "regular file"));
}

TEST_F(Open, ATruncatedLibraryIsRefused) {
  const uint64_t whole = fs::file_size(fs::path(TURBO_FIXTURES) / "fault.so");
  for (const uint64_t divisor : {1000, 64, 16, 8}) {
    const Installation fresh;
    fs::resize_file(fresh.add("fault", "fault.so", fault_manifest()) / "fault.so", whole / divisor);
    const Status status = open(fresh.settings());
    EXPECT_FALSE(status.is_ok()) << divisor;
    EXPECT_TRUE(contains(status.message(), "fault.so"));
  }
}

TEST_F(Open, MissingAndUnresolvedSymbols) {
  installation.add("n", "no_symbol.so", fault_manifest("no_symbol.so"));
  EXPECT_TRUE(contains(open().message(), "no_symbol.so: symbol turbo_plugin_query is missing"));
  Installation other;
  other.add("u", "unresolved.so", fault_manifest("unresolved.so"));
  const Status status = open(other.settings());
  EXPECT_TRUE(contains(status.message(), "turbo_fixture_symbol_that_nobody_defines"));
}

TEST_F(Open, HintNamesWhatAHigherTierLacks) {
  std::string manifest = fault_manifest("unresolved.so");
  manifest.replace(manifest.find("tier: cpu"), 9, "tier: hip");
  installation.add("u", "unresolved.so", manifest);
  EXPECT_TRUE(contains(open().hint(), "install the HIP runtime"));
}

TEST_F(Open, ChecksumIsChecked) {
  const auto identity = identify_file(fs::path(TURBO_FIXTURES) / "fault.so");
  ASSERT_TRUE(identity);
  add_fault(fault_manifest("fault.so", "    sha256: " + identity->sha256 + "\n"));
  EXPECT_TRUE(open().is_ok());
  Installation other;
  other.add("fault", "fault.so", fault_manifest("fault.so", "    sha256: " + std::string(64, '0') + "\n"));
  const Status status = open(other.settings());
  EXPECT_EQ(status.code(), Code::corrupt_input);
  EXPECT_TRUE(contains(status.message(), "the manifest says " + std::string(64, '0')));
}

TEST_F(Open, LibraryStaysInsideItsFolder) {
  const fs::path folder = add_fault();
  fs::rename(folder / "fault.so", installation.root() / "fault.so");
  fs::create_symlink(installation.root() / "fault.so", folder / "fault.so");
  EXPECT_TRUE(contains(open().message(), "outside its folder"));
}

TEST_F(Open, WorldWritableLibraryIsRefusedUnlessAllowed) {
  const fs::path folder = add_fault();
  ASSERT_EQ(::chmod((folder / "fault.so").c_str(), 0666), 0);
  const Status status = open();
  EXPECT_TRUE(contains(status.message(), "everybody may write"));
  EXPECT_TRUE(contains(status.hint(), "chmod o-w"));
  CatalogSettings settings = installation.settings();
  settings.allow_unsafe = true;
  EXPECT_TRUE(open(settings).is_ok());
}

TEST_F(Open, ProbeAnswersAreRead) {
  add_fault();
  ASSERT_TRUE(open().is_ok());
  ComponentHost host({.label = "t"});
  const auto probe = [&](const char* fault) {
    const ScopedEnv scoped("FIXTURE_FAULT", fault);
    return probe_here(*component, host.host(), nullptr);
  };
  EXPECT_EQ(probe("zero_score").reason, "probe says unusable here, without a reason");
  EXPECT_EQ(probe("status_in_probe").reason, "probe: driver: too old");
  EXPECT_EQ(probe("unterminated_reason").reason.size(), 256u);
  EXPECT_TRUE(contains(probe("throw_in_probe").reason, "threw"));
  EXPECT_TRUE(contains(probe("garbage_score").reason, "garbage"));
  const ProbeOutcome slow = probe("slow_probe");
  EXPECT_EQ(slow.score, 100);
  EXPECT_TRUE(contains(slow.warning, "at most 200 ms"));
}

TEST_F(Open, CreateIsGuarded) {
  add_fault();
  ASSERT_TRUE(open().is_ok());
  const auto create = [&](const char* fault) {
    const ScopedEnv scoped("FIXTURE_FAULT", fault);
    return Instance::create(*component, {.label = "t"}, "it").status();
  };
  EXPECT_TRUE(create("none").is_ok());
  EXPECT_TRUE(contains(create("create_fails").message(), "it: create: create: no memory for the fixture"));
  EXPECT_EQ(create("create_fails").code(), Code::resource_exhausted);
  EXPECT_TRUE(contains(create("throw_in_create").message(), "threw an exception"));
  EXPECT_TRUE(contains(create("null_instance").message(), "without an instance"));
  EXPECT_TRUE(contains(create("no_interface").message(), "interface turbo.sampler/1 is missing"));
  EXPECT_TRUE(contains(create("any_interface").message(), "answers ids it cannot know"));
  EXPECT_TRUE(contains(create("interface_size_0").message(), "struct_size"));
  EXPECT_TRUE(contains(create("null_member").message(), "required calls are null: sample"));
  EXPECT_TRUE(create("throw_in_destroy").is_ok());
}

}  // namespace
}  // namespace turbo::loader
