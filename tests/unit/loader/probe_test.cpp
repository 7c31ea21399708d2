// Probes that touch the process, and many processes and threads that probe at once.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "helpers.h"
#include "loader/files.h"

namespace turbo::loader {
namespace {

namespace fs = std::filesystem;

Status open_sampler(const CatalogSettings& settings, std::vector<std::string>* warnings = nullptr) {
  Result<Catalog> catalog = Catalog::scan(settings);
  if (!catalog) return catalog.status();
  const auto refs = catalog->components("sampler");
  if (refs.size() != 1) return error(Code::not_found, "{} samplers", refs.size());
  const auto opened = catalog->open(refs[0]);
  if (warnings) *warnings = catalog->warnings();
  return opened.status();
}

TEST(ProbeChild, WhatAProbeDoesToTheProcessIsARefusal) {
  const struct {
    const char *fault, *expected;
  } cases[] = {
      {"fork_in_probe", "its probe left a process behind"},
      {"daemon_in_probe", "its probe left a process behind"},
      {"fork_and_return", "its probe left a process behind"},
      {"zombie_in_probe", "its probe left a process behind"},
      {"close_stdio_in_probe", "its probe closed or replaced standard input, output or error"},
      {"replace_stdout_in_probe", "its probe closed or replaced standard input, output or error"},
      {"close_all_in_probe", "its probe closed descriptors that are not its own"},
      {"print_in_probe", "its probe printed to standard output: 'hello ?[31mfrom the plugin'"},
      {"print_much_in_probe", "its probe printed to standard output: 'hello from the plugin 0"},
      {"chdir_in_probe", "its probe changed the working directory"},
      {"exit0_in_probe", "its probe ended the process with status"},
      {"terminate_in_probe", "its probe crashed with signal 6"},
      {"fork_in_load", "its initialiser or turbo_plugin_query left a process behind"},
      {"print_in_load", "its initialiser or turbo_plugin_query printed to standard output: 'hello from the plugin"},
      {"exit0_in_load", "its initialiser ended the process with status"},
      {"throw_in_load", "its initialiser "},
  };
  const fs::path here = fs::current_path();
  int number = 0;
  for (const auto& c : cases) {
    const Installation fresh;
    fresh.add(fmt::format("fault{}", number++), "fault.so", fault_manifest());
    const ScopedEnv fault("FIXTURE_FAULT", c.fault);
    const auto begin = std::chrono::steady_clock::now();
    const Status status = open_sampler(fresh.settings());
    ASSERT_FALSE(status.is_ok()) << c.fault;
    EXPECT_TRUE(contains(status.message(), c.expected)) << c.fault;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4)) << c.fault;
    EXPECT_EQ(fs::current_path(), here) << c.fault;
    // Not run a second time: refused again at once.
    EXPECT_FALSE(open_sampler(fresh.settings()).is_ok()) << c.fault;
  }
  for (int fd = 0; fd <= 2; ++fd) EXPECT_GE(::fcntl(fd, F_GETFD), 0);
}

TEST(ProbeChild, AProcessThatWasWaitedForIsNoFault) {
  const Installation fresh;
  fresh.add("fault", "fault.so", fault_manifest());
  const ScopedEnv fault("FIXTURE_FAULT", "waited_for_in_probe");
  const Status status = open_sampler(fresh.settings());
  EXPECT_TRUE(status.is_ok()) << status.message();
}

TEST(ProbeChild, ADeletedWorkingDirectoryIsNoFault) {
  const Installation fresh;
  fresh.add("fault", "fault.so", fault_manifest());
  const fs::path here = fs::current_path(), gone = fresh.root() / "gone";
  fs::create_directory(gone);
  fs::current_path(gone);
  fs::remove(gone);
  const Status status = open_sampler(fresh.settings());
  fs::current_path(here);
  EXPECT_TRUE(status.is_ok()) << status.message();
}

TEST(ProbeChild, ManyProcessesShareACache) {
  const Installation fresh;
  fresh.add("fault", "fault.so", fault_manifest());
  std::vector<pid_t> processes;
  for (int i = 0; i < 6; ++i) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      std::vector<std::string> warnings;
      const bool good = open_sampler(fresh.settings(), &warnings).is_ok() && warnings.empty();
      ::_exit(good ? 0 : 1);
    }
    processes.push_back(pid);
  }
  for (const pid_t pid : processes) {
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  // One whole verdict and no leftovers.
  std::vector<fs::path> files(fs::directory_iterator(fresh.cache()), fs::directory_iterator{});
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].extension(), ".json");
  EXPECT_TRUE(nlohmann::json::accept(*read_bounded(files[0], 1 << 20)));
}

TEST(ProbeChild, TwoCopiesAreProbedAtOnce) {
  const Installation a, b, c, d;
  const std::vector<const Installation*> all{&a, &b, &c, &d};
  for (const Installation* installation : all) installation->add("fault", "fault.so", fault_manifest());
  std::vector<Status> statuses(all.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < all.size(); ++i)
    threads.emplace_back([&, i] {
      CatalogSettings settings = all[i]->settings();
      settings.probe.cache_folder = a.cache();
      statuses[i] = open_sampler(settings);
    });
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : statuses) EXPECT_TRUE(status.is_ok()) << status.message();
}

TEST(ProbeCache, WithoutAHomeNothingIsRemembered) {
  const ScopedEnv cache("XDG_CACHE_HOME", "relative/is/ignored"), home("HOME", "");
  EXPECT_TRUE(default_probe_cache_folder().empty());
  const Installation fresh;
  fresh.add("fault", "fault.so", fault_manifest());
  CatalogSettings settings = fresh.settings();
  settings.probe.cache_folder = default_probe_cache_folder();
  std::vector<std::string> warnings;
  EXPECT_TRUE(open_sampler(settings, &warnings).is_ok());
  EXPECT_TRUE(warnings.empty());
  // A culprit is refused as well, and the advice names no file.
  const Installation bad;
  bad.add("fault", "fault.so", fault_manifest());
  settings.install_folder = bad.plugins();
  const ScopedEnv fault("FIXTURE_FAULT", "crash_in_probe");
  const Status status = open_sampler(settings);
  EXPECT_TRUE(contains(status.message(), "its probe "));
  EXPECT_FALSE(contains(status.message() + status.hint(), ".json"));
}

TEST(ProbeCache, AMissingHomeIsNotMade) {
  const Installation fresh;
  const std::filesystem::path missing = fresh.cache() / "no" / "home", file = fresh.cache() / "file";
  const ScopedEnv cache("XDG_CACHE_HOME", ""), home("HOME", missing.string());
  EXPECT_TRUE(default_probe_cache_folder().empty());
  std::filesystem::create_directories(missing);
  EXPECT_EQ(default_probe_cache_folder(), missing / ".cache" / "turbo" / "probe");
  std::ofstream(file) << "not a folder";
  const ScopedEnv blocked("HOME", file.string());
  EXPECT_TRUE(default_probe_cache_folder().empty());
}

TEST(ProbeCache, AnythingInTheWayIsIgnored) {
  const Installation fresh;
  const fs::path library = fresh.add("fault", "fault.so", fault_manifest()) / "fault.so";
  const fs::path file = verdict_file(fresh.cache(), *identify_file(library));
  const auto expect_quiet = [&](const char* what) {
    std::vector<std::string> warnings;
    const Status status = open_sampler(fresh.settings(), &warnings);
    EXPECT_TRUE(status.is_ok()) << what << status.message();
    EXPECT_TRUE(warnings.empty()) << what;
  };
  fs::create_directories(file);
  expect_quiet("a folder of the file's name");
  fs::remove_all(fresh.cache());
  write_file(fresh.cache(), "a file where the folder should be");
  expect_quiet("no folder");
  fs::remove_all(fresh.cache());
  fs::create_directories(fresh.cache());
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  expect_quiet("a pipe");
  fs::remove_all(fresh.cache());
  write_file(file, std::string(200000, '['));
  expect_quiet("deep nesting");
  write_file(file, std::string(1 << 20, ' '));
  expect_quiet("too large");
}

TEST(ProbeCache, AVerdictThatAnybodyCouldHaveWrittenIsIgnored) {
  const Installation fresh;
  const fs::path library = fresh.add("fault", "fault.so", fault_manifest()) / "fault.so";
  {
    const ScopedEnv fault("FIXTURE_FAULT", "crash_in_probe");
    EXPECT_FALSE(open_sampler(fresh.settings()).is_ok());
  }
  const fs::path file = verdict_file(fresh.cache(), *identify_file(library));
  ASSERT_TRUE(fs::exists(file));
  EXPECT_FALSE(open_sampler(fresh.settings()).is_ok()) << "remembered";
  ASSERT_EQ(::chmod(file.c_str(), 0666), 0);
  EXPECT_TRUE(open_sampler(fresh.settings()).is_ok());
}

}  // namespace
}  // namespace turbo::loader
