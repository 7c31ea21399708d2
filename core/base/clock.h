// The steady clock as a number.
#pragma once

#include <chrono>
#include <cstdint>

namespace turbo {

/// Nanoseconds of the steady clock. [any thread]
inline uint64_t now_ns() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count());
}
inline double seconds(uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace turbo
