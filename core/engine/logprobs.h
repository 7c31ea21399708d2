// Log-probabilities of one row of logits, in double. Pure.
#pragma once

#include <span>

#include "engine/request.h"

namespace turbo::engine {

/// The JSON-safe stand-in for minus infinity.
inline constexpr float kImpossibleLogprob = -9999.0f;

/// log softmax(logits)[id] and the n_top best alternatives, best first, ties to the lower id. A row with NaN gives
/// kImpossibleLogprob everywhere.
Token score_token(std::span<const float> logits, int32_t id, uint32_t n_top);

}  // namespace turbo::engine
