// The weights of one model on one device: every tensor of the file handed to the arch pack once, by name.
// Built at load on the loading thread; read-only afterwards.
#pragma once

#include <turbo/abi/draft/arch_pack.h>

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "model/config.h"
#include "model/files/model_file.h"

namespace turbo::model {

/// Function table and instance of the resolved arch pack; borrowed, outlives every user.
struct Pack {
  const turbo_arch_pack* api = nullptr;
  void* self = nullptr;
};

/// Bytes done and bytes in total; called on the loading thread.
using LoadProgress = std::function<void(uint64_t done, uint64_t total)>;

class WeightSet {
 public:
  explicit WeightSet(Pack pack) : pack_(pack) {}
  ~WeightSet();
  WeightSet(const WeightSet&) = delete;
  WeightSet& operator=(const WeightSet&) = delete;

  /// Load every tensor the model's forward pass reads. Source pages are dropped after each repacked tensor.
  Status load(const ModelFile& file, const ModelConfig& config, const LoadProgress& progress);

  /// Null when the file has no such tensor.
  const turbo_weight* find(std::string_view name) const;
  /// A layer's weight, "blk.<layer>.<suffix>".
  const turbo_weight* layer(uint32_t layer, std::string_view suffix) const;
  /// Angle per position of each rotary pair, scaling applied.
  const turbo_weight* rope_frequencies() const { return rope_; }

  uint64_t resident_bytes() const { return resident_bytes_; }

 private:
  Status load_one(const Tensor& tensor, const ModelFile& file);
  Pack pack_;
  std::unordered_map<std::string, turbo_weight*> weights_;
  turbo_weight* rope_ = nullptr;
  uint64_t resident_bytes_ = 0;
};

}  // namespace turbo::model
