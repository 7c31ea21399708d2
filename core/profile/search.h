// Where profiles are looked for, and how a profile file is read: regular files only, size-capped, never blocking.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"

namespace turbo::profile {

/// Largest profile that is read, in bytes.
inline constexpr size_t max_profile_bytes = 1 << 20;

struct SearchPaths {
  std::filesystem::path working_folder;               // bare names and command-line paths start here
  std::vector<std::filesystem::path> config_folders;  // configs/ beside the install prefix, or of the source tree
  std::vector<std::filesystem::path> user_folders;    // from $TURBO_CONFIG_PATH, in order
  std::vector<std::filesystem::path> share_folders;  // second base of relative paths: <prefix>/share/turbo, source tree
};

/// The search paths of a running program: the current folder, $TURBO_CONFIG_PATH, and the configs/ and share folders
/// that belong to `executable`, for an installed tree (<prefix>/bin) and for a build tree
/// (<source>/build/<preset>/bin).
SearchPaths standard_search_paths(const std::filesystem::path& executable);

/// The file that a profile name or path means. A name with a '/' is a path; a bare name is looked up in the working
/// folder, the config folders and the user folders. ".yaml" may be left out. The not_found error lists where it looked
/// and the names that are there, and suggests the nearest.
Result<std::filesystem::path> find_profile(const std::string& name_or_path, const SearchPaths& search);

/// Names (without .yaml) of the profiles in all searched folders, sorted, each once.
std::vector<std::string> profile_names(const SearchPaths& search);

/// The whole text of a regular file of at most `limit` bytes. Folders, pipes, sockets and devices are refused without
/// being read.
Result<std::string> read_regular_file(const std::filesystem::path& path, size_t limit);

/// A relative path of a profile or flag made absolute: under `base` when it exists there, else under the first share
/// folder that has it, else under `base`.
std::filesystem::path resolve_path(const std::filesystem::path& path, const std::filesystem::path& base,
                                   const SearchPaths& search);

}  // namespace turbo::profile
