// Opening one plugin library and agreeing with it on the ABI.
//
// Libraries are opened with immediate binding and local symbols and stay mapped until the process ends. Everything a
// library answers is checked before it is used. [load] only: callers open from one thread.
#pragma once

#include <turbo/abi/plugin.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "loader/manifest.h"

namespace turbo::loader {

/// A checked view of what turbo_plugin_query answered. Pointers live until the process ends.
struct PluginView {
  std::string id, version;
  uint32_t abi_major = 0, abi_minor = 0;
  std::vector<const turbo_component*> components;
};

/// Told before each stage ("load", "query") so that a crash can be placed. May be empty.
using StageFn = std::function<void(const char* stage)>;

/// Open, find turbo_plugin_query, negotiate, check every descriptor. Messages start with the file's path.
Result<PluginView> open_library(const std::filesystem::path& file, uint32_t tier_hint, const StageFn& stage = {});

/// The checks of open_library on an answer of turbo_plugin_query (null allowed).
Result<PluginView> check_plugin(const turbo_plugin* plugin);

/// The library must say exactly what its manifest entry says.
Status check_agreement(const PluginView& plugin, const Manifest& manifest, const ManifestLibrary& library);

/// The interface id that a component of this kind must offer, and null members of its table that are required on
/// this tier. Returns the table.
Result<const void*> checked_interface(const turbo_component& component);

/// Run a call into a plugin: an exception that escapes it becomes Code::internal, a status code its Status, a message
/// that is not proper text is cleaned. `what` says who did what ("plugin 'x': sampler 'y': create").
Status call_plugin(const std::string& what, const std::function<turbo_status(turbo_error*)>& call);

}  // namespace turbo::loader
