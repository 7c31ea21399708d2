#include "loader/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <vector>

#include "base/digest.h"
#include "loader/text.h"

namespace turbo::loader {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t max_library_bytes = 2ull << 30;

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

std::string shown(const fs::path& path) { return clean_text(path.string(), 1024); }

Result<FileDescriptor> open_regular(const fs::path& path, uint64_t max_bytes, struct stat* facts) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.get() < 0)
    return error(errno == ENOENT ? Code::not_found : Code::invalid_argument, "{}: cannot open: {}", shown(path),
                 std::strerror(errno));
  if (::fstat(file.get(), facts) != 0)
    return error(Code::invalid_argument, "{}: cannot stat: {}", shown(path), std::strerror(errno));
  if (!S_ISREG(facts->st_mode)) return error(Code::invalid_argument, "{}: expected a regular file", shown(path));
  if (static_cast<uint64_t>(facts->st_size) > max_bytes)
    return error(Code::resource_exhausted, "{}: expected at most {} bytes but found {}", shown(path), max_bytes,
                 static_cast<uint64_t>(facts->st_size));
  return file;
}

}  // namespace

Result<std::string> read_bounded(const fs::path& path, uint64_t max_bytes) {
  struct stat facts {};
  TURBO_ASSIGN(const FileDescriptor file, open_regular(path, max_bytes, &facts));
  std::string text;
  std::array<char, 16384> chunk;
  for (;;) {
    const ssize_t got = ::read(file.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return error(Code::invalid_argument, "{}: cannot read: {}", shown(path), std::strerror(errno));
    if (got == 0) return text;
    text.append(chunk.data(), static_cast<size_t>(got));
    if (text.size() > max_bytes)  // grew since fstat
      return error(Code::resource_exhausted, "{}: expected at most {} bytes", shown(path), max_bytes);
  }
}

Result<FileIdentity> identify_file(const fs::path& path) {
  struct stat facts {};
  TURBO_ASSIGN(const FileDescriptor file, open_regular(path, max_library_bytes, &facts));
  Sha256 digest;
  std::vector<std::byte> chunk(1 << 18);
  uint64_t total = 0;
  for (;;) {
    const ssize_t got = ::read(file.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return error(Code::invalid_argument, "{}: cannot read: {}", shown(path), std::strerror(errno));
    if (got == 0) break;
    digest.add(std::span(chunk).first(static_cast<size_t>(got)));
    total += static_cast<uint64_t>(got);
    if (total > max_library_bytes) return error(Code::resource_exhausted, "{}: file grows while read", shown(path));
  }
  return FileIdentity{path.string(), total, facts.st_mtim.tv_sec * 1000000000ll + facts.st_mtim.tv_nsec,
                      Sha256::hex(digest.finish())};
}

std::string sha256_hex(std::string_view text) {
  return Sha256::hex(Sha256().add(std::as_bytes(std::span(text))).finish());
}

namespace {

bool is_trusted_user(uid_t user) {
  if (user == 0 || user == ::geteuid()) return true;
  // Whoever owns the executable decides what this process does anyway.
  struct stat self {};
  return ::stat("/proc/self/exe", &self) == 0 && self.st_uid == user;
}

Status not_open(const fs::path& path, const struct stat& facts) {
  if (S_ISLNK(facts.st_mode) || (facts.st_mode & S_IWOTH) == 0) return Status::ok();
  return Status(Code::invalid_argument,
                fmt::format("{}: everybody may write to it, so anybody could put something else there", shown(path)),
                fmt::format("run `chmod o-w {}`, or set plugins.allow_unsafe: true", shown(path)));
}

Status owned(const fs::path& path, const struct stat& facts) {
  if (is_trusted_user(facts.st_uid)) return Status::ok();
  return Status(
      Code::invalid_argument,
      fmt::format("{}: belongs to another user ({}), who could put something else there", shown(path), facts.st_uid),
      fmt::format("run `chown -h {} {}` once you trust what is there, or set plugins.allow_unsafe: true", ::geteuid(),
                  shown(path)));
}

Status cannot_stat(const fs::path& path) {
  return error(errno == ENOENT ? Code::not_found : Code::invalid_argument, "{}: cannot stat: {}", shown(path),
               std::strerror(errno));
}

}  // namespace

Status check_trusted(const fs::path& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return cannot_stat(path);
  TURBO_RETURN_IF_ERROR(not_open(path, facts));
  return owned(path, facts);
}

Status check_trusted_path(const fs::path& path) {
  constexpr int max_links = 40;
  std::error_code failed;
  const fs::path start = fs::absolute(path, failed);
  if (failed) return error(Code::invalid_argument, "{}: {}", shown(path), failed.message());
  // The walk of the kernel, step by step, so that every folder and link that decides about the end is seen.
  std::vector<fs::path> steps;  // still to go, next one last
  const auto push = [&](const fs::path& more) {
    const std::vector<fs::path> parts(more.begin(), more.end());
    steps.insert(steps.end(), parts.rbegin(), parts.rend());
  };
  push(start.relative_path());
  fs::path here = "/";
  struct stat folder {};
  for (int links = 0; !steps.empty();) {
    const fs::path step = steps.back();
    steps.pop_back();
    if (step.empty() || step == ".") continue;
    if (step == "..") {
      here = here.parent_path();
      continue;
    }
    if (::stat(here.c_str(), &folder) != 0) return cannot_stat(here);
    const bool sticky = (folder.st_mode & S_ISVTX) != 0;
    if (!sticky) TURBO_RETURN_IF_ERROR(not_open(here, folder));
    const fs::path next = here / step;
    struct stat facts {};
    if (::lstat(next.c_str(), &facts) != 0) return cannot_stat(next);
    const bool link = S_ISLNK(facts.st_mode);
    if (link || (sticky && (folder.st_mode & S_IWOTH) != 0)) TURBO_RETURN_IF_ERROR(owned(next, facts));
    if (!link) {
      here = next;
      continue;
    }
    if (++links > max_links) return error(Code::invalid_argument, "{}: too many symbolic links", shown(path));
    const fs::path target = fs::read_symlink(next, failed);
    if (failed) return error(Code::invalid_argument, "{}: {}", shown(next), failed.message());
    if (target.is_absolute()) here = "/";
    push(target.relative_path());
  }
  return check_trusted(here);
}

bool replace_file(const fs::path& path, std::string_view text) noexcept {
  try {
    std::error_code failed;
    fs::create_directories(path.parent_path(), failed);
    std::string temporary = path.string() + ".XXXXXX";
    const FileDescriptor file(::mkostemp(temporary.data(), O_CLOEXEC));
    if (file.get() < 0) return false;
    while (!text.empty()) {
      const ssize_t written = ::write(file.get(), text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) break;
      text.remove_prefix(static_cast<size_t>(written));
    }
    if (text.empty() && ::rename(temporary.c_str(), path.c_str()) == 0) return true;
    ::unlink(temporary.c_str());
    return false;
  } catch (...) {
    return false;
  }
}

Result<fs::path> resolve_inside(const fs::path& folder, const std::string& path) {
  std::error_code failed;
  const fs::path base = fs::canonical(folder, failed);
  if (failed) return error(Code::not_found, "{}: {}", shown(folder), failed.message());
  const fs::path full = fs::canonical(base / path, failed);
  if (failed) return error(Code::not_found, "{}: {}", shown(base / path), failed.message());
  const fs::path inside = full.lexically_relative(base);
  if (inside.empty() || *inside.begin() == ".." || inside.is_absolute())
    return Status(Code::invalid_argument,
                  fmt::format("{}: leads to {}, outside its folder", shown(base / path), shown(full)),
                  "keep the library beside its manifest");
  return full;
}

}  // namespace turbo::loader
