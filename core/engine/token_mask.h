// What a grammar engine implements to say which tokens may come next. One object per request; engine thread only.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"

namespace turbo::engine {

/// Called for every row of the request that draws a token, in plain, batched and verify steps alike. The state is
/// that after the tokens given to `commit`; draft tokens above a row come as `path` and may never be committed.
/// A failed Status ends this request alone. Output that depends on anything but the tokens breaks exactness.
class TokenMask {
 public:
  virtual ~TokenMask() = default;

  /// Clear bits of tokens that must not follow the committed tokens and then `path`, which the mask allowed.
  /// Bit t % 32 of words[t / 32] is token t; all are set on entry, bits past the vocabulary are ignored.
  /// With no bit left the request ends with FinishReason::stop.
  virtual Status restrict_row(std::span<const int32_t> path, std::span<uint32_t> words) = 0;
  /// These generated tokens became final, in order, once each.
  virtual Status commit(std::span<const int32_t> tokens) = 0;
};

}  // namespace turbo::engine
