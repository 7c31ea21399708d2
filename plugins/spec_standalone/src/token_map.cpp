#include "token_map.h"

#include <turbo/plugin.hpp>

#include <algorithm>
#include <charconv>
#include <fstream>

namespace turbo::spec_standalone {
namespace {

constexpr std::streamoff kMostBytes = 64 << 20;
constexpr const char* kSeparators = " \t\r,[]";
constexpr const char* kHint = "drafter.token_map is a text file of token ids, or a JSON list of them";

}  // namespace

std::vector<int32_t> read_token_map(const std::string& path, uint32_t vocab) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) throw Failure(TURBO_NOT_FOUND, "token map " + path + ": cannot be read", kHint);
  if (file.tellg() > kMostBytes) throw Failure(TURBO_INVALID_ARGUMENT, "token map " + path + ": larger than 64 MiB", kHint);
  file.seekg(0);
  std::vector<int32_t> ids;
  std::string line;
  for (size_t number = 1; std::getline(file, line); ++number) {
    if (line.starts_with('#')) continue;
    for (size_t at = line.find_first_not_of(kSeparators); at != std::string::npos; at = line.find_first_not_of(kSeparators, at)) {
      const size_t end = std::min(line.find_first_of(kSeparators, at), line.size());
      uint32_t id = 0;
      const auto [rest, failed] = std::from_chars(line.data() + at, line.data() + end, id);
      if (failed != std::errc() || rest != line.data() + end || id >= vocab)
        throw Failure(TURBO_INVALID_ARGUMENT,
                      "token map " + path + ", line " + std::to_string(number) + ": expected a token id below " + std::to_string(vocab), kHint);
      ids.push_back(static_cast<int32_t>(id));
      at = end;
    }
  }
  if (file.bad()) throw Failure(TURBO_NOT_FOUND, "token map " + path + ": reading failed", kHint);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  if (ids.empty()) throw Failure(TURBO_INVALID_ARGUMENT, "token map " + path + ": holds no token id", kHint);
  return ids;
}

}  // namespace turbo::spec_standalone
