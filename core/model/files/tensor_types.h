// The table of tensor element types: number, name and block geometry.
//
// Numbers below 65536 are GGUF type numbers. Two things have no number of their own in GGUF and get one here, above
// 65536: layouts that share number 42 with another layout, and safetensors integer types. Knowing a type here means
// only that its sizes can be checked; whether a model in that type can run is decided later by the weight-format
// plugins.
//
// Immutable data, usable from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace turbo::model {

enum class TypeKind { floating, quantized, integer };

struct TypeInfo {
  uint32_t number = 0;
  std::string_view name;  // lower case: "q1_0"
  TypeKind kind = TypeKind::floating;
  uint32_t block_weights = 1;
  uint32_t block_bytes = 1;
  int32_t scale_offset = -1;  // byte offset of the block's binary16 scale, -1 when there is none
};

namespace type {
inline constexpr uint32_t f32 = 0, f16 = 1, q8_0 = 8, i8 = 24, i16 = 25, i32 = 26, i64 = 27, f64 = 28, bf16 = 30;
inline constexpr uint32_t nvfp4 = 40, q1_0 = 41, pq2_0 = 142, ptq1_0 = 143;
/// GGUF number 42 as upstream writes it: 64 weights in 18 bytes.
inline constexpr uint32_t q2_0_g64 = 42;
/// Number 42 of older forks: 128 weights in 34 bytes, scale first. Same bytes as pq2_0.
inline constexpr uint32_t q2_0_g128 = 0x10000 + 42;
/// Number 42 of a third-party writer: 128 weights in 34 bytes, scale last.
inline constexpr uint32_t q2_0_g128_scale_last = 0x20000 + 42;
inline constexpr uint32_t u8 = 0x30000, u16 = 0x30001, u32 = 0x30002, u64 = 0x30003, boolean = 0x30004;
inline constexpr uint32_t f8_e4m3 = 0x30005, f8_e5m2 = 0x30006, f8_e8m0 = 0x30007;
}  // namespace type

std::span<const TypeInfo> known_types();
/// Null when the number is not known.
const TypeInfo* find_type(uint32_t number);
/// By lower-case name; null when not known.
const TypeInfo* find_type(std::string_view name);
/// The name, or "unknown" for a number that is not in the table.
std::string_view type_name(uint32_t number);

/// Bytes of `elements` weights of this type; empty when they do not fill whole blocks or the size does not fit 64 bits.
std::optional<uint64_t> bytes_of(const TypeInfo& info, uint64_t elements);

}  // namespace turbo::model
