// What a model file holds, for people and scripts (`turbo inspect`).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/files/model_file.h"

namespace turbo::model {

struct ModelSummary {
  struct TypeRow {
    std::string type;
    uint64_t tensors = 0, bytes = 0;
  };
  std::string path, format, architecture, name;
  uint64_t files = 0, file_bytes = 0;
  uint64_t tensors = 0, tensor_bytes = 0, parameters = 0;
  std::vector<TypeRow> types;                                 // most bytes first
  std::vector<std::pair<std::string, std::string>> metadata;  // file order, values shortened

  std::vector<std::string> to_lines() const;
  /// One JSON object.
  std::string to_json() const;
};

/// Works on every file that opens, supported architecture or not.
ModelSummary summarize(const ModelFile& file);

}  // namespace turbo::model
