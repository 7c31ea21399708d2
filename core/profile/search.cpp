#include "profile/search.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string_view>
#include <system_error>

#include "base/nearest.h"
#include "profile/printable.h"

namespace turbo::profile {
namespace fs = std::filesystem;
namespace {

constexpr size_t max_listed_names = 32;
constexpr size_t max_scanned_entries = 4096;

bool path_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool has_yaml_extension(const fs::path& path) { return path.extension() == ".yaml" || path.extension() == ".yml"; }

// Names to try in one place. "turbo" must mean turbo.yaml rather than a program called turbo that lies beside it.
std::vector<std::string> spellings(const std::string& name) {
  if (has_yaml_extension(name)) return {name, name + ".yaml"};
  return {name + ".yaml", name + ".yml", name};
}

std::vector<fs::path> searched_folders(const SearchPaths& search) {
  std::vector<fs::path> folders;
  if (!search.working_folder.empty()) folders.push_back(search.working_folder);
  folders.insert(folders.end(), search.config_folders.begin(), search.config_folders.end());
  folders.insert(folders.end(), search.user_folders.begin(), search.user_folders.end());
  return folders;
}

const char* file_kind(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a named pipe";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  if (S_ISSOCK(mode)) return "a socket";
  return "not a regular file";
}

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

SearchPaths standard_search_paths(const fs::path& executable) {
  SearchPaths search;
  std::error_code failed;
  search.working_folder = fs::current_path(failed);
  const fs::path bin = fs::weakly_canonical(executable, failed).parent_path();
  if (!bin.empty()) {
    // The build tree is tried second, so that a stray checkout around an installed prefix changes nothing.
    for (const fs::path& root :
         {bin.parent_path() / "share" / "turbo", bin.parent_path().parent_path().parent_path()}) {
      if (!path_exists(root / "configs" / "default.yaml")) continue;
      search.config_folders.push_back(root / "configs");
      search.share_folders.push_back(root);
      break;
    }
  }
  if (const char* list = std::getenv("TURBO_CONFIG_PATH")) {
    std::string_view rest = list;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find(':'), rest.size());
      if (end > 0) search.user_folders.emplace_back(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  return search;
}

std::vector<std::string> profile_names(const SearchPaths& search) {
  std::set<std::string> names;
  for (const fs::path& folder : searched_folders(search)) {
    std::error_code failed;
    size_t scanned = 0;
    for (fs::directory_iterator it(folder, failed), end; !failed && it != end && scanned < max_scanned_entries;
         it.increment(failed), ++scanned) {
      std::error_code ignored;
      const std::string stem = it->path().stem().string();
      if (has_yaml_extension(it->path()) && it->is_regular_file(ignored) && !stem.starts_with('.')) names.insert(stem);
    }
  }
  return {names.begin(), names.end()};
}

Result<fs::path> find_profile(const std::string& name_or_path, const SearchPaths& search) {
  if (name_or_path.empty()) return Status(Code::invalid_argument, "profile: the name is empty", "name a .yaml file");
  if (name_or_path.find('\0') != std::string::npos || name_or_path.size() > 4096)
    return error(Code::invalid_argument, "profile {}: not a usable file name", printable(name_or_path));
  const bool bare = name_or_path.find('/') == std::string::npos;
  const std::vector<fs::path> folders = bare ? searched_folders(search) : std::vector<fs::path>{search.working_folder};
  fs::path wrong_kind;  // a folder, a pipe or an unreadable place, reported only when nothing better turns up
  for (const fs::path& folder : folders) {
    for (const std::string& spelling : spellings(name_or_path)) {
      const fs::path candidate = folder / spelling;
      std::error_code failed;
      const fs::file_status status = fs::status(candidate, failed);
      if (fs::is_regular_file(status)) return candidate;
      if (wrong_kind.empty() && status.type() != fs::file_type::not_found) wrong_kind = candidate;
    }
  }
  if (!wrong_kind.empty()) return wrong_kind;  // read_regular_file refuses it and says what it is
  std::vector<std::string> names = profile_names(search);
  const std::string near = nearest_name(fs::path(name_or_path).stem().string(), names);
  std::vector<std::string> looked;
  for (const fs::path& folder : folders) looked.push_back(folder.empty() ? "." : folder.string());
  if (!bare) {
    // A path is looked for where it points, and nowhere else.
    const bool relative = fs::path(name_or_path).is_relative();
    return Status(Code::not_found,
                  fmt::format("profile {}: no such file{}", printable(name_or_path), relative ? "; paths start at " + looked.front() : ""),
                  near.empty() ? "check the path; a name without '/' is looked up in the folders of profiles"
                               : fmt::format("check the path, or give the name alone: --profile {}", near));
  }
  if (names.size() > max_listed_names) names.resize(max_listed_names);
  std::string hint = near.empty() ? "" : fmt::format("did you mean '{}'? ", near);
  hint += names.empty() ? "there are no profiles there; give the path of a .yaml file"
                        : fmt::format("profiles there: {}", fmt::join(names, ", "));
  return Status(Code::not_found,
                fmt::format("profile {}: no such file; looked in {}", printable(name_or_path), fmt::join(looked, ", ")),
                hint);
}

Result<std::string> read_regular_file(const fs::path& path, size_t limit) {
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY)};
  const int open_error = errno;
  if (file.fd < 0)
    return Status(open_error == ENOENT ? Code::not_found : Code::invalid_argument,
                  fmt::format("{}: cannot be read: {}", path.string(), std::generic_category().message(open_error)),
                  "check the path and its permissions");
  struct stat info {};
  if (::fstat(file.fd, &info) != 0)
    return error(Code::invalid_argument, "{}: cannot be read: {}", path.string(),
                 std::generic_category().message(errno));
  if (!S_ISREG(info.st_mode))
    return Status(Code::invalid_argument,
                  fmt::format("{}: expected a regular file but found {}", path.string(), file_kind(info.st_mode)),
                  "name a .yaml file");
  const auto too_large = [&] {
    return Status(Code::resource_exhausted,
                  fmt::format("{}: expected at most {} bytes but the file is larger", path.string(), limit),
                  "a profile is a short text file; check that this is the right file");
  };
  if (info.st_size > 0 && static_cast<uint64_t>(info.st_size) > limit) return too_large();
  std::string text;
  char chunk[16384];
  for (;;) {  // until the end rather than st_size: files of /proc say 0
    const ssize_t got = ::read(file.fd, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return error(Code::invalid_argument, "{}: reading failed: {}", path.string(),
                   std::generic_category().message(errno));
    if (got == 0) return text;
    if (text.size() + static_cast<size_t>(got) > limit) return too_large();
    text.append(chunk, static_cast<size_t>(got));
  }
}

fs::path resolve_path(const fs::path& path, const fs::path& base, const SearchPaths& search) {
  if (path.empty()) return path;
  if (path.is_absolute()) return path.lexically_normal();
  const fs::path first = (base / path).lexically_normal();
  if (path_exists(first)) return first;
  for (const fs::path& share : search.share_folders)
    if (path_exists(share / path)) return (share / path).lexically_normal();
  return first;
}

}  // namespace turbo::profile
