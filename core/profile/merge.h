// Inside core/profile: merges a parsed file and the overrides into a Profile, and remembers where each setting came
// from, so that the cross-checks of validate.cpp can name the line or the flag.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "profile/keys.h"
#include "profile/profile.h"
#include "profile/scalar.h"
#include "profile/yaml_tree.h"

namespace turbo::profile {

struct Origin {
  std::string where;  // "default.yaml:3:7", or the override's origin
  bool from_file = false;
};

/// By full key path, entries of maps included ("kv.options.sinks"). A drafter option given in the short form
/// ("drafter.ghosts") is listed under both paths.
using Origins = std::map<std::string, Origin>;

class Merger {
 public:
  Merger(const std::filesystem::path& source, const SearchPaths& search);

  Status apply_file(const YamlNode& root);
  Status apply_overrides(std::span<const Override> given);

  Profile& profile() { return profile_; }
  const Origins& origins() const { return origins_; }

 private:
  Status apply_map(const YamlNode& map, const std::string& prefix);
  Status apply_entry(const YamlNode::Entry& entry, const std::string& path);
  Status apply_value(const KeySpec& spec, const YamlNode& value);
  Status apply_map_value(const KeySpec& spec, const YamlNode& value);
  Status apply_short_option(const DrafterOption& option, const YamlNode::Entry& entry);
  Status apply_override(const Override& setting);
  Status override_list(const KeySpec& spec, const Override& setting);
  Status check_emptied_keys(const KeySpec& spec, const Override& setting);
  Status set_map_entry(const KeySpec& spec, const std::string& entry, const std::string& value);
  void forget_other_drafter(std::span<const Override> overrides);
  bool fits_drafter(const Override& setting);

  Result<Value> read(const KeySpec& spec, const Scalar& scalar, bool from_file) const;
  std::string place(Position at) const;
  Status at(Position position, const std::string& path, const Status& status) const;

  const SearchPaths& search_;
  std::filesystem::path base_;  // folder of the profile file
  std::string file_;            // as shown in messages
  Profile profile_;
  Origins origins_;
};

/// The error for a key that does not exist: suggests the nearest name, the full path of a misplaced key, or the key
/// that a command-line flag of that name sets. `where` is a place or an override's origin.
Status unknown_key(const std::string& where, const std::string& path);

/// Cross-key rules; fills Profile::adjustments. See validate.cpp.
Status validate(Profile& profile, const Origins& origins);

}  // namespace turbo::profile
