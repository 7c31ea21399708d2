// A model on disk: one GGUF file, a split GGUF, or a folder with config.json and safetensors.
//
// open() checks the whole container - every count, size, offset, name and type number - before anything is handed out,
// so that a Tensor's data range is always readable and its sizes are consistent. What the numbers mean for a forward
// pass is checked by read_config (model/config.h). The weights are mapped read-only and never copied. Immutable after
// open(); usable from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "model/files/mapped_file.h"
#include "model/files/metadata.h"
#include "model/files/tensor_types.h"

namespace turbo::model {

struct Tensor {
  std::string name;            // canonical: the GGUF name, also for safetensors
  std::vector<uint64_t> dims;  // innermost first: {in, out}; never empty, never 0
  uint32_t type = 0;           // type number, see tensor_types.h; always in the table
  uint64_t bytes = 0;
  const std::byte* data = nullptr;  // read-only; not aligned beyond 1 byte
  uint32_t file_index = 0;
  std::string source_name;  // name in the file when it differs from `name`, else empty

  uint64_t n_elements() const;
  /// Bytes of one row of dims[0] elements.
  uint64_t row_bytes() const;
  const TypeInfo& type_info() const;
};

/// "{64, 256}", for messages.
std::string shape_text(std::span<const uint64_t> dims);

struct OpenOptions {
  bool use_mmap = true;  // false: read everything into memory (a file on storage that may change or go away)
};

enum class Format { gguf, safetensors };

class ModelFile {
 public:
  /// Detects the format by the first bytes, never by the file's extension. Accepts a GGUF file (any part of a split
  /// one), a folder with config.json and safetensors, or a single safetensors file. Errors: not_found, invalid_argument
  /// (not a regular file), corrupt_input, unsupported, resource_exhausted (over a limit).
  static Result<std::unique_ptr<ModelFile>> open(const std::filesystem::path& path, const OpenOptions& options = {});
  /// One GGUF or safetensors file in memory that the caller keeps alive; `name` heads the messages.
  static Result<std::unique_ptr<ModelFile>> open_memory(std::string name, std::span<const std::byte> bytes);

  Format format() const { return format_; }
  /// The path that was opened.
  const std::filesystem::path& path() const { return path_; }
  /// Name for the head of messages: the file's or folder's name.
  const std::string& name() const { return name_; }

  /// GGUF metadata (of the first part); for safetensors the string pairs of `__metadata__`.
  const Metadata& metadata() const { return metadata_; }
  /// In file order.
  std::span<const Tensor> tensors() const { return tensors_; }
  /// By canonical name, or by the name in the file.
  const Tensor* find(std::string_view name) const;

  /// Text of config.json; empty for GGUF and for a lone safetensors file without one.
  const std::string& config_json() const { return config_json_; }
  /// Folder that holds the model's files.
  const std::filesystem::path& folder() const { return folder_; }

  /// Sizes of all files together.
  uint64_t file_bytes() const;
  const std::vector<MappedFile>& files() const { return files_; }

  /// Give back the page memory under a tensor after its weights were repacked.
  void drop_pages(const Tensor& tensor) const;
  /// To be called after the weights were read: fails when a file changed since open().
  Status verify_unchanged() const;

 private:
  friend class GgufModelReader;
  friend class SafetensorsModelReader;
  ModelFile() = default;
  /// Takes the tensors of one file; refuses names that are already there.
  Status add_tensors(std::vector<Tensor> tensors, const std::string& file_name);

  Format format_ = Format::gguf;
  std::filesystem::path path_, folder_;
  std::string name_, config_json_;
  Metadata metadata_;
  std::vector<MappedFile> files_;
  std::vector<Tensor> tensors_;
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  std::unordered_map<std::string, size_t, Hash, std::equal_to<>> index_;
};

/// What a file that is not a model starts with ("a zip archive (PyTorch)", "a pickle", "an HTML page"), empty when not
/// recognised.
std::string_view foreign_format(std::span<const std::byte> head);

}  // namespace turbo::model
