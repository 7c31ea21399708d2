// What was found out about a model's keys, as a file: the centers of every layer, and how far attention over packed keys
// diverges with the codecs that were tried. Format, little-endian:
//
//   head      "turbokr1", u32 n_layers, n_kv_heads, head_dim, n_measured, model[32], conditions[32]
//   centers   f16 [n_layers][n_kv_heads][head_dim]
//   measured  n_measured times: codec[32], f64 [n_layers] (kNotMeasured: not looked at)
//   digest    SHA-256 of all before
//
// The digest finds damage; it proves nothing about who wrote the file, so every size is checked before it is used and
// every number for being one. A wrong center costs quality, never the meaning of attention. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "base/status.h"

namespace turbo::engine {

inline constexpr uint64_t kMaxRecordBytes = 8 << 20;
inline constexpr uint32_t kMaxMeasured = 16;
inline constexpr double kNotMeasured = -1;

struct KvShape {
  uint32_t n_layers = 0, n_kv_heads = 0, head_dim = 0;
  bool operator==(const KvShape&) const = default;
};

struct KvRecord {
  struct Measured {
    Sha256::Value codec{};           // of the codec, its options and the centers it was measured with
    std::vector<double> divergence;  // by layer
  };

  KvShape shape;
  Sha256::Value model{};       // of the model's files
  Sha256::Value conditions{};  // of the text's tokens and of the code that computed the keys
  std::vector<uint16_t> centers;
  std::vector<Measured> measured;  // oldest first; at most kMaxMeasured

  std::optional<double> divergence(const Sha256::Value& codec, uint32_t layer) const;
  /// Drops the codec that came first when there is no room.
  void set_divergence(const Sha256::Value& codec, uint32_t layer, double value);
  /// Adds what `other` knows and this does not: other codecs, as far as there is room, and other layers.
  void merge(const KvRecord& other);
};

/// By layer: [n_kv_heads][head_dim]. Rounded to f16, as keys are centered with what a file can hold.
std::vector<uint16_t> to_halves(const std::vector<std::vector<float>>& centers);
std::vector<std::vector<float>> to_floats(const std::vector<uint16_t>& halves, const KvShape& shape);

/// Empty when it would be larger than kMaxRecordBytes.
std::string write_record(const KvRecord& record);
/// corrupt_input: not a record, another version, cut short, damaged, or with numbers that are none.
Result<KvRecord> read_record(std::string_view bytes);

}  // namespace turbo::engine
