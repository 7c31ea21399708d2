// Chooses, at load, what every layer of the KV cache is stored as: centers of keys, and layers in more bits than the
// profile asks for. Works on the codec instances and the registry of a resolution, before the pool exists.
// Loading thread only.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/digest.h"
#include "engine/parts.h"
#include "text/tokenizer.h"
#include "kv/policy.h"
#include "loader/resolve.h"

namespace turbo::engine {

struct KvSetup {
  /// Layers kept in another codec than the profile's, one sentence each; and other things to tell.
  std::vector<std::string> notes;
  /// Nothing was measured yet, and the check at load may keep K of any layer in `promote_k`.
  bool may_promote = false;
  std::string promote_k;
  /// Of the centers, and of every layer's codecs as they tell them; part of the cache's fingerprint.
  std::string fingerprint;
};

/// What looking at keys takes.
struct KvLook {
  const model::WeightSet& weights;
  const text::Tokenizer* tokenizer = nullptr;
  std::string activations;                                // how matmuls read them
  std::function<Result<Sha256::Value>()> model_digest{};  // of the model's files; called only when keys are looked at
  std::filesystem::path records;                          // folder that remembers what was found; empty: none
};

/// Which codecs a request must have at hand beside the profile's own.
void ask_for_spare_codecs(loader::Request& request, const kv::CodecPolicy& policy);

/// Layers that are promoted whatever their keys are like: without weights nothing can be measured.
Result<KvSetup> set_up_codecs(loader::Resolution& resolution, const kv::CodecPolicy& policy, const model::ModelConfig& config);

/// As if the check at load had promoted every layer: an upper bound of what it may add.
Result<KvSetup> promote_every_layer(loader::Resolution& resolution, const kv::CodecPolicy& policy, const model::ModelConfig& config);

/// The same after looking at what attention reads on a fixed text, where the policy and the codecs call for it, or at
/// what is remembered of that: the outcome has the same bits.
Result<KvSetup> set_up_codecs(loader::Resolution& resolution, const kv::CodecPolicy& policy, const model::ModelConfig& config,
                              const KvLook& look);

}  // namespace turbo::engine
