// The two ways to fill a ModelFile. Internal to core/model/files.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "model/files/model_file.h"

namespace turbo::model {

class GgufModelReader {
 public:
  /// `first` is the file at `path`, already open and known to begin with the GGUF magic. For a part of a split model
  /// the other parts are opened from the same folder.
  static Result<std::unique_ptr<ModelFile>> read(MappedFile first, const std::filesystem::path& path,
                                                 const OpenOptions& options);

 private:
  static Status read_parts(ModelFile& model, MappedFile first, const OpenOptions& options);
};

class SafetensorsModelReader {
 public:
  static Result<std::unique_ptr<ModelFile>> read_folder(const std::filesystem::path& folder,
                                                        const OpenOptions& options);
  static Result<std::unique_ptr<ModelFile>> read_file(MappedFile file, const std::filesystem::path& path);

 private:
  static Status read_index(ModelFile& model, const std::filesystem::path& index, const OpenOptions& options);
  enum class Naming { as_is, canonical, detect };
  static Status add_file(ModelFile& model, MappedFile file, Naming naming);
};

/// GGUF name of a Hugging Face tensor name of the qwen and llama families ("model.layers.3.self_attn.q_proj.weight" ->
/// "blk.3.attn_q.weight"); empty when the name has none.
std::string canonical_tensor_name(std::string_view name);

}  // namespace turbo::model
