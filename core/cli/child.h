// Another run of a program, kept at arm's length: what it prints is collected, what it breaks is its own.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace turbo::cli {

struct ChildResult {
  std::string out, err;       // what was printed, each cut at the limit
  std::string failure;        // empty: it ended by itself with exit_code; else what became of it ("ended by signal 11 (Segmentation fault)")
  int exit_code = -1;
  double seconds = 0;
};

struct ChildSettings {
  std::filesystem::path executable = "/proc/self/exe";
  std::chrono::milliseconds limit{60000};  // then it is killed
  size_t most_bytes = size_t{4} << 20;     // of each stream
  std::function<bool(const std::string& name)> keeps_variable;  // empty: all of the environment
};

/// Runs `words` (without the program's name) and waits. The child dies with this process. Never throws what a caller
/// must know: each way to fail is a `failure`. The calling thread must outlive the child.
ChildResult run_child(const std::vector<std::string>& words, const ChildSettings& settings);

}  // namespace turbo::cli
