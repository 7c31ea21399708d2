// The corpus options that all n-gram drafters have, under the names of the profile's drafter keys. [load]
#pragma once

#include <turbo/draft/ngram.hpp>
#include <turbo/plugin.hpp>

#include <cstdint>
#include <string>

namespace turbo::draft {

/// A whole-number option. Throws Failure when it is not in least..most.
inline uint32_t option_in(const Host& host, const char* key, int64_t fallback, int64_t least, int64_t most) {
  const int64_t value = host.option(key, fallback);
  if (value < least || value > most)
    throw Failure(TURBO_INVALID_ARGUMENT, std::string("option '") + key + "': " + std::to_string(value) + " is not in " +
                                              std::to_string(least) + ".." + std::to_string(most));
  return static_cast<uint32_t>(value);
}

inline NgramSettings ngram_settings(const Host& host) {
  NgramSettings settings;
  settings.max_depth = option_in(host, "max_trie_depth", 18, 2, 256);
  settings.min_breadth = option_in(host, "min_bfs_breadth", 1, 1, 64);
  settings.max_breadth = option_in(host, "max_bfs_breadth", 10, 1, 64);
  settings.capacity = option_in(host, "capacity", 10'000'000, 3, 1'000'000'000);
  const std::string match = host.option("match_type", "BFS");
  if (match != "BFS" && match != "PROB")
    throw Failure(TURBO_INVALID_ARGUMENT, "option 'match_type': '" + match + "' is neither BFS nor PROB");
  settings.match = match == "BFS" ? NgramMatch::bfs : NgramMatch::prob;
  return settings;
}

}  // namespace turbo::draft
