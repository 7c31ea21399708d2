// The file of a second whole model that drafts for the target, opened and checked before any weight is read. Pure.
#pragma once

#include <filesystem>
#include <memory>

#include "model/config.h"
#include "model/files/model_file.h"
#include "text/tokenizer.h"

namespace turbo::engine {

struct DraftFile {
  std::unique_ptr<model::ModelFile> file;
  model::ModelConfig config;
  uint32_t shared_vocab = 0;  // ids below it mean the same in both models

  uint64_t tensor_bytes() const;

  /// Errors: those of ModelFile::open and read_config; not_found when one of the two models has no tokenizer to compare;
  /// invalid_argument when they differ. `target` may be null: it has none.
  static Result<DraftFile> open(const std::filesystem::path& path, const text::Tokenizer* target);
};

}  // namespace turbo::engine
