// One GGUF file in memory -> checked metadata and tensor table (container version 2 and 3).
//
// The layout rules are those of the GGUF format: little-endian, string = u64 length + bytes, tensor offsets equal to
// the padded running sum of sizes in descriptor order. Reads never go outside the given bytes, memory stays
// proportional to the header.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/files/model_file.h"

namespace turbo::model {

struct GgufContents {
  uint32_t version = 0;
  Metadata metadata;
  std::vector<Tensor> tensors;  // data points into the given bytes
  uint64_t data_offset = 0;     // of the data section
  uint64_t alignment = 32;
};

/// `name` heads every message.
Result<GgufContents> read_gguf(std::span<const std::byte> bytes, const std::string& name, uint32_t file_index = 0);

/// A tensor descriptor before its type number has been given a layout.
struct GgufDescriptor {
  std::string name;
  std::vector<uint64_t> dims;
  uint32_t type_number = 0;
  uint64_t offset = 0;    // from the data section
  uint64_t position = 0;  // of the descriptor in the file
};

/// Gives every descriptor its layout and checks offsets and sizes against `data` (the data section). Numbers 40 and 42
/// stand for several layouts in public files; the one whose sizes reproduce all offsets is taken, and nothing is
/// guessed.
Result<std::vector<Tensor>> lay_out_tensors(std::vector<GgufDescriptor> descriptors, std::span<const std::byte> data,
                                            uint64_t alignment, const Metadata& metadata, const std::string& name,
                                            uint32_t file_index);

}  // namespace turbo::model
