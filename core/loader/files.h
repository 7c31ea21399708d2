// Bounded, suspicious file access for the loader: regular files only, no following of surprises, SHA-256.
// Pure functions over the file system, any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/status.h"

namespace turbo::loader {

/// What identifies one build of a library on disk.
struct FileIdentity {
  std::string path;  // canonical
  uint64_t bytes = 0;
  int64_t mtime_ns = 0;
  std::string sha256;  // 64 lower-case hex digits
  bool operator==(const FileIdentity&) const = default;
};

/// The whole of a regular file of at most `max_bytes`. A FIFO, device or directory is refused without blocking.
Result<std::string> read_bounded(const std::filesystem::path& path, uint64_t max_bytes);

/// Size, time and SHA-256 of a regular file (at most 2 GiB).
Result<FileIdentity> identify_file(const std::filesystem::path& path);

/// SHA-256 of text, as hex.
std::string sha256_hex(std::string_view text);

/// Fails when the file or folder can be written to by everybody, or belongs to somebody else than root, the user of
/// this process and the owner of its executable.
Status check_trusted(const std::filesystem::path& path);

/// check_trusted of the path, and of the way to it: each symbolic link met must belong to one of the same users, and
/// each folder passed must not be open to everybody unless it is sticky, where the next step must belong to them.
Status check_trusted_path(const std::filesystem::path& path);

/// Write through a temporary name and rename, so that readers see all or nothing. Best effort: false on any failure.
bool replace_file(const std::filesystem::path& path, std::string_view text) noexcept;

/// `path` (relative to `folder`, symbolic links followed) as an absolute path, refused when it leaves `folder`.
Result<std::filesystem::path> resolve_inside(const std::filesystem::path& folder, const std::string& path);

}  // namespace turbo::loader
