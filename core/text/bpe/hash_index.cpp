#include "text/bpe/hash_index.h"

#include <chrono>
#include <random>

namespace turbo::text {

uint64_t hash_seed() {
  static const uint64_t seed = [] {
    uint64_t value = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    try {
      std::random_device device;
      value ^= static_cast<uint64_t>(device()) << 32 ^ device();
    } catch (...) {  // no entropy source: the clock alone has to do
    }
    return value;
  }();
  return seed;
}

}  // namespace turbo::text
