// What is installed: the plugins found on the search path, from their manifests alone, and the way to open one.
//
// Search order: the profile's plugin paths, TURBO_PLUGIN_PATH, <prefix>/lib/turbo/plugins of the running executable.
// An entry is a folder of plugin folders, or a plugin folder itself. Of several plugins with one id the first that can
// be loaded counts (catalog_copies.cpp); only to decide that are libraries opened by a scan. [load] only.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "loader/library.h"
#include "loader/manifest.h"
#include "loader/probe.h"

namespace turbo::loader {

struct PluginEntry {
  std::filesystem::path folder;  // absolute
  Manifest manifest;             // empty id when it could not be read
  Status refusal;                // ok: may be used
  bool shadowed = false;         // the refusal is only that an earlier folder has the same id
  bool replaced = false;         // another copy of the same id is used instead
  bool search_folder = false;    // not a plugin: an entry of the search path that was refused as a whole
};

/// One component of one plugin, as its manifest lists it. Pointers live as long as the catalog.
struct ComponentRef {
  const PluginEntry* plugin = nullptr;
  const ManifestLibrary* library = nullptr;
  const ManifestComponent* component = nullptr;
};

struct CatalogSettings {
  std::vector<std::filesystem::path> plugin_paths;  // the profile's; each must exist
  std::string environment_paths;                    // value of TURBO_PLUGIN_PATH
  std::filesystem::path install_folder;             // may not exist
  bool allow_unsafe = false;   // what others can write to or own (check_trusted_path), empty search path entries
  bool isolate_probes = true;  // false: never start a child
  ProbeSettings probe;

  /// Environment, executable location and cache folder of this process.
  static CatalogSettings of_this_process();
};

class Catalog {
 public:
  /// Fails only when a path that the profile names is missing or unsafe; every other problem is kept as an entry with
  /// a refusal, or as a warning.
  static Result<Catalog> scan(CatalogSettings settings);

  const std::vector<PluginEntry>& plugins() const { return *plugins_; }
  /// Usable plugins of the id, or null.
  const PluginEntry* find(const std::string& id) const;
  /// Components of usable plugins, in order of plugin id.
  std::vector<ComponentRef> components(const std::string& kind) const;
  /// Components of refused plugins whose manifest could be read.
  std::vector<ComponentRef> refused_components(const std::string& kind) const;
  /// Problems of the search path and of probing, one sentence each.
  const std::vector<std::string>& warnings() const { return warnings_; }

  /// Open, prove in a child, negotiate and compare with the manifest, once for each library. The descriptor lives
  /// until the process ends.
  Result<const turbo_component*> open(const ComponentRef& ref);

  /// Rows of `turbo plugins list`, from manifests and what is already open: kind, name, tier, plugin, version, abi,
  /// path, state, reason.
  nlohmann::json list_json() const;
  std::string list_text() const;
  /// Rows of `turbo plugins explain`: as list_json, after opening and probing each component of the plugin (all when
  /// the id is empty); with a score.
  Result<nlohmann::json> explain_json(const std::string& id);
  Result<std::string> explain_text(const std::string& id);

  const CatalogSettings& settings() const { return settings_; }
  /// Where to put a plugin, for hints.
  std::string install_hint() const;

 private:
  struct OpenedLibrary {
    Status status;
    PluginView view;
    Verdict verdict;
  };

  explicit Catalog(CatalogSettings settings) : settings_(std::move(settings)) {}
  Status scan_profile_path(const std::filesystem::path& path);
  void scan_environment();
  Status scan_folder(const std::filesystem::path& folder);
  void add_plugin(const std::filesystem::path& folder);
  void refuse_folder(const std::filesystem::path& folder, std::string_view origin, const Status& status);
  void settle_copies();
  void settle(const std::vector<PluginEntry*>& copies);
  Status check_plugin_folder(const std::filesystem::path& folder) const;
  OpenedLibrary open_once(const ComponentRef& ref);
  Result<Verdict> prove(const FileIdentity& file, uint32_t tier);

  CatalogSettings settings_;
  // Behind a pointer so that references stay good when the catalog moves.
  std::unique_ptr<std::vector<PluginEntry>> plugins_ = std::make_unique<std::vector<PluginEntry>>();
  std::map<const ManifestLibrary*, OpenedLibrary> opened_;
  std::vector<std::string> warnings_;
};

/// The message and, where there is one, the hint in one line.
std::string advice(const Status& status);

/// "plugin 'id': kind 'name'".
std::string describe(const ComponentRef& ref);

}  // namespace turbo::loader
