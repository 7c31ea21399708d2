#include "loader/catalog.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "helpers.h"
#include "loader/files.h"

namespace turbo::loader {
namespace {

namespace fs = std::filesystem;

TEST(Catalog, ListingReadsManifestsOnly) {
  const Installation installation;
  // A library that does not even exist: listing does not care.
  write_file(installation.plugins() / "a" / "plugin.yaml", stack_manifest("org.example.a", "cpu", "absent.so"));
  const Catalog catalog = installation.scan();
  EXPECT_EQ(catalog.components("kv_codec").size(), 2u);
  EXPECT_TRUE(catalog.warnings().empty());
  const nlohmann::json rows = catalog.list_json();
  ASSERT_EQ(rows.size(), 7u);
  for (const char* key : {"kind", "name", "tier", "plugin", "version", "abi", "path", "state", "reason"})
    EXPECT_TRUE(rows[0].contains(key)) << key;
  EXPECT_EQ(rows[0]["plugin"], "org.example.a");
  EXPECT_EQ(rows[0]["abi"], "1.0");
  EXPECT_EQ(rows[0]["state"], "ok");
  EXPECT_TRUE(contains(catalog.list_text(), "arch_pack"));
}

TEST(Catalog, ABadPluginDoesNotHideTheOthers) {
  const Installation installation;
  installation.add_cpu();
  write_file(installation.plugins() / "broken" / "plugin.yaml", "schema: 1\nid: [");
  write_file(installation.plugins() / "future" / "plugin.yaml", [] {
    std::string text = stack_manifest("org.example.future", "cpu", "x.so");
    return text.replace(text.find("major: 1"), 8, "major: 2");
  }());
  fs::create_directories(installation.plugins() / "not_a_plugin");
  const Catalog catalog = installation.scan();
  EXPECT_EQ(catalog.components("sampler").size(), 1u);
  EXPECT_NE(catalog.find("test.cpu"), nullptr);
  EXPECT_EQ(catalog.find("org.example.future"), nullptr);
  EXPECT_EQ(catalog.refused_components("sampler").size(), 1u);
  ASSERT_EQ(catalog.warnings().size(), 2u);
  EXPECT_TRUE(contains(catalog.warnings()[0], "broken/plugin.yaml"));
  EXPECT_TRUE(contains(catalog.warnings()[1], "built for ABI 2.0, but this turbo has ABI 1.0"));
  const std::string list = catalog.list_json().dump();
  EXPECT_TRUE(contains(list, "refused"));
}

TEST(Catalog, APathMayBeThePluginFolderItself) {
  const Installation installation;
  const fs::path folder = installation.plugins() / "p";
  write_file(folder / "plugin.yaml", stack_manifest("org.example.p", "cpu", "x.so"));
  CatalogSettings settings;
  settings.plugin_paths = {folder};
  EXPECT_NE(Catalog::scan(settings)->find("org.example.p"), nullptr);
}

TEST(Catalog, ProfilePathsMustExist) {
  CatalogSettings settings;
  settings.plugin_paths = {"/no/such/folder"};
  const auto catalog = Catalog::scan(settings);
  ASSERT_FALSE(catalog);
  EXPECT_EQ(catalog.status().code(), Code::not_found);
  EXPECT_TRUE(contains(catalog.status().message(), "/no/such/folder"));
  settings.plugin_paths = {""};
  EXPECT_FALSE(Catalog::scan(settings));
}

TEST(Catalog, EnvironmentPathsAreCheckedAndReported) {
  const Installation installation;
  write_file(installation.plugins() / "p" / "plugin.yaml", stack_manifest("org.example.p", "cpu", "x.so"));
  CatalogSettings settings;
  settings.environment_paths = "/no/such/folder::" + installation.plugins().string();
  const auto catalog = Catalog::scan(settings);
  ASSERT_TRUE(catalog);
  EXPECT_NE(catalog->find("org.example.p"), nullptr);
  ASSERT_EQ(catalog->warnings().size(), 2u);
  EXPECT_TRUE(contains(catalog->warnings()[0], "/no/such/folder is not a folder"));
  EXPECT_TRUE(contains(catalog->warnings()[1], "entry 2 is empty"));
}

TEST(Catalog, ExplainProbesEachComponent) {
  const Installation installation;
  installation.add_cpu();
  const ScopedEnv no_codec("FIXTURE:test.cpu:kv_codec:score", "0");
  const ScopedEnv reason("FIXTURE:test.cpu:kv_codec:reason", "needs avx9");
  Catalog catalog = installation.scan();
  const auto rows = catalog.explain_json("test.cpu");
  ASSERT_TRUE(rows) << rows.status().message();
  int unusable = 0;
  for (const auto& row : *rows) {
    const bool codec = row["kind"] == "kv_codec";
    EXPECT_EQ(row["score"], codec ? 0 : 100) << row.dump();
    EXPECT_EQ(row["state"], codec ? "unusable" : "ok");
    if (codec) {
      EXPECT_EQ(row["reason"], "needs avx9");
    }
    unusable += codec;
  }
  EXPECT_EQ(unusable, 2);
  EXPECT_TRUE(contains(*catalog.explain_text(""), "needs avx9"));
  const auto missing = catalog.explain_json("test.cpus");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.status().hint(), "did you mean 'test.cpu'?");
}

TEST(Catalog, ExplainListsAManifestThatCannotBeRead) {
  const Installation installation;
  write_file(installation.plugins() / "broken" / "plugin.yaml", "schema: 1\nid: [");
  Catalog catalog = installation.scan();
  const auto rows = catalog.explain_json("");
  ASSERT_TRUE(rows);
  ASSERT_EQ(rows->size(), 1u);
  EXPECT_EQ((*rows)[0].value("score", -1), 0);
  EXPECT_TRUE(contains(*catalog.explain_text(""), "broken/plugin.yaml"));
}

TEST(Catalog, SettingsOfThisProcessMirrorTheInstallTree) {
  const ScopedEnv path("TURBO_PLUGIN_PATH", "/a:/b"), cache("XDG_CACHE_HOME", "/tmp/some-cache");
  const CatalogSettings settings = CatalogSettings::of_this_process();
  EXPECT_EQ(settings.environment_paths, "/a:/b");
  EXPECT_EQ(settings.install_folder, fs::path(TURBO_BUILD) / "lib" / "turbo" / "plugins");
  EXPECT_EQ(settings.probe.cache_folder, "/tmp/some-cache/turbo/probe");
}

TEST(Files, Sha256) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const TempFolder folder;
  write_file(folder.path() / "f", "abc");
  const auto identity = identify_file(folder.path() / "f");
  ASSERT_TRUE(identity);
  EXPECT_EQ(identity->sha256, sha256_hex("abc"));
  EXPECT_EQ(identity->bytes, 3u);
}

}  // namespace
}  // namespace turbo::loader
