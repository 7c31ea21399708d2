// What is known of a model's keys at load: remembered of an earlier load, read from a file that the profile names, or
// measured now on the fixed text. The three give the same bits. CPU tier only; loading thread only.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "engine/kv_observation.h"
#include "engine/kv_records.h"
#include "engine/kv_setup.h"

namespace turbo::engine {

/// The codec that keys are observed with: what it stores is as good as exact.
inline constexpr const char* kExactCodec = "f16";

class KnownKeys {
 public:
  KnownKeys(loader::Resolution& resolution, const model::ModelConfig& config, const KvLook& how);

  /// Finds what is remembered. `centers`: keys will be centered, by the file when one is named.
  Status open(bool centers, const std::filesystem::path& center_file);
  /// Runs the text through the model: from here on everything is known or can be measured. Before codecs are centered.
  Status observe();
  bool observed() const { return seen_.has_value(); }

  bool has_centers() const { return named_ || !record_.centers.empty(); }
  /// f16 [n_layers][n_kv_heads][head_dim], to be subtracted from keys.
  const std::vector<uint16_t>& centers() const { return named_ ? named_->centers : record_.centers; }
  KvShape shape() const { return record_.shape; }
  /// Of attention over keys in the codec; none: not remembered, and keys were not observed. `label` tells codecs apart
  /// beside their fingerprints.
  Result<std::optional<double>> divergence(const std::string& label, const loader::Component<turbo_kv_codec>& codec, uint32_t layer);

  /// Remembers what was measured. Where it lies; empty: nowhere.
  std::filesystem::path keep() const;
  std::filesystem::path path() const { return records_.path_of(record_); }

 private:
  Sha256::Value conditions() const;
  const Sha256::Value& codec_key(const std::string& label, const loader::Component<turbo_kv_codec>& codec);

  loader::Resolution& resolution_;
  const model::ModelConfig& config_;
  const KvLook& how_;
  KvRecords records_;
  const std::vector<int32_t> tokens_;
  bool centered_ = false;
  KvRecord record_;                // without centers: nothing is known
  std::optional<KvRecord> named_;  // the file of the profile
  std::optional<KvObservation> seen_;
  std::map<std::pair<void*, std::string>, Sha256::Value> keys_;
};

}  // namespace turbo::engine
