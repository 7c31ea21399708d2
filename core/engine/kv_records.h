// The folder of records about keys: one file a model and way of computing, found by both. Files are put in place whole and
// checked when read; what is missing, damaged, foreign or unwritable is as if it were not there. Several processes may
// use it at once: the last to write wins, and nobody reads half a file. Loading thread only.
#pragma once

#include <filesystem>
#include <optional>

#include "engine/kv_record.h"

namespace turbo::engine {

class KvRecords {
 public:
  /// An empty folder: nothing is kept.
  explicit KvRecords(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Where the record of this model, conditions and shape lies; empty without a folder.
  std::filesystem::path path_of(const KvRecord& about) const;
  /// What is known of it. A file that is there but of no use is told of, in the log.
  std::optional<KvRecord> recall(const KvRecord& about) const;
  /// Together with what another process wrote since. False: it could not be kept.
  bool remember(KvRecord record) const;

 private:
  Result<KvRecord> read(const std::filesystem::path& path, const KvRecord& about) const;
  void remove_old() const;

  std::filesystem::path folder_;
};

/// A record that the user named. Errors tell what to do.
Result<KvRecord> read_center_file(const std::filesystem::path& path, const KvShape& shape, const Sha256::Value& model);

}  // namespace turbo::engine
