// Modes and options of the rotated codecs. [load]
#pragma once

#include <turbo/kernel/random.h>
#include <turbo/kernel/rotated_kv/rotation.hpp>
#include <turbo/plugin.hpp>

#include <string>

namespace turbo::rotated_kv {

/// A named mode; names of equal bits differ in the turn alone.
struct Mode {
  const char* name;
  uint32_t bits;
  Turn turn;
};

struct Options {
  bool mix = true;         // Hadamard transform behind the turn
  ScaleRule rule = ScaleRule::unbiased;
  bool wide_scale = false; // binary32
  uint32_t group = 0;      // coordinates of one scale; 0: the row
  uint64_t seed = 42;
  bool left_only = false;
  bool dense = false;
  uint32_t sinks = 4;
};

// Schemas of turbo_component.option_schema. What only decides which layers and rows a codec is used for (boundary,
// center, self_check, prefill) belongs to the host and is not here.
#define TURBO_ROTATED_KV_COMMON_OPTIONS \
  R"("scale": {"type": "string", "default": "unb", "enum": ["unb", "norm", "lsq", "raw", "f32"],)" \
  R"("doc": "Rule of a vector's scale: unbiased scores, kept norm, least squares, plain norm; f32: unbiased, stored in 4 bytes."},)" \
  R"("group": {"type": "int", "default": 0, "enum": [0, 32], "doc": "Rotated coordinates that share a scale; 0: the whole vector."},)" \
  R"("seed": {"type": "int", "default": 42, "min": 0, "doc": "Of the random rotation. Caches of different seeds do not mix."},)" \
  R"("rot": {"type": "string", "default": "fast", "enum": ["fast", "dense"], "doc": "dense: a random orthogonal matrix, to compare with."},)" \
  R"("sinks": {"type": "int", "default": 4, "min": 0, "max": 64, "doc": "First positions of a sequence that are always read as halves."})"

inline constexpr char kSignsSchema[] =
    R"({"mix": {"type": "string", "default": "hadamard", "enum": ["hadamard"], "doc": "The transform is the rotation of these modes."},)"
    TURBO_ROTATED_KV_COMMON_OPTIONS "}";
inline constexpr char kPairsSchema[] =
    R"({"mix": {"type": "string", "default": "hadamard", "enum": ["hadamard", "none"], "doc": "Hadamard transform behind the turn of pairs."},)"
    TURBO_ROTATED_KV_COMMON_OPTIONS "}";
inline constexpr char kQuadsSchema[] =
    R"({"mix": {"type": "string", "default": "hadamard", "enum": ["hadamard", "none"], "doc": "Hadamard transform behind the turn of quadruples."},)"
    R"("iso": {"type": "string", "default": "full", "enum": ["full", "left"], "doc": "Quaternions on both sides, or on the left alone."},)"
    TURBO_ROTATED_KV_COMMON_OPTIONS "}";

namespace detail {

inline Failure bad_option(const Mode& mode, const char* key, const std::string& value, const char* known) {
  return Failure(TURBO_INVALID_ARGUMENT, std::string(mode.name) + ": option '" + key + "': '" + value.substr(0, 64) + "' is none of " + known);
}

inline bool is_second(const Host& host, const Mode& mode, const char* key, const char* first, const char* second) {
  const std::string value = host.option(key, first);
  if (value != first && value != second) throw bad_option(mode, key, value, (std::string(first) + ", " + second).c_str());
  return value == second;
}

}  // namespace detail

/// Throws Failure where a value is none that the schema has; hosts check before, so this is for those that do not.
inline Options read_options(const Host& host, const Mode& mode) {
  Options options;
  options.mix = !detail::is_second(host, mode, "mix", "hadamard", "none");
  if (!options.mix && mode.turn == Turn::signs) throw detail::bad_option(mode, "mix", "none", "hadamard");
  options.dense = detail::is_second(host, mode, "rot", "fast", "dense");
  if (mode.turn == Turn::quaternion) options.left_only = detail::is_second(host, mode, "iso", "full", "left");
  const std::string scale = host.option("scale", "unb");
  options.wide_scale = scale == "f32";
  if (scale == "norm") options.rule = ScaleRule::norm;
  else if (scale == "lsq") options.rule = ScaleRule::least_squares;
  else if (scale == "raw") options.rule = ScaleRule::raw;
  else if (scale != "unb" && scale != "f32") throw detail::bad_option(mode, "scale", scale, "unb, norm, lsq, raw, f32");
  const int64_t group = host.option("group", 0), seed = host.option("seed", 42), sinks = host.option("sinks", 4);
  if (group != 0 && group != 32) throw detail::bad_option(mode, "group", std::to_string(group), "0, 32");
  if (seed < 0) throw detail::bad_option(mode, "seed", std::to_string(seed), "the whole numbers from 0");
  if (sinks < 0 || sinks > 64) throw detail::bad_option(mode, "sinks", std::to_string(sinks), "0 to 64");
  options.group = static_cast<uint32_t>(group);
  options.seed = static_cast<uint64_t>(seed);
  options.sinks = static_cast<uint32_t>(sinks);
  return options;
}

/// Of everything that decides stored bits: rows of equal fingerprints may be shared.
inline uint64_t fingerprint_of(const Mode& mode, const Options& options) {
  constexpr uint64_t kLayoutRevision = 1;
  uint64_t print = turbo_mix64(0x726f74617465646bull);  // "rotatedk"
  for (const uint64_t part : {kLayoutRevision, uint64_t{mode.bits}, static_cast<uint64_t>(mode.turn), uint64_t{options.mix},
                              static_cast<uint64_t>(options.rule), uint64_t{options.wide_scale}, uint64_t{options.group}, options.seed,
                              uint64_t{options.left_only}, uint64_t{options.dense}})
    print = turbo_mix64(print ^ part);
  return print;
}

}  // namespace turbo::rotated_kv
