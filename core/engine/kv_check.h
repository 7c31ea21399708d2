// Attention over packed keys against exact attention, for one layer of what was observed. CPU codecs only: their rows are
// read and written on the host. Pure but for the codec instance; loading thread only.
#pragma once

#include "engine/kv_observation.h"
#include "loader/resolve.h"

namespace turbo::engine {

/// Means over tokens of every head's keys, [n_kv_heads][head_dim] of each layer, rounded to f16.
std::vector<std::vector<float>> key_centers(const KvObservation& seen);

/// Mean over heads and queries of KL(exact || packed) between attention weights, in nats, with every key in packed form.
/// Queries are every fourth token. Errors: those of the codec.
Result<double> attention_divergence(const loader::Component<turbo_kv_codec>& codec, const KvObservation& seen, uint32_t layer);

}  // namespace turbo::engine
