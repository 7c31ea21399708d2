// Fuzz target: a profile's text. The first byte chooses whether the rest is parsed as a file or as one --set value.
// Corpus: tests/fuzz/corpus/profile.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "profile/flags.h"
#include "profile/profile.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace turbo::profile;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  SearchPaths search;
  search.working_folder = "/nowhere";
  if (text.starts_with('\x01')) {
    const auto overrides = flag_to_overrides("--set", std::string(text.substr(1)));
    if (overrides) (void)parse_profile("schema: 1\n", "/nowhere/p.yaml", *overrides, search);
    return 0;
  }
  const auto profile = parse_profile(text, "/nowhere/p.yaml", {}, search);
  if (profile.is_ok()) {
    if (fingerprint(*profile) != fingerprint(*profile)) __builtin_trap();
    (void)to_json(*profile).dump();  // throws, and so ends the run, when a value is not UTF-8
  }
  return 0;
}
