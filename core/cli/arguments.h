// The command line: which command, its own options, and the settings that outrank the profile. Pure.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/output.h"
#include "profile/flags.h"
#include "profile/profile.h"

namespace turbo::cli {

struct Option {
  std::string name;        // "--prompt"
  std::string value_name;  // empty = toggle
  std::string help;
  bool repeatable = false;
};

struct Arguments {
  std::string command;
  std::map<std::string, std::vector<std::string>> options;  // by name, in order; toggles hold "true"
  std::map<std::string, std::string> origins;               // where an option was given: its name, or its variable
  std::vector<std::string> positional;
  std::vector<profile::Override> overrides;  // environment first, then command line
  std::optional<std::string> profile;
  OutputStyle style;
  bool help = false;

  bool has(const std::string& name) const { return options.count(name) != 0; }
  std::string text(const std::string& name, std::string fallback = {}) const;
  /// The option as the user gave it: "--reps" or "TURBO_REPS". For messages.
  const std::string& shown(const std::string& name) const;
  std::vector<std::string> all(const std::string& name) const;
  /// A whole number in [least, most], or an error that names the option, the value and the range.
  Result<int64_t> integer(const std::string& name, int64_t fallback, int64_t least, int64_t most) const;
  Result<double> real(const std::string& name, double fallback, double least, double most) const;
  /// Comma-separated whole numbers.
  Result<std::vector<int64_t>> integers(const std::string& name, std::vector<int64_t> fallback, int64_t least, int64_t most) const;
};

struct Command;

/// `own` are the options of the command; shared flags and environment twins are understood beside them. Unknown
/// options are errors that suggest the nearest name; abbreviations are not accepted.
Result<Arguments> parse_arguments(const Command& command, const std::vector<std::string>& tokens,
                                  const profile::Environment& environment);

}  // namespace turbo::cli
