// The commands of turbo. Each is one function in a file of its own.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "engine/runtime.h"

namespace turbo::cli {

struct Command {
  std::string name;
  std::string usage;    // after the name
  std::string summary;  // one line
  std::vector<Option> options;
  int (*run)(const Arguments& arguments);
  size_t max_positional = 0;  // words that are not options
  bool own_signals = false;   // the command ends itself on SIGINT and SIGTERM; others are ended at once
};

std::span<const Command> commands();
const Command* find_command(const std::string& name);

int run_serve(const Arguments& arguments);
int run_run(const Arguments& arguments);
int run_bench(const Arguments& arguments);
int run_perplexity(const Arguments& arguments);
int run_tokenize(const Arguments& arguments);
int run_detokenize(const Arguments& arguments);
int run_plan(const Arguments& arguments);
int run_plugins(const Arguments& arguments);
int run_inspect(const Arguments& arguments);
int run_doctor(const Arguments& arguments);

/// Parse argv and run; the whole of main() but for the probe child.
int run_command_line(int argc, char** argv);

// ---- what commands share ----

/// The effective profile, its adjustments logged; prints the error and sets `exit_code` on failure.
std::optional<profile::Profile> load_profile(const Arguments& arguments, int& exit_code);
/// The loaded model with a progress bar; prints the error and sets `exit_code` on failure.
std::unique_ptr<engine::Runtime> load_runtime(const profile::Profile& profile, const Arguments& arguments, int& exit_code);
/// Exit code of a failure at a stage of loading.
int exit_code_of(const Status& status, engine::LoadStage stage);
/// Prints and gives the exit code.
int fail(const Status& status, const Arguments& arguments, int exit_code = kFailed);
/// The executable's own path.
std::filesystem::path executable_path();
/// A whole regular file or, for "-", stdin, at most `limit` bytes.
Result<std::string> read_text(const std::string& path, size_t limit = size_t{1} << 30);
/// The text that a file option names, or stdin without it; errors name the option.
Result<std::string> read_option_file(const Arguments& arguments, const std::string& option, size_t limit = size_t{1} << 30);

}  // namespace turbo::cli
