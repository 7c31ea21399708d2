#include "loader/catalog.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "loader/probe_child.h"
#include "loader/text.h"

namespace turbo::loader {
namespace fs = std::filesystem;
namespace {

constexpr size_t max_folders = 1000;  // of one search path entry
constexpr size_t max_plugins = 1000;

std::string shown(const fs::path& path) { return clean_text(path.string(), 1024); }

std::vector<ComponentRef> components_of(const std::vector<PluginEntry>& plugins, const std::string& kind, bool usable) {
  std::vector<ComponentRef> refs;
  for (const PluginEntry& plugin : plugins) {
    if (plugin.refusal.is_ok() != usable || plugin.shadowed) continue;
    for (const ManifestLibrary& library : plugin.manifest.libraries)
      for (const ManifestComponent& component : library.components)
        if (component.kind == kind) refs.push_back({&plugin, &library, &component});
  }
  std::stable_sort(refs.begin(), refs.end(), [](const ComponentRef& a, const ComponentRef& b) {
    return a.plugin->manifest.id < b.plugin->manifest.id;
  });
  return refs;
}

}  // namespace

std::string describe(const ComponentRef& ref) {
  return fmt::format("plugin '{}': {} '{}'", ref.plugin->manifest.id, ref.component->kind, ref.component->name);
}

std::string advice(const Status& status) {
  return status.hint().empty() ? status.message() : status.message() + "; " + status.hint();
}

CatalogSettings CatalogSettings::of_this_process() {
  CatalogSettings settings;
  if (const char* paths = std::getenv("TURBO_PLUGIN_PATH")) settings.environment_paths = paths;
  std::error_code failed;
  const fs::path executable = fs::read_symlink("/proc/self/exe", failed);
  if (!failed) settings.install_folder = executable.parent_path().parent_path() / "lib" / "turbo" / "plugins";
  settings.probe.cache_folder = default_probe_cache_folder();
  return settings;
}

Result<Catalog> Catalog::scan(CatalogSettings settings) {
  Catalog catalog(std::move(settings));
  for (const fs::path& path : catalog.settings_.plugin_paths) TURBO_RETURN_IF_ERROR(catalog.scan_profile_path(path));
  catalog.scan_environment();
  std::error_code failed;
  if (!catalog.settings_.install_folder.empty() && fs::is_directory(catalog.settings_.install_folder, failed)) {
    const Status status = catalog.scan_folder(catalog.settings_.install_folder);
    if (!status.is_ok()) catalog.refuse_folder(catalog.settings_.install_folder, "installed plugins", status);
  }
  catalog.settle_copies();
  for (const PluginEntry& plugin : *catalog.plugins_)
    if (!plugin.refusal.is_ok() && !plugin.search_folder)
      catalog.warnings_.push_back((plugin.replaced ? "" : "plugin refused: ") + advice(plugin.refusal));
  return catalog;
}

Status Catalog::scan_profile_path(const fs::path& path) {
  std::error_code failed;
  if (path.empty() && !settings_.allow_unsafe)
    return Status(Code::invalid_argument, "plugins.paths: an empty entry would mean the current folder",
                  "remove the entry, or set plugins.allow_unsafe: true");
  if (!path.empty() && !fs::is_directory(path, failed))
    return Status(Code::not_found, fmt::format("plugins.paths: {} is not a folder", shown(path)),
                  "correct the path; relative paths start at the profile's folder");
  return scan_folder(path.empty() ? fs::path(".") : path).with_context("plugins.paths");
}

void Catalog::scan_environment() {
  if (settings_.environment_paths.empty()) return;
  std::string_view rest = settings_.environment_paths;
  for (size_t number = 1; number <= 64; ++number) {
    const size_t colon = rest.find(':');
    const fs::path entry(rest.substr(0, colon));
    std::error_code failed;
    if (entry.empty() && !settings_.allow_unsafe) {
      warnings_.push_back(fmt::format(
          "TURBO_PLUGIN_PATH: entry {} is empty, which would mean the current folder: ignored; remove the extra ':'",
          number));
    } else if (!entry.empty() && !fs::is_directory(entry, failed)) {
      warnings_.push_back(fmt::format("TURBO_PLUGIN_PATH: {} is not a folder: ignored", shown(entry)));
    } else {
      const fs::path folder = entry.empty() ? fs::path(".") : entry;
      if (const Status status = scan_folder(folder); !status.is_ok())
        refuse_folder(folder, "TURBO_PLUGIN_PATH", status);
    }
    if (colon == std::string_view::npos) return;
    rest.remove_prefix(colon + 1);
  }
  warnings_.push_back("TURBO_PLUGIN_PATH: more than 64 entries: the rest is ignored");
}

Status Catalog::scan_folder(const fs::path& path) {
  std::error_code failed;
  const fs::path folder = fs::canonical(path, failed);
  if (failed) return error(Code::not_found, "{}: {}", shown(path), failed.message());
  if (!settings_.allow_unsafe) TURBO_RETURN_IF_ERROR(check_trusted_path(path));
  if (fs::exists(folder / "plugin.yaml", failed)) {
    add_plugin(folder);
    return Status::ok();
  }
  std::set<fs::path> found;  // sorted: the same order on every file system
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end && found.size() <= max_folders;
       it.increment(failed)) {
    std::error_code unreadable;
    if (fs::exists(it->path() / "plugin.yaml", unreadable)) found.insert(it->path());
  }
  if (failed) return error(Code::invalid_argument, "{}: cannot list: {}", shown(folder), failed.message());
  if (found.size() > max_folders)
    return error(Code::resource_exhausted, "{}: more than {} plugin folders", shown(folder), max_folders);
  for (const fs::path& plugin : found) add_plugin(plugin);
  return Status::ok();
}

// One entry of the search path that is not looked into: listed, and said.
void Catalog::refuse_folder(const fs::path& folder, std::string_view origin, const Status& status) {
  PluginEntry entry;
  entry.folder = folder;
  entry.search_folder = true;
  entry.refusal = Status(status.code(), fmt::format("{}: {}: folder ignored", origin, status.message()), status.hint());
  warnings_.push_back(advice(entry.refusal));
  plugins_->push_back(std::move(entry));
}

Status Catalog::check_plugin_folder(const fs::path& folder) const {
  if (settings_.allow_unsafe) return Status::ok();
  TURBO_RETURN_IF_ERROR(check_trusted_path(folder));
  return check_trusted_path(folder / "plugin.yaml");
}

void Catalog::add_plugin(const fs::path& folder) {
  if (plugins_->size() >= max_plugins) {
    if (plugins_->size() == max_plugins)
      warnings_.push_back(fmt::format("more than {} plugins: the rest is ignored", max_plugins));
    return;
  }
  for (const PluginEntry& known : *plugins_)
    if (known.folder == folder) return;  // named twice on the search path
  PluginEntry entry;
  entry.folder = folder;
  Result<Manifest> manifest = read_manifest(folder / "plugin.yaml");
  if (manifest)
    entry.manifest = *std::move(manifest);
  else
    entry.refusal = manifest.status();
  if (entry.refusal.is_ok()) entry.refusal = check_plugin_folder(folder);
  if (entry.refusal.is_ok() && entry.manifest.abi_major != TURBO_ABI_MAJOR)
    entry.refusal =
        Status(Code::unsupported,
               fmt::format("{}: built for ABI {}.{}, but this turbo has ABI {}.{}", shown(folder),
                           entry.manifest.abi_major, entry.manifest.abi_minor, TURBO_ABI_MAJOR, TURBO_ABI_MINOR),
               "install the build of the plugin that was made for this turbo");
  plugins_->push_back(std::move(entry));
}

const PluginEntry* Catalog::find(const std::string& id) const {
  for (const PluginEntry& plugin : *plugins_)
    if (plugin.refusal.is_ok() && plugin.manifest.id == id) return &plugin;
  return nullptr;
}

std::vector<ComponentRef> Catalog::components(const std::string& kind) const {
  return components_of(*plugins_, kind, true);
}
std::vector<ComponentRef> Catalog::refused_components(const std::string& kind) const {
  return components_of(*plugins_, kind, false);
}

std::string Catalog::install_hint() const {
  if (settings_.install_folder.empty()) return "put the plugin's folder on plugins.paths or TURBO_PLUGIN_PATH";
  return fmt::format("put the plugin's folder into {} or on plugins.paths", shown(settings_.install_folder));
}

Result<Verdict> Catalog::prove(const FileIdentity& file, uint32_t tier) {
  if (!settings_.isolate_probes || !can_start_probe_child()) return Verdict{};
  Result<Verdict> verdict = probe_in_child(file, tier, settings_.probe);
  if (verdict) return verdict;
  std::string warning = fmt::format("{}; plugins are probed inside this process", verdict.status().message());
  if (std::find(warnings_.begin(), warnings_.end(), warning) == warnings_.end())
    warnings_.push_back(std::move(warning));
  return Verdict{};
}

Catalog::OpenedLibrary Catalog::open_once(const ComponentRef& ref) {
  const auto refused = [](Status status) { return OpenedLibrary{std::move(status), {}, {}}; };
  const Result<fs::path> file = resolve_inside(ref.plugin->folder, ref.library->path);
  if (!file) return refused(file.status());
  if (!settings_.allow_unsafe) {
    const fs::path given = ref.plugin->folder / ref.library->path;
    for (const fs::path& path : {given, given.parent_path(), file->parent_path()})
      if (Status status = check_trusted_path(path); !status.is_ok()) return refused(std::move(status));
  }
  const Result<FileIdentity> identity = identify_file(*file);
  if (!identity) return refused(identity.status());
  if (!ref.library->sha256.empty() && ref.library->sha256 != identity->sha256)
    return refused(Status(Code::corrupt_input,
                          fmt::format("{}: sha256: the manifest says {} but the file has {}", shown(*file),
                                      ref.library->sha256, identity->sha256),
                          "reinstall the plugin: the library is damaged or was replaced"));
  OpenedLibrary opened;
  const Result<Verdict> verdict = prove(*identity, ref.component->tier);
  if (!verdict) return refused(verdict.status());
  opened.verdict = *verdict;
  const std::string forget = verdict->remembered
                                 ? fmt::format("remembered from an earlier start; remove {} to try again",
                                               shown(verdict_file(settings_.probe.cache_folder, *identity)))
                                 : "update or remove the plugin";
  if (!verdict->refusal.empty())
    return refused(Status(Code::unsupported, verdict->refusal, verdict->hint.empty() ? forget : verdict->hint));
  for (auto& [index, what] : opened.verdict.bad) {
    what = fmt::format("{}: {}", shown(*file), what);
    if (verdict->remembered) what += " (" + forget + ")";
  }
  // A library of which nothing can be used has no business in this process.
  if (opened.verdict.bad.size() >= ref.library->components.size())
    return refused(Status(Code::unsupported, opened.verdict.bad.begin()->second, "update or remove the plugin"));
  Result<PluginView> view = open_library(*file, ref.component->tier);
  if (!view) return refused(view.status());
  opened.status = check_agreement(*view, ref.plugin->manifest, *ref.library).with_context(shown(*file));
  opened.view = *std::move(view);
  return opened;
}

Result<const turbo_component*> Catalog::open(const ComponentRef& ref) {
  auto found = opened_.find(ref.library);
  if (found == opened_.end()) found = opened_.emplace(ref.library, open_once(ref)).first;
  const OpenedLibrary& opened = found->second;
  if (!opened.status.is_ok()) return opened.status;
  for (size_t i = 0; i < opened.view.components.size(); ++i) {
    const turbo_component* component = opened.view.components[i];
    if (component->tier != ref.component->tier || ref.component->kind != component->kind ||
        ref.component->name != component->name)
      continue;
    const auto bad = opened.verdict.bad.find(static_cast<uint32_t>(i));
    if (bad == opened.verdict.bad.end()) return component;
    return Status(Code::unsupported, bad->second, "update or remove the plugin");
  }
  return error(Code::internal, "{}: not in its library", describe(ref));
}

}  // namespace turbo::loader
