// A saved prefix: tokens and the KV blocks computed for them, as a file. Format, little-endian:
//
//   header   PrefixHeader
//   tokens   int32 [n_blocks * kBlock]
//   digest   SHA-256 of header and tokens
//   blocks   n_blocks times: packed bytes, open bytes for the first n_open_blocks, SHA-256 of both
//
// The digests find damage; they prove nothing about who wrote the file. What makes a block right for a model is the
// fingerprint, which covers all that its bits depend on. A reader checks every size before it allocates or reads.
// One thread at a time; knows files, nothing of the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace turbo::kv {

struct PrefixHeader {
  char magic[8] = {'t', 'u', 'r', 'b', 'o', 'k', 'v', '1'};
  uint32_t n_blocks = 0;
  uint32_t n_open_blocks = 0;
  uint64_t block_bytes = 0;
  uint64_t open_block_bytes = 0;
  char fingerprint[64] = {};  // hexadecimal SHA-256
};
static_assert(sizeof(PrefixHeader) == 96);

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileCloser>;

/// Writes beside the target (".NAME.xxxxxx.turbo-part") and moves the whole file into place; without commit() nothing is left
/// behind, and what a killed process left is removed by the next writer in the folder.
class PrefixWriter {
 public:
  /// `tokens` has n_blocks * kBlock entries.
  static Result<PrefixWriter> create(const std::filesystem::path& path, const PrefixHeader& header, std::span<const int32_t> tokens);
  PrefixWriter(PrefixWriter&& other) noexcept = default;
  ~PrefixWriter();
  Status add_block(std::span<const std::byte> bytes);
  /// To disk, then into place.
  Status commit();

 private:
  PrefixWriter(std::filesystem::path path, std::filesystem::path temporary, File file)
      : path_(std::move(path)), temporary_(std::move(temporary)), file_(std::move(file)) {}
  Status write(std::span<const std::byte> bytes);

  std::filesystem::path path_, temporary_;
  File file_;  // null once committed
};

class PrefixReader {
 public:
  /// What the file must agree with: fingerprint and sizes of `expected`. Reads and checks header and tokens.
  /// not_found, unsupported (another model, codec or setting), corrupt_input, resource_exhausted (over max_blocks).
  static Result<PrefixReader> open(const std::filesystem::path& path, const PrefixHeader& expected, uint32_t max_blocks);
  const PrefixHeader& header() const { return header_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  /// The next block. corrupt_input: cut short or damaged.
  Result<std::vector<std::byte>> next_block();

 private:
  PrefixReader(std::string name, File file) : name_(std::move(name)), file_(std::move(file)) {}
  Status read(std::span<std::byte> bytes);

  std::string name_;
  File file_;
  PrefixHeader header_;
  std::vector<int32_t> tokens_;
  uint32_t next_ = 0;
};

}  // namespace turbo::kv
