// Option schemas of the codecs, the same on every tier.
#pragma once

#define TURBO_ROTATE_OPTION(chosen) \
  R"("rotate":{"type":"string","default":")" chosen R"(","enum":["none","hadamard"],"doc":)"

namespace turbo::kv_float {

inline constexpr char kFp8Options[] =
    R"({"scale":{"type":"string","default":"none","enum":["none","head"],"doc":"head: a scale for each row of a head, its largest magnitude comes to lie at 448"},)"
    TURBO_ROTATE_OPTION("none") R"("signed Hadamard rotation of keys before rounding"}})";
inline constexpr char kQ8Options[] = "{" TURBO_ROTATE_OPTION("none") R"("signed Hadamard rotation of keys before rounding"}})";
inline constexpr char kQ4Options[] = "{" TURBO_ROTATE_OPTION("hadamard") R"("signed Hadamard rotation of keys and values before rounding"}})";

}  // namespace turbo::kv_float
