// What both halves of the plugin say alike: options, tensor types, and the shapes they refuse.
#pragma once

#include <turbo/plugin.hpp>
#include <turbo/weight_format.hpp>

#include <cstdint>
#include <iterator>
#include <string>

namespace turbo::basic {

constexpr const char* kOptions =
    R"({"activations": {"type": "string", "default": "int8", "enum": ["int8", "f32"],
     "doc": "q8_0 and q4_0 only. int8: activations rounded to 8 bits per group of 32; f32: kept as they are, the slower reference"}})";

/// The option's value.
inline std::string activations_of(const Host& host) {
  const std::string activations = host.option("activations", std::string("int8"));
  if (activations != "int8" && activations != "f32")
    throw Failure(TURBO_INVALID_ARGUMENT, "basic: activations is \"" + activations + "\"", "use int8 or f32");
  return activations;
}

constexpr turbo_type_info kTypes[] = {
    {sizeof(turbo_type_info), TURBO_TYPE_F32, "f32", 1, 4},
    {sizeof(turbo_type_info), TURBO_TYPE_F16, "f16", 1, 2},
    {sizeof(turbo_type_info), TURBO_TYPE_BF16, "bf16", 1, 2},
    {sizeof(turbo_type_info), TURBO_TYPE_Q8_0, "q8_0", 32, 34},
    {sizeof(turbo_type_info), TURBO_TYPE_Q4_0, "q4_0", 32, 18},
};

/// Place of a type in kTypes.
inline uint32_t index_of(uint32_t type) {
  for (uint32_t i = 0; i < std::size(kTypes); ++i)
    if (kTypes[i].type == type) return i;
  throw Failure(TURBO_UNSUPPORTED, "basic: tensor type " + std::to_string(type) +
                                       " is not served, only 0 (F32), 1 (F16), 2 (Q4_0), 8 (Q8_0), 30 (BF16)");
}

inline std::string shape_text(uint64_t rows, uint64_t cols) { return std::to_string(rows) + " x " + std::to_string(cols); }

/// The type of a matrix that is a whole number of blocks.
inline const turbo_type_info& checked_type(uint32_t type, uint64_t rows, uint64_t cols) {
  const turbo_type_info& info = kTypes[index_of(type)];
  if (rows == 0 || cols == 0 || cols % info.block_weights != 0)
    throw Failure(TURBO_INVALID_ARGUMENT, std::string("basic: a ") + info.name + " matrix of " + shape_text(rows, cols) +
                                              " is not a whole number of blocks of " + std::to_string(info.block_weights));
  return info;
}

/// Refuses tensor data that ends early, and rows that are not whole tiles of the matrix.
inline void check_repack(uint64_t needed, uint64_t present, uint64_t rows, uint64_t row_begin, uint64_t row_end, uint32_t tile) {
  if (present < needed)
    throw Failure(TURBO_CORRUPT_INPUT,
                  "basic: tensor data ends early: " + std::to_string(needed) + " bytes needed, " + std::to_string(present) + " present",
                  "fetch the model file again");
  const bool aligned = row_begin % tile == 0 && (row_end % tile == 0 || row_end == rows);
  if (row_begin > row_end || row_end > rows || !aligned)
    throw Failure(TURBO_INVALID_ARGUMENT,
                  "basic: rows " + std::to_string(row_begin) + " to " + std::to_string(row_end) + " are no tile-aligned range of the matrix");
}

}  // namespace turbo::basic
