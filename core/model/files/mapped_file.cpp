#include "model/files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "model/files/utf8.h"

namespace turbo::model {
namespace {

namespace fs = std::filesystem;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

std::string shown(const fs::path& path) { return printable(path.string(), 400); }

const char* kind_name(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "not a regular file";
}

Status open_failure(const fs::path& path, int reason) {
  const Code code = reason == ENOENT || reason == ENOTDIR ? Code::not_found : Code::invalid_argument;
  const char* hint = reason == ENOENT ? "check the path" : reason == EACCES ? "check the file's permissions" : "";
  return error(code, "{}: cannot open: {}", shown(path), std::strerror(reason)).with_hint(hint);
}

/// Opens without blocking on pipes and checks that it is a regular file.
Status open_regular(const fs::path& path, int* fd, struct stat* info) {
  *fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (*fd < 0) return open_failure(path, errno);
  if (::fstat(*fd, info) != 0) return open_failure(path, errno);
  if (!S_ISREG(info->st_mode)) {
    return error(Code::invalid_argument, "{}: expected a regular file but found {}", shown(path),
                 kind_name(info->st_mode));
  }
  return Status::ok();
}

/// Reads exactly `size` bytes.
Status read_exactly(int fd, std::byte* into, uint64_t size, const std::string& name) {
  uint64_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(fd, into + done, std::min<uint64_t>(size - done, 64u << 20));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return error(Code::internal, "{}: read error at byte {}: {}", name, done, std::strerror(errno));
    if (n == 0) {
      return error(Code::corrupt_input, "{}: expected {} bytes but the file ended at byte {} while it was read", name,
                   size, done)
          .with_hint("something else changes the file; wait until it is complete");
    }
    done += uint64_t(n);
  }
  return Status::ok();
}

}  // namespace

Result<MappedFile> MappedFile::open(const fs::path& path, bool use_mmap) {
  int fd = -1;
  struct stat info = {};
  const Status opened = open_regular(path, &fd, &info);
  const Descriptor descriptor(fd);
  if (!opened) return opened;

  MappedFile file;
  file.path_ = path;
  file.name_ = printable(path.filename().string(), 200);
  file.identity_ = {info.st_dev, info.st_ino, uint64_t(info.st_size), info.st_mtim};
  if (info.st_size == 0) return file;

  const uint64_t size = uint64_t(info.st_size);
  if (!use_mmap) {
    const uint64_t memory = uint64_t(::sysconf(_SC_PHYS_PAGES)) * uint64_t(::sysconf(_SC_PAGESIZE));
    if (size > memory) {
      return error(Code::resource_exhausted, "{}: {} bytes do not fit into this machine's memory of {} bytes",
                   file.name_, size, memory)
          .with_hint("let turbo map the file instead of reading it");
    }
  }
  void* data = use_mmap ? ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0)
                        : ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return error(Code::resource_exhausted, "{}: cannot map {} bytes: {}", file.name_, size, std::strerror(errno))
        .with_hint("raise the limit on address space (ulimit -v)");
  }
  file.data_ = static_cast<const std::byte*>(data);
  file.size_ = size;
  file.storage_ = use_mmap ? Storage::mapped : Storage::anonymous;
  if (!use_mmap) TURBO_RETURN_IF_ERROR(file.read_whole(fd));
  return file;
}

Status MappedFile::read_whole(int descriptor) {
  auto* into = const_cast<std::byte*>(data_);
  TURBO_RETURN_IF_ERROR(read_exactly(descriptor, into, size_, name_));
  ::mprotect(into, size_, PROT_READ);
  return Status::ok();
}

MappedFile MappedFile::borrow(std::string name, std::span<const std::byte> bytes) {
  MappedFile file;
  file.name_ = std::move(name);
  file.data_ = bytes.data();
  file.size_ = bytes.size();
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  release();
  path_ = std::move(other.path_);
  name_ = std::move(other.name_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  storage_ = std::exchange(other.storage_, Storage::borrowed);
  identity_ = other.identity_;
  return *this;
}

MappedFile::~MappedFile() { release(); }

void MappedFile::release() {
  if (storage_ != Storage::borrowed && data_) ::munmap(const_cast<std::byte*>(data_), size_);
  data_ = nullptr;
  size_ = 0;
}

Status MappedFile::verify_unchanged() const {
  if (path_.empty()) return Status::ok();
  const char* hint = "do not write to model files while turbo runs; start again when the file is complete";
  struct stat now = {};
  if (::stat(path_.c_str(), &now) != 0) {
    return error(Code::corrupt_input, "{}: the file was removed while it was loaded", name_).with_hint(hint);
  }
  if (now.st_dev != identity_.device || now.st_ino != identity_.inode) {
    return error(Code::corrupt_input, "{}: the file was replaced by another while it was loaded", name_)
        .with_hint(hint);
  }
  if (uint64_t(now.st_size) != identity_.size) {
    return error(Code::corrupt_input, "{}: the file changed while it was loaded: expected {} bytes but found {}", name_,
                 identity_.size, uint64_t(now.st_size))
        .with_hint(hint);
  }
  if (now.st_mtim.tv_sec != identity_.modified.tv_sec || now.st_mtim.tv_nsec != identity_.modified.tv_nsec) {
    return error(Code::corrupt_input, "{}: the file was written to while it was loaded", name_).with_hint(hint);
  }
  return Status::ok();
}

void MappedFile::drop_pages(const std::byte* begin, uint64_t bytes) const {
  if (storage_ != Storage::mapped || begin < data_ || begin > data_ + size_) return;
  const uint64_t page = uint64_t(::sysconf(_SC_PAGESIZE));
  const uint64_t from = (uint64_t(begin - data_) + page - 1) / page * page;
  const uint64_t to = (uint64_t(begin - data_) + std::min(bytes, size_ - uint64_t(begin - data_))) / page * page;
  if (from < to) ::madvise(const_cast<std::byte*>(data_) + from, to - from, MADV_DONTNEED);
}

Result<std::string> read_text_file(const fs::path& path, uint64_t limit) {
  int fd = -1;
  struct stat info = {};
  const Status opened = open_regular(path, &fd, &info);
  const Descriptor descriptor(fd);
  if (!opened) return opened;
  const std::string name = printable(path.filename().string(), 200);
  if (uint64_t(info.st_size) > limit) {
    return error(Code::resource_exhausted, "{}: expected at most {} bytes but found {}", name, limit,
                 uint64_t(info.st_size));
  }
  std::string text(size_t(info.st_size), '\0');
  TURBO_RETURN_IF_ERROR(read_exactly(fd, reinterpret_cast<std::byte*>(text.data()), text.size(), name));
  return text;
}

Result<fs::path> file_inside(const fs::path& folder, const std::string& file_name, const std::string& owner) {
  const auto refuse = [&](const char* why) {
    return error(Code::corrupt_input, "{}: file name '{}': expected a file inside the model's folder but {}", owner,
                 printable(file_name), why)
        .with_hint("the model's files must lie side by side; download the model again from a source you trust");
  };
  if (file_name.empty() || file_name == "." || file_name == "..") return refuse("it is not a name");
  if (file_name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) return refuse("it holds a path");

  const fs::path path = folder / file_name;
  std::error_code failed;
  const fs::path root = fs::canonical(folder.empty() ? fs::path(".") : folder, failed);
  if (failed) return error(Code::not_found, "{}: cannot open: {}", shown(folder), failed.message());
  const fs::path target = fs::canonical(path, failed);
  if (failed) {
    return error(Code::not_found, "{}: file '{}' is missing", owner, printable(file_name))
        .with_hint("the model is incomplete; download the missing file into the same folder");
  }
  if (target.parent_path() == root) return path;
  const bool in_cache = root.parent_path().filename() == "snapshots" &&
                        target.parent_path() == root.parent_path().parent_path() / "blobs";
  return in_cache ? Result<fs::path>(path) : Result<fs::path>(refuse("it is a link that leads outside"));
}

}  // namespace turbo::model
