// Command-line flags and environment variables that mean profile settings.
//
// One table holds the options that all commands share and the flags of the engine whose command lines carry over. Each
// flag names a profile key, or says why it is accepted without effect. Options of a single command (--prompt, --reps)
// belong to that command. Every long option has an environment twin: --kv-codec is TURBO_KV_CODEC.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "profile/keys.h"
#include "profile/profile.h"

namespace turbo::profile {

enum class FlagGroup { shared, compatible };

struct Flag {
  std::string name;        // "--kv-codec"; aliases are rows of their own
  std::string value_name;  // "NAME"; empty for a toggle, which may still be given =true or =false
  std::string key;         // profile key it sets; empty when the command handles it, or when it has no effect
  std::string help;
  FlagGroup group = FlagGroup::compatible;
  bool repeatable = false;
  bool command = false;  // --profile, --json, --quiet: the command itself handles it
  std::vector<std::string> for_drafters{};
  std::string no_effect{};  // why it changes nothing
  ValueRule rule{};         // checked here when the flag has no effect
  /// Value to settings where it is more than a copy; `origin` names the flag or variable in messages.
  Result<std::vector<Override>> (*translate)(const Flag&, const std::string& value,
                                             const std::string& origin) = nullptr;
};

std::span<const Flag> flag_table();

/// Exact name, with the dashes; no abbreviations.
const Flag* find_flag(std::string_view name);

/// The settings that "name value" means, in order. A toggle's value is empty, "true"/"1" or "false"/"0". Errors name
/// the flag, the value and what is accepted; names that no longer exist get their own message.
Result<std::vector<Override>> flag_to_overrides(const std::string& name, const std::string& value,
                                                const std::string& origin = {});

/// The error for an option nobody knows, with the nearest of the table and of `other_names` (the command's own).
Status unknown_flag(const std::string& name, std::span<const std::string> other_names = {});

/// "--kv-codec" -> "TURBO_KV_CODEC".
std::string environment_name(std::string_view flag);

using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

/// Settings from the twins of all flags, and from the variables of the compatible engine, each of which is honoured,
/// noted as being without effect, or refused. An empty variable counts as unset.
Result<std::vector<Override>> environment_overrides(const Environment& environment);

}  // namespace turbo::profile
