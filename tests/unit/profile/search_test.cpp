// Finding and reading profile files: names, folders, and everything that is not a regular file.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>

#include "support.h"

namespace turbo::profile {
namespace fs = std::filesystem;
namespace {

struct Tree {
  TemporaryFolder root;
  SearchPaths search;
  Tree() {
    for (const char* folder : {"work", "configs", "user", "share/models"}) fs::create_directories(root.path() / folder);
    search.working_folder = root.path() / "work";
    search.config_folders = {root.path() / "configs"};
    search.user_folders = {root.path() / "user"};
    search.share_folders = {root.path() / "share"};
  }
  Result<Profile> load(std::optional<std::string> name) const { return load_profile(name, {}, search); }
};

TEST(Search, BareNamesInOrder) {
  Tree tree;
  tree.root.write("user/a.yaml", "model: { name: user }\n");
  EXPECT_EQ(tree.load("a")->model.name, "user");
  tree.root.write("configs/a.yaml", "model: { name: configs }\n");
  EXPECT_EQ(tree.load("a.yaml")->model.name, "configs");
  tree.root.write("work/a.yaml", "model: { name: work }\n");
  EXPECT_EQ(tree.load("a")->model.name, "work");
  EXPECT_EQ(tree.load("a")->source, tree.search.working_folder / "a.yaml");
}

TEST(Search, PathsAndExtensions) {
  Tree tree;
  tree.root.write("work/sub/b.yaml", "model: { name: b }\n");
  EXPECT_EQ(tree.load("sub/b")->model.name, "b");
  EXPECT_EQ(tree.load("./sub/b.yaml")->model.name, "b");
  EXPECT_EQ(tree.load((tree.search.working_folder / "sub" / "b").string())->model.name, "b");
  EXPECT_SAYS(tree.load("b"), "no such file");  // a bare name does not search sub-folders
  tree.root.write("work/c", "not a profile");
  tree.root.write("work/c.yaml", "model: { name: c }\n");
  EXPECT_EQ(tree.load("c")->model.name, "c");
  tree.root.write("work/with space \xc3\xa9.yaml", "model: { name: s }\n");
  EXPECT_EQ(tree.load("with space \xc3\xa9")->model.name, "s");
}

TEST(Search, NotFoundListsPlacesAndNames) {
  Tree tree;
  tree.root.write("configs/rx6700xt.yaml", "schema: 1\n");
  tree.root.write("user/mine.yaml", "schema: 1\n");
  const auto missing = tree.load("rx6700x");
  EXPECT_EQ(missing.status().code(), Code::not_found);
  EXPECT_SAYS(missing, "profile 'rx6700x': no such file; looked in " + tree.search.working_folder.string());
  EXPECT_SAYS(missing, (tree.root.path() / "user").string());
  EXPECT_SAYS(missing, "did you mean 'rx6700xt'? profiles there: mine, rx6700xt");
  EXPECT_SAYS(tree.load(""), "the name is empty");
  EXPECT_SAYS(tree.load(std::string(10000, 'x')), "not a usable file name");
  EXPECT_SAYS(tree.load(std::string("a\0b", 3)), "not a usable file name");
}

TEST(Search, APathIsLookedForWhereItPoints) {
  Tree tree;
  tree.root.write("configs/rx6700xt.yaml", "schema: 1\n");
  const auto absolute = tree.load("/no/such/rx6700xt.yaml");
  EXPECT_EQ(absolute.status().code(), Code::not_found);
  EXPECT_EQ(absolute.status().message(), "profile '/no/such/rx6700xt.yaml': no such file");
  EXPECT_SAYS(absolute, "--profile rx6700xt");
  EXPECT_SAYS(tree.load("sub/x.yaml"), "profile 'sub/x.yaml': no such file; paths start at " + tree.search.working_folder.string());
}

TEST(Search, NoNameMeansDefaultThenBuiltIn) {
  Tree tree;
  tree.root.write("work/default.yaml", "model: { name: stray }\n");  // only config folders count
  const auto built_in = tree.load(std::nullopt);
  ASSERT_TRUE(built_in.is_ok()) << what(built_in);
  EXPECT_TRUE(built_in->source.empty());
  EXPECT_TRUE(adjusted(*built_in, "built-in defaults"));
  tree.root.write("configs/default.yaml", "model: { name: standard }\n");
  EXPECT_EQ(tree.load(std::nullopt)->model.name, "standard");
  tree.root.write("configs/default.yaml", "modle: 1\n");
  EXPECT_FALSE(tree.load(std::nullopt).is_ok());
}

TEST(Read, OnlyRegularFiles) {
  Tree tree;
  ASSERT_EQ(::mkfifo((tree.search.working_folder / "pipe.yaml").c_str(), 0600), 0);
  EXPECT_SAYS(tree.load("pipe"), "expected a regular file but found a named pipe");
  fs::create_directory(tree.search.working_folder / "folder.yaml");
  EXPECT_SAYS(tree.load("folder"), "expected a regular file but found a folder");
  EXPECT_SAYS(tree.load("/dev/zero"), "/dev/zero: expected a regular file but found a device");
  EXPECT_SAYS(tree.load("/dev/null"), "found a device");
  fs::create_symlink("/dev/zero", tree.search.working_folder / "zero.yaml");
  EXPECT_SAYS(tree.load("zero"), "found a device");
  fs::create_symlink("loop.yaml", tree.search.working_folder / "loop.yaml");
  EXPECT_FALSE(tree.load("loop").is_ok());
  fs::create_symlink("nothing", tree.search.working_folder / "dangling.yaml");
  EXPECT_FALSE(tree.load("dangling").is_ok());
}

TEST(Read, SizeIsBounded) {
  Tree tree;
  tree.root.write("work/big.yaml", "a: 1\n" + std::string(max_profile_bytes, '#'));
  const auto big = tree.load("big");
  EXPECT_SAYS(big, "expected at most 1048576 bytes but the file is larger");
  EXPECT_EQ(big.status().code(), Code::resource_exhausted);
  fs::resize_file(tree.root.write("work/sparse.yaml", ""), 1ull << 40);
  EXPECT_SAYS(tree.load("sparse"), "the file is larger");
  tree.root.write("work/empty.yaml", "");
  EXPECT_SAYS(tree.load("empty"), "empty.yaml:1:1: expected settings but the profile is empty");
}

TEST(Read, UnreadableFile) {
  Tree tree;
  fs::permissions(tree.root.write("work/locked.yaml", "schema: 1\n"), fs::perms::none);
  for (const fs::path& folder : {tree.root.path(), tree.search.working_folder})
    fs::permissions(folder, fs::perms::owner_all | fs::perms::others_read | fs::perms::others_exec);
  const bool superuser = ::geteuid() == 0;  // permissions do not bind it, so step down for the call
  ASSERT_EQ(superuser ? ::seteuid(65534) : 0, 0);
  const auto locked = tree.load("locked");
  ASSERT_EQ(superuser ? ::seteuid(0) : 0, 0);
  EXPECT_SAYS(locked, "locked.yaml: cannot be read: Permission denied | check the path and its permissions");
}

TEST(Paths, RelativeToTheProfileThenTheShareFolders) {
  Tree tree;
  tree.root.write("configs/p.yaml", "model: { path: ../models/m.gguf }\nplugins: { paths: [mine, /abs] }\n");
  const auto configs = tree.root.path() / "configs";
  EXPECT_EQ(tree.load("p")->model.path, tree.root.path() / "models/m.gguf");  // exists nowhere: first candidate
  EXPECT_EQ(tree.load("p")->plugins.paths, (std::vector<fs::path>{configs / "mine", "/abs"}));
  tree.root.write("configs/q.yaml", "model: { path: models/m.gguf }\n");
  tree.root.write("share/models/m.gguf", "x");
  EXPECT_EQ(tree.load("q")->model.path, tree.root.path() / "share/models/m.gguf");
  tree.root.write("configs/models/m.gguf", "x");
  EXPECT_EQ(tree.load("q")->model.path, configs / "models/m.gguf");
}

TEST(Paths, OfFlagsStartAtTheWorkingFolder) {
  Tree tree;
  tree.root.write("configs/p.yaml", "model: { path: here.gguf }\n");
  const std::vector<Override> model{{"model.path", "there.gguf", "--model"}};
  EXPECT_EQ(load_profile("p", model, tree.search)->model.path, tree.search.working_folder / "there.gguf");
}

TEST(Paths, StandardSearchPathsOfInstalledAndBuildTrees) {
  TemporaryFolder root;
  ::setenv("TURBO_CONFIG_PATH", "/one::/two", 1);
  root.write("prefix/share/turbo/configs/default.yaml", "schema: 1\n");
  const auto installed = standard_search_paths(root.path() / "prefix/bin/turbo");
  ASSERT_EQ(installed.config_folders.size(), 1u);
  EXPECT_EQ(installed.config_folders[0], fs::canonical(root.path() / "prefix/share/turbo/configs"));
  EXPECT_EQ(installed.user_folders, (std::vector<fs::path>{"/one", "/two"}));
  ::unsetenv("TURBO_CONFIG_PATH");
  root.write("source/configs/default.yaml", "schema: 1\n");
  const auto build = standard_search_paths(root.path() / "source/build/release/bin/turbo");
  ASSERT_EQ(build.share_folders.size(), 1u);
  EXPECT_EQ(build.share_folders[0], fs::canonical(root.path() / "source"));
  EXPECT_TRUE(build.user_folders.empty());
  EXPECT_TRUE(standard_search_paths("/nowhere/bin/turbo").config_folders.empty());
}

}  // namespace
}  // namespace turbo::profile
