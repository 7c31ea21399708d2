// A regular file as read-only bytes: mapped, or read whole into memory.
//
// A mapping shows later changes of the file, and a file that is cut short while mapped ends the process at the next
// access, as on any POSIX system. So: verify_unchanged() tells after loading whether the bytes were stable, and
// use_mmap = false reads a copy. Not changed after open(); usable from any thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <span>
#include <string>

#include "base/status.h"

namespace turbo::model {

class MappedFile {
 public:
  /// Regular files only (never a directory, FIFO or device); an empty file gives empty bytes.
  static Result<MappedFile> open(const std::filesystem::path& path, bool use_mmap);
  /// Bytes that the caller keeps alive, under a name for messages.
  static MappedFile borrow(std::string name, std::span<const std::byte> bytes);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }
  /// File name without folder, safe to print.
  const std::string& name() const { return name_; }

  /// Fails when size, modification time or identity of the file at path() differ from those at open().
  Status verify_unchanged() const;
  /// Give back the memory of whole pages inside the range. Later reads bring a mapped file's pages in again; does
  /// nothing for a file that was read whole, whose bytes have no other home.
  void drop_pages(const std::byte* begin, uint64_t bytes) const;

 private:
  Status read_whole(int descriptor);
  void release();

  enum class Storage { borrowed, mapped, anonymous };
  struct Identity {
    dev_t device = 0;
    ino_t inode = 0;
    uint64_t size = 0;
    timespec modified = {};
  };

  std::filesystem::path path_;
  std::string name_;
  const std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  Storage storage_ = Storage::borrowed;
  Identity identity_;
};

/// The text of a small regular file (config.json); refuses more than `limit` bytes.
Result<std::string> read_text_file(const std::filesystem::path& path, uint64_t limit);

/// Resolve a file name that comes from inside a model (index, split naming): a plain name, whose target - links
/// followed - lies in `folder`, or in the `blobs` folder of the same repository in a Hugging Face cache. `owner` heads
/// the message.
Result<std::filesystem::path> file_inside(const std::filesystem::path& folder, const std::string& file_name,
                                          const std::string& owner);

}  // namespace turbo::model
