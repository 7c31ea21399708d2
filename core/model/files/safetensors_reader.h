// One safetensors file in memory -> checked tensor table.
//
// Stricter than most readers, because parsers that disagree about a file are a way to smuggle data: duplicate names,
// gaps, overlaps, bytes that belong to no tensor, non-string metadata and unknown fields are all refused.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/files/model_file.h"

namespace turbo::model {

struct SafetensorsContents {
  Metadata metadata;            // `__metadata__`, all strings
  std::vector<Tensor> tensors;  // in data order, dims innermost first, names as in the file
};

Result<SafetensorsContents> read_safetensors(std::span<const std::byte> bytes, const std::string& name,
                                             uint32_t file_index = 0);

}  // namespace turbo::model
