#include "model/files/tensor_types.h"

#include <algorithm>
#include <array>

#include "base/checked.h"

namespace turbo::model {
namespace {

using enum TypeKind;

// Sorted by number. The byte sizes are those of the GGUF format; scale offsets only where a block has one binary16
// scale.
constexpr TypeInfo kTypes[] = {
    {type::f32, "f32", floating, 1, 4},
    {type::f16, "f16", floating, 1, 2},
    {2, "q4_0", quantized, 32, 18, 0},
    {3, "q4_1", quantized, 32, 20, 0},
    {6, "q5_0", quantized, 32, 22, 0},
    {7, "q5_1", quantized, 32, 24, 0},
    {type::q8_0, "q8_0", quantized, 32, 34, 0},
    {9, "q8_1", quantized, 32, 36, 0},
    {10, "q2_k", quantized, 256, 84},
    {11, "q3_k", quantized, 256, 110, 108},
    {12, "q4_k", quantized, 256, 144, 0},
    {13, "q5_k", quantized, 256, 176, 0},
    {14, "q6_k", quantized, 256, 210, 208},
    {15, "q8_k", quantized, 256, 292},
    {16, "iq2_xxs", quantized, 256, 66, 0},
    {17, "iq2_xs", quantized, 256, 74, 0},
    {18, "iq3_xxs", quantized, 256, 98, 0},
    {19, "iq1_s", quantized, 256, 50, 0},
    {20, "iq4_nl", quantized, 32, 18, 0},
    {21, "iq3_s", quantized, 256, 110, 0},
    {22, "iq2_s", quantized, 256, 82, 0},
    {23, "iq4_xs", quantized, 256, 136, 0},
    {type::i8, "i8", integer, 1, 1},
    {type::i16, "i16", integer, 1, 2},
    {type::i32, "i32", integer, 1, 4},
    {type::i64, "i64", integer, 1, 8},
    {type::f64, "f64", floating, 1, 8},
    {29, "iq1_m", quantized, 256, 56},
    {type::bf16, "bf16", floating, 1, 2},
    {34, "tq1_0", quantized, 256, 54, 52},
    {35, "tq2_0", quantized, 256, 66, 64},
    {39, "mxfp4", quantized, 32, 17},
    {type::nvfp4, "nvfp4", quantized, 64, 36},
    {type::q1_0, "q1_0", quantized, 128, 18, 0},
    {type::q2_0_g64, "q2_0_g64", quantized, 64, 18, 0},
    {type::pq2_0, "pq2_0", quantized, 128, 34, 0},
    {type::ptq1_0, "ptq1_0", quantized, 128, 28, 26},
    {type::q2_0_g128, "q2_0_g128", quantized, 128, 34, 0},
    {type::q2_0_g128_scale_last, "q2_0_g128_scale_last", quantized, 128, 34, 32},
    {type::u8, "u8", integer, 1, 1},
    {type::u16, "u16", integer, 1, 2},
    {type::u32, "u32", integer, 1, 4},
    {type::u64, "u64", integer, 1, 8},
    {type::boolean, "bool", integer, 1, 1},
    {type::f8_e4m3, "f8_e4m3", quantized, 1, 1},
    {type::f8_e5m2, "f8_e5m2", quantized, 1, 1},
    {type::f8_e8m0, "f8_e8m0", quantized, 1, 1},
};

static_assert(std::is_sorted(std::begin(kTypes), std::end(kTypes),
                             [](const TypeInfo& a, const TypeInfo& b) { return a.number < b.number; }));

}  // namespace

std::span<const TypeInfo> known_types() { return kTypes; }

const TypeInfo* find_type(uint32_t number) {
  const auto* at = std::lower_bound(std::begin(kTypes), std::end(kTypes), number,
                                    [](const TypeInfo& info, uint32_t wanted) { return info.number < wanted; });
  return at != std::end(kTypes) && at->number == number ? at : nullptr;
}

const TypeInfo* find_type(std::string_view name) {
  const auto* at =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeInfo& t) { return t.name == name; });
  return at != std::end(kTypes) ? at : nullptr;
}

std::string_view type_name(uint32_t number) {
  const TypeInfo* info = find_type(number);
  return info ? info->name : "unknown";
}

std::optional<uint64_t> bytes_of(const TypeInfo& info, uint64_t elements) {
  if (elements % info.block_weights != 0) return std::nullopt;
  return checked_mul(elements / info.block_weights, info.block_bytes);
}

}  // namespace turbo::model
