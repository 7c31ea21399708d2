// libFuzzer target: any bytes as a plugin manifest. What is accepted obeys the bounds that listings and loading rely on.
// Corpus: tests/fuzz/corpus/manifest.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "loader/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace turbo::loader;
  const auto manifest = parse_manifest({reinterpret_cast<const char*>(data), size}, "plugin.yaml");
  if (!manifest) {
    if (manifest.status().message().empty()) std::abort();
    return 0;
  }
  if (manifest->id.empty() || manifest->libraries.empty()) std::abort();
  for (const ManifestLibrary& library : manifest->libraries) {
    // A path stays inside the plugin's folder.
    const std::filesystem::path path(library.path);
    if (path.empty() || path.is_absolute() || std::find(path.begin(), path.end(), "..") != path.end()) std::abort();
    if (!library.sha256.empty() && library.sha256.size() != 64) std::abort();
    for (const ManifestComponent& component : library.components) {
      const auto& kinds = component_kinds();
      if (std::find(kinds.begin(), kinds.end(), component.kind) == kinds.end()) std::abort();
      if (component.name.empty() || component.name.size() > 32) std::abort();
    }
  }
  return 0;
}
