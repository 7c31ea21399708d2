#include "kv/prefix_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "base/digest.h"
#include "kv/prefix_tree.h"

namespace turbo::kv {
namespace {

Status file_error(const std::string& name, const char* what) {
  const int why = errno;
  const Code code = why == ENOSPC || why == EDQUOT || why == EFBIG ? Code::resource_exhausted
                    : why == ENOENT                ? Code::not_found
                                                   : Code::internal;
  return error(code, "{}: cannot {}: {}", name, what, std::strerror(why))
      .with_hint(code == Code::resource_exhausted ? "free space on that disk" : "check the path and its permissions");
}

uint64_t bytes_of_block(const PrefixHeader& header, uint32_t index) {
  return header.block_bytes + (index < header.n_open_blocks ? header.open_block_bytes : 0);
}

// Nothing when it is beyond 64 bits.
std::optional<uint64_t> file_bytes(const PrefixHeader& header) {
  const uint64_t n = header.n_blocks, each = kBlock * sizeof(int32_t) + sizeof(Sha256::Value);
  const auto closed = checked_mul(n, header.block_bytes), open = checked_mul(std::min<uint64_t>(n, header.n_open_blocks), header.open_block_bytes);
  if (!closed || !open) return std::nullopt;
  const auto blocks = checked_add(*closed, *open);
  return blocks ? checked_add(*blocks, n * each + sizeof header + sizeof(Sha256::Value)) : std::nullopt;
}

Sha256::Value digest_of_head(const PrefixHeader& header, std::span<const int32_t> tokens) {
  return Sha256().add(std::as_bytes(std::span(&header, 1))).add(std::as_bytes(tokens)).finish();
}

constexpr char kUnfinished[] = ".turbo-part";

constexpr int kTries = 100;

// Files of writers that were killed. A living writer holds a lock on its file.
void remove_unfinished(const std::filesystem::path& folder) {
  std::error_code ec;
  for (auto entry = std::filesystem::directory_iterator(folder.empty() ? "." : folder, ec); !ec && entry != std::filesystem::directory_iterator();
       entry.increment(ec)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with('.') || !name.ends_with(kUnfinished)) continue;
    const int fd = ::open(entry->path().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0) continue;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) ::unlink(entry->path().c_str());
    ::close(fd);
  }
}

}  // namespace

Result<PrefixWriter> PrefixWriter::create(const std::filesystem::path& path, const PrefixHeader& header, std::span<const int32_t> tokens) {
  remove_unfinished(path.parent_path());
  // A leading dot: no saved prefix has such a name.
  const std::string pattern = (path.parent_path() / ("." + path.filename().string() + ".XXXXXX")).string() + kUnfinished;
  std::string temporary;
  int fd = -1;
  for (int tries = 0; fd < 0; ++tries) {
    temporary = pattern;
    fd = ::mkostemps(temporary.data(), static_cast<int>(sizeof kUnfinished - 1), O_CLOEXEC);  // 0600: a cache tells what was said
    if (fd < 0) {
      const Status failure = file_error(path.string(), "create the file");
      return failure.code() == Code::not_found ? Status(Code::internal, failure.message(), failure.hint()) : failure;
    }
    // Between its birth and the lock another process may have taken it for left over. Where files cannot be locked nobody
    // takes them for that.
    struct stat info {};
    const bool taken = ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!taken && ::fstat(fd, &info) == 0 && info.st_nlink > 0) break;
    ::unlink(temporary.c_str());
    ::close(std::exchange(fd, -1));
    if (tries == kTries) return error(Code::internal, "{}: other processes keep removing the unfinished file", path.string());
  }
  PrefixWriter writer(path, temporary, File(::fdopen(fd, "wb")));
  if (!writer.file_) {
    ::close(fd);
    ::unlink(temporary.c_str());
    return file_error(path.string(), "create the file");
  }
  TURBO_RETURN_IF_ERROR(writer.write(std::as_bytes(std::span(&header, 1))));
  TURBO_RETURN_IF_ERROR(writer.write(std::as_bytes(tokens)));
  TURBO_RETURN_IF_ERROR(writer.write(digest_of_head(header, tokens)));
  return writer;
}

PrefixWriter::~PrefixWriter() {
  if (!file_) return;
  file_.reset();
  std::error_code ignored;
  std::filesystem::remove(temporary_, ignored);
}

Status PrefixWriter::write(std::span<const std::byte> bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) == bytes.size()) return Status::ok();
  return file_error(path_.string(), "write");
}

Status PrefixWriter::add_block(std::span<const std::byte> bytes) {
  TURBO_RETURN_IF_ERROR(write(bytes));
  return write(Sha256().add(bytes).finish());
}

Status PrefixWriter::commit() {
  if (std::fflush(file_.get()) != 0 || ::fsync(::fileno(file_.get())) != 0) return file_error(path_.string(), "write");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return file_error(path_.string(), "move the file into place");
  file_.reset();
  return Status::ok();
}

Result<PrefixReader> PrefixReader::open(const std::filesystem::path& path, const PrefixHeader& expected, uint32_t max_blocks) {
  const std::string name = path.string();
  // Non-blocking, so that a pipe in the file's place cannot hold us.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return file_error(name, "open");
  PrefixReader reader(name, File(::fdopen(fd, "rb")));
  if (!reader.file_) {
    ::close(fd);
    return file_error(name, "open");
  }
  struct stat info {};
  if (::fstat(fd, &info) != 0) return file_error(name, "look at the file");
  if (!S_ISREG(info.st_mode)) return error(Code::invalid_argument, "{}: not a regular file", name);

  PrefixHeader& header = reader.header_;
  const PrefixHeader plain;
  TURBO_RETURN_IF_ERROR(reader.read(std::as_writable_bytes(std::span(&header, 1))));
  if (std::memcmp(header.magic, plain.magic, sizeof header.magic) != 0)
    return error(Code::corrupt_input, "{}: not a saved prefix of this version of turbo", name).with_hint("save it again");
  if (std::memcmp(header.fingerprint, expected.fingerprint, sizeof header.fingerprint) != 0)
    return error(Code::unsupported, "{}: saved with another model, KV codec or numeric setting", name)
        .with_hint("save it again with the settings in use");
  if (header.n_blocks == 0 || header.block_bytes != expected.block_bytes || header.open_block_bytes != expected.open_block_bytes ||
      header.n_open_blocks != std::min(header.n_blocks, expected.n_open_blocks))
    return error(Code::corrupt_input, "{}: the sizes in its head do not fit the cache", name);
  const std::optional<uint64_t> size = file_bytes(header);
  if (!size || static_cast<uint64_t>(info.st_size) != *size)
    return error(Code::corrupt_input, "{}: its {} bytes are not what its head says", name, info.st_size).with_hint("the file was cut short; save it again");
  reader.tokens_.resize(size_t{header.n_blocks} * kBlock);
  Sha256::Value digest;
  TURBO_RETURN_IF_ERROR(reader.read(std::as_writable_bytes(std::span(reader.tokens_))));
  TURBO_RETURN_IF_ERROR(reader.read(digest));
  if (digest != digest_of_head(header, reader.tokens_)) return error(Code::corrupt_input, "{}: its head is damaged", name);
  if (header.n_blocks > max_blocks)
    return error(Code::resource_exhausted, "{}: {} blocks, but the KV pool has {}", name, header.n_blocks, max_blocks)
        .with_hint("raise kv.pool_tokens");
  return reader;
}

Status PrefixReader::read(std::span<std::byte> bytes) {
  if (std::fread(bytes.data(), 1, bytes.size(), file_.get()) == bytes.size()) return Status::ok();
  return error(Code::corrupt_input, "{}: the file ends early", name_).with_hint("save it again");
}

Result<std::vector<std::byte>> PrefixReader::next_block() {
  if (next_ == header_.n_blocks) return error(Code::internal, "{}: no block left", name_);
  std::vector<std::byte> bytes(bytes_of_block(header_, next_));
  Sha256::Value digest;
  TURBO_RETURN_IF_ERROR(read(bytes));
  TURBO_RETURN_IF_ERROR(read(digest));
  if (digest != Sha256().add(bytes).finish()) return error(Code::corrupt_input, "{}: block {} is damaged", name_, next_);
  ++next_;
  return bytes;
}

}  // namespace turbo::kv
