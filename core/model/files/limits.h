// Upper bounds for everything that a model file may declare. A file over a limit is refused before memory is taken for
// it.
#pragma once

#include <cstdint>

namespace turbo::model::limits {

inline constexpr uint64_t keys = 65'536;
inline constexpr uint64_t key_bytes = 65'535;
inline constexpr uint64_t string_bytes = 64ull << 20;
inline constexpr uint64_t array_elements = 1ull << 24;
inline constexpr uint64_t metadata_bytes = 512ull << 20;  // all keys and values of a file
inline constexpr uint64_t tensors = 262'144;              // of a model, all files together
inline constexpr uint64_t gguf_name_bytes = 63;
inline constexpr uint64_t safetensors_name_bytes = 1024;
inline constexpr uint64_t safetensors_header_bytes = 100'000'000;
inline constexpr uint32_t gguf_dims = 4;
inline constexpr uint32_t safetensors_dims = 8;
inline constexpr uint64_t min_alignment = 1, max_alignment = 1ull << 20;
inline constexpr uint64_t files = 1024;              // parts of a split model, shards of an index
inline constexpr uint64_t json_bytes = 16ull << 20;  // config.json; an index may be larger
inline constexpr uint64_t index_bytes = 64ull << 20;
inline constexpr uint32_t json_depth = 32;
inline constexpr uint64_t json_values = 1'000'000;

}  // namespace turbo::model::limits
