// Shared by the profile tests: parsing text with overrides, and a folder that is removed afterwards.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "profile/flags.h"
#include "profile/profile.h"

namespace turbo::profile {

inline SearchPaths here() {
  SearchPaths search;
  search.working_folder = "/nowhere";
  return search;
}

inline Result<Profile> parse(std::string_view text, std::vector<Override> overrides = {}) {
  return parse_profile(text, "/nowhere/p.yaml", overrides, here());
}

/// Flags as typed, in order, over a profile text.
using FlagList = std::vector<std::pair<std::string, std::string>>;
inline Result<Profile> parse_flags(const FlagList& flags, std::string_view text = "schema: 1\n") {
  std::vector<Override> overrides;
  for (const auto& [name, value] : flags) {
    TURBO_ASSIGN(std::vector<Override> own, flag_to_overrides(name, value));
    overrides.insert(overrides.end(), own.begin(), own.end());
  }
  return parse(text, overrides);
}

/// Message and hint of a failure, or "ok".
inline std::string what(const Status& status) {
  return status.is_ok() ? "ok" : status.message() + " | " + status.hint();
}
template <typename T>
std::string what(const Result<T>& result) {
  return what(result.status());
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

inline testing::AssertionResult says(const char*, const char*, const std::string& said, const std::string& part) {
  if (contains(said, part)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "wanted: " << part << "\nsaid:   " << said;
}
#define EXPECT_SAYS(result, part) EXPECT_PRED_FORMAT2(says, what(result), std::string(part))

/// The effective settings as JSON text.
inline std::string to_json_text(const Profile& profile) { return to_json(profile).dump(); }

inline bool adjusted(const Profile& profile, const std::string& part) {
  for (const std::string& sentence : profile.adjustments)
    if (contains(sentence, part)) return true;
  return false;
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "turbo-profile-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    const auto file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
    return file;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace turbo::profile
