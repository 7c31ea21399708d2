// Probing components: first in a child process that may crash or hang, then for real.
//
// A library that this machine has not proved yet is opened and probed by a child: the same executable, started with
// a hidden argument. What the child found is remembered by the file's identity (path, size, time, SHA-256), so the
// next start forks nothing and a culprit is not run again. [load] only.
#pragma once

#include <turbo/abi/plugin.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "loader/files.h"

namespace turbo::loader {

/// Call first in main(): when this process was started as a probe child, runs it and returns the exit status.
/// Calling it also tells the loader that children can be started; in a program that never does, probing happens
/// in process.
std::optional<int> run_if_probe_child(int argc, char** argv);

/// The child itself, for a main that has already looked at argv[1] == probe_child_flag.
int probe_child_main(int argc, char** argv);

inline constexpr const char* probe_child_flag = "--turbo-probe-child";

/// What is known of one library. Components are numbered as in the library.
struct Verdict {
  std::string refusal;                  // the library as a whole must not be opened; empty = it may
  std::string hint;                     // what to do about the refusal
  std::map<uint32_t, std::string> bad;  // components that crashed, hung or answered garbage: what happened
  bool remembered = false;              // came from the cache
};

struct ProbeSettings {
  std::chrono::milliseconds step_limit{2000};  // for loading, the query and each component's probe
  std::filesystem::path executable = "/proc/self/exe";
  std::filesystem::path cache_folder;  // empty: nothing is remembered
};

/// $XDG_CACHE_HOME/turbo/probe or ~/.cache/turbo/probe; empty when there is no home.
std::filesystem::path default_probe_cache_folder();

/// The verdict of the cache, or of a child. Fails only when no child can be started.
Result<Verdict> probe_in_child(const FileIdentity& library, uint32_t tier_hint, const ProbeSettings& settings);

/// Where the verdict of a library is remembered.
std::filesystem::path verdict_file(const std::filesystem::path& cache_folder, const FileIdentity& library);

struct ProbeOutcome {
  int32_t score = 0;        // 0 = unusable
  std::string reason;       // never empty when the score is 0
  std::string warning;      // took too long; empty = none
  bool misbehaved = false;  // threw or answered garbage, rather than saying no
};

/// Probe in this process. Garbage, an error status and an exception are answered as score 0 with the reason.
ProbeOutcome probe_here(const turbo_component& component, const turbo_host* host, const turbo_model_facts* model);

}  // namespace turbo::loader
