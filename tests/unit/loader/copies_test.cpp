// Several installed copies of one plugin id: the first that works counts, and whatever is passed over is named.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "helpers.h"
#include "loader/resolve.h"

namespace turbo::loader {
namespace {

namespace fs = std::filesystem;

class Copies : public testing::Test {
 protected:
  // `first` is on the profile's path, `second` is the install folder.
  CatalogSettings settings() const {
    CatalogSettings settings = second.settings();
    settings.plugin_paths = {first.plugins()};
    return settings;
  }
  Catalog scan() const { return *Catalog::scan(settings()); }

  static fs::path add_fault(const Installation& to) { return to.add("fault", "fault.so", fault_manifest()); }

  // The copy in `second` is used, and everything says why the one in `first` is not.
  void expect_second(const std::string& id, const std::string& because, const std::string& what) {
    Catalog catalog = scan();
    const PluginEntry* used = catalog.find(id);
    ASSERT_NE(used, nullptr) << what;
    EXPECT_TRUE(contains(used->folder.string(), second.plugins().string())) << what;
    ASSERT_EQ(catalog.components("sampler").size(), 1u) << what;
    EXPECT_TRUE(catalog.open(catalog.components("sampler")[0])) << what;
    const std::string warnings = fmt::format("{}", fmt::join(catalog.warnings(), "\n"));
    const std::string start = fmt::format("plugin '{}' at {}", id, first.plugins().string());
    for (const std::string& text : {warnings, catalog.list_text(), *catalog.explain_text("")}) {
      EXPECT_TRUE(contains(text, start)) << what;
      EXPECT_TRUE(contains(text, " refused because ")) << what;
      EXPECT_TRUE(contains(text, because)) << what;
      EXPECT_TRUE(contains(text, "using the one at " + used->folder.string())) << what;
    }
    bool refused = false, good = false;
    for (const auto& row : catalog.list_json()) {
      refused |= row["state"] == "refused" && contains(row["path"], first.plugins().string());
      good |= row["state"] == "ok" && contains(row["path"], second.plugins().string());
    }
    EXPECT_TRUE(refused && good) << what;
  }

  Installation first, second;
};

TEST_F(Copies, ABadLibraryDoesNotHideAGoodOne) {
  const fs::path library = add_fault(first) / "fault.so";
  add_fault(second);
  write_file(library, "this is text " + std::string(4096, 'x'));
  expect_second("test.fault", "cannot load the library", "text");
  fs::remove(library);
  expect_second("test.fault", "fault.so", "absent");
  fs::copy_file(fs::path(TURBO_FIXTURES) / "no_symbol.so", library);
  expect_second("test.fault", "turbo_plugin_query is missing", "no symbol");
  fs::remove(library);
  fs::copy_file(fs::path(TURBO_FIXTURES) / "stack_cpu.so", library);
  expect_second("test.fault", "the manifest says 'test.fault' but the library says 'test.cpu'", "another plugin");
}

TEST_F(Copies, AMisbehavingOneDoesNotHideAGoodOne) {
  const struct {
    const char *fault, *because;
  } cases[] = {{"wrong_major", "built for ABI 2.0"},         {"null_query", "answered null"},
               {"crash_in_load", "its initialiser crashed"}, {"crash_in_probe", "its probe crashed"},
               {"throw_in_probe", "threw an exception"},     {"hang_in_probe", "did not answer within 700 ms"}};
  int number = 0;
  for (const auto& c : cases) {
    // Folders of their own: a library that was mapped once stays mapped under its path.
    const std::string folder = fmt::format("fault{}", number++);
    const Installation bad, good;
    bad.add(folder, "fault.so", fault_manifest());
    good.add(folder, "fault.so", fault_manifest());
    const ScopedEnv fault("FIXTURE_FAULT", c.fault), only("FIXTURE_FAULT_ONLY", bad.plugins().string());
    CatalogSettings settings = good.settings();
    settings.plugin_paths = {bad.plugins()};
    if (contains(c.because, "700")) settings.probe.step_limit = std::chrono::milliseconds(700);
    Catalog catalog = *Catalog::scan(settings);
    const PluginEntry* used = catalog.find("test.fault");
    ASSERT_NE(used, nullptr) << c.fault;
    EXPECT_EQ(used->folder, good.plugins() / folder) << c.fault;
    const std::string warnings = fmt::format("{}", fmt::join(catalog.warnings(), "\n"));
    EXPECT_TRUE(contains(warnings, c.because)) << c.fault;
    EXPECT_TRUE(contains(warnings, "using the one at " + used->folder.string())) << c.fault;
    ASSERT_EQ(catalog.components("sampler").size(), 1u);
    EXPECT_TRUE(catalog.open(catalog.components("sampler")[0])) << c.fault;
  }
}

TEST_F(Copies, ARefusedManifestOrFolderMakesWay) {
  const fs::path folder = add_fault(first);
  add_fault(second);
  std::string future = fault_manifest();
  write_file(folder / "plugin.yaml", future.replace(future.find("major: 1"), 8, "major: 2"));
  expect_second("test.fault", "built for ABI 2.0, but this turbo has ABI 1.0", "manifest");
  write_file(folder / "plugin.yaml", fault_manifest());
  ASSERT_EQ(::chmod(folder.c_str(), 0777), 0);
  expect_second("test.fault", "everybody may write", "folder");
}

TEST_F(Copies, OfGoodOnesTheEarlierWinsAndItIsSaid) {
  const Installation third;
  for (const Installation* installation : std::initializer_list<const Installation*>{&first, &second, &third})
    add_fault(*installation);
  CatalogSettings settings = this->settings();
  settings.environment_paths = third.plugins().string();
  Catalog catalog = *Catalog::scan(settings);
  ASSERT_NE(catalog.find("test.fault"), nullptr);
  const fs::path used = first.plugins() / "fault";
  EXPECT_EQ(catalog.find("test.fault")->folder, used);
  EXPECT_EQ(catalog.components("sampler").size(), 1u);
  ASSERT_EQ(catalog.warnings().size(), 2u);
  EXPECT_EQ(catalog.warnings()[0],
            fmt::format("plugin 'test.fault' at {} not used: the one at {} comes earlier on the search path",
                        (third.plugins() / "fault").string(), used.string()));
  EXPECT_TRUE(contains(catalog.warnings()[1], (second.plugins() / "fault").string()));
  const nlohmann::json rows = catalog.list_json();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["state"], "ok");
  EXPECT_EQ(rows[1]["state"], "shadowed");
  EXPECT_EQ(rows[1]["reason"], catalog.warnings()[0]);
}

TEST_F(Copies, WhenNoneWorksEachReasonIsGiven) {
  write_file(add_fault(first) / "fault.so", "text");
  fs::remove(add_fault(second) / "fault.so");
  Catalog catalog = scan();
  ASSERT_EQ(catalog.components("sampler").size(), 1u);
  const auto opened = catalog.open(catalog.components("sampler")[0]);
  ASSERT_FALSE(opened);
  EXPECT_TRUE(contains(opened.status().message(), "cannot load the library"));
  const std::string warnings = fmt::format("{}", fmt::join(catalog.warnings(), "\n"));
  EXPECT_TRUE(contains(warnings, "plugin 'test.fault': no copy can be loaded"));
  EXPECT_TRUE(contains(warnings, (first.plugins() / "fault" / "fault.so").string()));
  EXPECT_TRUE(contains(warnings, (second.plugins() / "fault" / "fault.so").string()));
}

TEST_F(Copies, AMissingGpuRuntimeIsNoReasonToLeaveTheCpuPart) {
  // The earlier copy has a cpu and a hip library; the hip one cannot be loaded.
  std::string both = stack_manifest("test.cpu", "cpu", "stack_cpu.so");
  const std::string hip = stack_manifest("test.cpu", "hip", "stack_cpu_hip.so");
  both += hip.substr(hip.find("  - path:"));
  first.add("stack", "stack_cpu.so", both);
  second.add_cpu();
  write_file(first.plugins() / "stack" / "stack_cpu_hip.so", "text");
  EXPECT_EQ(scan().find("test.cpu")->folder, first.plugins() / "stack") << "the later one has nothing more to give";

  const Installation third;
  third.add("stack", "stack_cpu.so", both);
  third.add("more", "stack_cpu_hip.so", "");
  fs::rename(third.plugins() / "more" / "stack_cpu_hip.so", third.plugins() / "stack" / "stack_cpu_hip.so");
  CatalogSettings settings = third.settings();
  settings.plugin_paths = {first.plugins()};
  const Catalog catalog = *Catalog::scan(settings);
  EXPECT_EQ(catalog.find("test.cpu")->folder, third.plugins() / "stack") << "the later one has all of it, working";
}

TEST_F(Copies, ThePlanSaysWhichCopyServes) {
  first.add_cpu();
  second.add_cpu();
  write_file(first.plugins() / "stack_cpu" / "stack_cpu.so", "text");
  Request request;
  request.tiers = {"cpu"};
  request.weight_types = {{41, "q1_0"}, {0, "f32"}};
  Catalog catalog = scan();
  Services services;
  Report report;
  const auto resolved = resolve(request, catalog, services, &report);
  ASSERT_TRUE(resolved) << resolved.status().message();
  for (const std::string& text : {report.text(), report.json().dump()}) {
    const std::string earlier = (first.plugins() / "stack_cpu").string();
    EXPECT_TRUE(contains(text, fmt::format("plugin 'test.cpu' at {} refused because", earlier)));
    EXPECT_TRUE(contains(text, "using the one at " + (second.plugins() / "stack_cpu").string()));
  }
}

}  // namespace
}  // namespace turbo::loader
