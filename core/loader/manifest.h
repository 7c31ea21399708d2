// plugin.yaml: what a plugin says about itself without being loaded.
//
// Hostile input: at most 64 KiB, 8 levels, 4096 nodes; no anchors, aliases, tags or second document; unknown and
// repeated keys are errors; every id, name and path is checked against its character set. Pure, any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace turbo::loader {

inline constexpr uint64_t max_manifest_bytes = 64 << 10;

struct ManifestComponent {
  std::string kind, name;
  uint32_t tier = 0;
  std::vector<uint32_t> types;     // GGUF numbers, weight formats only
  std::vector<std::string> needs;  // free words such as "gfx1031" or "avx2", for listings
  bool operator==(const ManifestComponent&) const = default;
};

struct ManifestLibrary {
  std::string path;    // relative to the manifest, stays inside its folder
  std::string sha256;  // lower-case hex, empty when not given
  std::vector<ManifestComponent> components;
};

struct Manifest {
  std::string id, name, version, vendor, license, description;
  uint32_t abi_major = 0, abi_minor = 0;
  std::vector<ManifestLibrary> libraries;
};

/// The kinds this turbo knows, in listing order.
const std::vector<std::string>& component_kinds();

/// `source` names the file in messages ("<source>:<line>: ...").
Result<Manifest> parse_manifest(std::string_view text, const std::string& source);

/// parse_manifest of a file, read with a bound.
Result<Manifest> read_manifest(const std::filesystem::path& file);

}  // namespace turbo::loader
