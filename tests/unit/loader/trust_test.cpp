// Which folders, links and owners the loader takes code from.
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "helpers.h"

namespace turbo::loader {
namespace {

namespace fs = std::filesystem;

class Trust : public testing::Test {
 protected:
  Trust() { installation.add("p", "fault.so", fault_manifest()); }

  // The plugin is not used, `why` is said by the warnings and the list, and allow_unsafe lifts it.
  void expect_refused(CatalogSettings settings, const std::string& why, const std::string& mend) {
    const auto strict = Catalog::scan(settings);
    ASSERT_TRUE(strict) << strict.status().message();
    Catalog catalog = *Catalog::scan(settings);
    bool opened = false;
    std::string said;
    for (const ComponentRef& ref : catalog.components("sampler")) {
      const auto component = catalog.open(ref);
      opened |= static_cast<bool>(component);
      if (!component) said += component.status().message() + component.status().hint();
    }
    EXPECT_FALSE(opened);
    for (const std::string& warning : catalog.warnings()) said += warning + "\n";
    EXPECT_TRUE(contains(said, why));
    EXPECT_TRUE(contains(said, mend));
    EXPECT_TRUE(contains(said, "plugins.allow_unsafe"));
    EXPECT_TRUE(contains(*catalog.explain_text(""), why));
    EXPECT_TRUE(contains(catalog.explain_json("")->dump(), why));
    settings.allow_unsafe = true;
    Catalog loose = *Catalog::scan(settings);
    ASSERT_EQ(loose.components("sampler").size(), 1u);
    EXPECT_TRUE(loose.open(loose.components("sampler")[0]));
  }
  CatalogSettings environment(const fs::path& path) const {
    CatalogSettings settings = installation.settings();
    settings.install_folder.clear();
    settings.environment_paths = path.string();
    return settings;
  }

  Installation installation;
};

TEST_F(Trust, WhatEverybodyMayWriteToIsRefusedUnlessAllowed) {
  for (const char* part : {"", "p", "p/plugin.yaml", "p/fault.so"}) {
    const fs::path path = part[0] ? installation.plugins() / part : installation.plugins();
    for (const mode_t mode : {0777, 01777}) {
      if (fs::is_regular_file(path) && mode != 0777) continue;
      ASSERT_EQ(::chmod(path.c_str(), mode), 0);
      for (const CatalogSettings& settings : {installation.settings(), environment(installation.plugins())})
        expect_refused(settings, path.string() + ": everybody may write to it", "chmod o-w " + path.string());
    }
    ASSERT_EQ(::chmod(path.c_str(), 0755), 0);
  }
}

TEST_F(Trust, AProfilePathThatEverybodyMayWriteToIsAnError) {
  ASSERT_EQ(::chmod(installation.plugins().c_str(), 0777), 0);
  CatalogSettings settings;
  settings.plugin_paths = {installation.plugins()};
  const auto catalog = Catalog::scan(settings);
  ASSERT_FALSE(catalog);
  EXPECT_TRUE(contains(catalog.status().message(), "everybody may write to it"));
  EXPECT_TRUE(contains(catalog.status().hint(), "chmod o-w"));
}

TEST_F(Trust, ALinkDoesNotHideAnOpenFolder) {
  const fs::path link = installation.root() / "link";
  fs::create_directory_symlink(installation.plugins(), link);
  ASSERT_EQ(::chmod(installation.plugins().c_str(), 0777), 0);
  expect_refused(environment(link), installation.plugins().string() + ": everybody may write to it", "chmod o-w");
}

TEST_F(Trust, ALinkInAnOpenFolderIsRefused) {
  const fs::path open_folder = installation.root() / "open";
  fs::create_directory(open_folder);
  ASSERT_EQ(::chmod(open_folder.c_str(), 0777), 0);
  fs::create_directory_symlink(installation.plugins(), open_folder / "link");
  expect_refused(environment(open_folder / "link"), open_folder.string() + ": everybody may write to it", "chmod o-w");
}

TEST_F(Trust, APluginLinkedFromAnOpenFolderIsRefused) {
  const fs::path open_folder = installation.root() / "open", search = installation.root() / "search";
  fs::create_directory(open_folder);
  fs::create_directory(search);
  fs::rename(installation.plugins() / "p", open_folder / "p");
  ASSERT_EQ(::chmod(open_folder.c_str(), 0777), 0);
  fs::create_directory_symlink(open_folder / "p", search / "p");
  expect_refused(environment(search), open_folder.string() + ": everybody may write to it", "chmod o-w");
}

TEST_F(Trust, AnOpenFolderAboveIsRefusedUnlessSticky) {
  ASSERT_EQ(::chmod(installation.root().c_str(), 0777), 0);
  expect_refused(environment(installation.plugins()), installation.root().string() + ": everybody may write to it",
                 "chmod o-w");
  expect_refused(environment(installation.plugins() / "p"),
                 installation.root().string() + ": everybody may write to it", "chmod o-w");
  ASSERT_EQ(::chmod(installation.root().c_str(), 01777), 0);
  EXPECT_NE(Catalog::scan(environment(installation.plugins()))->find("test.fault"), nullptr);
}

TEST_F(Trust, WhatAnotherUserOwnsIsRefusedUnlessAllowed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  for (const char* part : {"", "p", "p/plugin.yaml", "p/fault.so"}) {
    const fs::path path = part[0] ? installation.plugins() / part : installation.plugins();
    ASSERT_EQ(::chown(path.c_str(), 12345, 0), 0);
    expect_refused(installation.settings(), path.string() + ": belongs to another user (12345)", "chown");
    ASSERT_EQ(::chown(path.c_str(), 0, 0), 0);
  }
  const fs::path link = installation.root() / "link";
  fs::create_directory_symlink(installation.plugins(), link);
  ASSERT_EQ(::lchown(link.c_str(), 12345, 0), 0);
  expect_refused(environment(link), link.string() + ": belongs to another user (12345)", "chown");
  // In a folder like /tmp an owner can put anything in the place of what is below.
  const fs::path common = installation.root() / "common", theirs = common / "theirs";
  fs::create_directories(theirs);
  fs::rename(installation.plugins(), theirs / "plugins");
  ASSERT_EQ(::chmod(common.c_str(), 01777), 0);
  ASSERT_EQ(::chown(theirs.c_str(), 12345, 0), 0);
  expect_refused(environment(theirs / "plugins"), theirs.string() + ": belongs to another user (12345)", "chown");
}

TEST_F(Trust, LinksThatRunInCirclesEnd) {
  fs::create_directory_symlink(installation.root() / "b", installation.root() / "a");
  fs::create_directory_symlink(installation.root() / "a", installation.root() / "b");
  const auto catalog = Catalog::scan(environment(installation.root() / "a"));
  ASSERT_TRUE(catalog);
  EXPECT_EQ(catalog->warnings().size(), 1u);
}

}  // namespace
}  // namespace turbo::loader
