// Listings of the catalog for `turbo plugins list` and `turbo plugins explain`.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/nearest.h"
#include "loader/catalog.h"
#include "loader/host.h"
#include "loader/table.h"
#include "loader/text.h"

namespace turbo::loader {
using nlohmann::json;
namespace {

json row_of(const PluginEntry& plugin, const ManifestLibrary* library, const ManifestComponent* component) {
  const bool known = !plugin.manifest.id.empty();
  const std::string state = plugin.refusal.is_ok() ? "ok" : plugin.shadowed ? "shadowed" : "refused";
  return {{"kind", component ? component->kind : "-"},
          {"name", component ? component->name : "-"},
          {"tier", component ? tier_name(component->tier) : "-"},
          {"plugin", known ? plugin.manifest.id : "-"},
          {"version", known ? plugin.manifest.version : "-"},
          {"abi", known ? fmt::format("{}.{}", plugin.manifest.abi_major, plugin.manifest.abi_minor) : "-"},
          {"path", clean_text((library                ? plugin.folder / library->path
                               : plugin.search_folder ? plugin.folder
                                                      : plugin.folder / "plugin.yaml")
                                  .string(),
                              1024)},
          {"state", state},
          {"reason", advice(plugin.refusal)}};
}

// The table, and the warnings that none of its rows gives as its reason.
std::string rows_text(const json& rows, const std::vector<std::string>& columns,
                      const std::vector<std::string>& warnings) {
  TextTable table(columns);
  for (const json& row : rows) {
    std::vector<std::string> cells;
    for (const std::string& column : columns) {
      const json& cell = row.at(column);
      cells.push_back(cell.is_string() ? cell.get<std::string>() : cell.dump());
    }
    table.add(std::move(cells));
  }
  std::string text = rows.empty() ? "no plugins found\n" : table.text();
  for (const std::string& warning : warnings) {
    const bool told = std::any_of(rows.begin(), rows.end(), [&](const json& row) {
      const auto& reason = row["reason"].get_ref<const std::string&>();
      return !reason.empty() && warning.find(reason) != std::string::npos;
    });
    if (!told) text += "warning: " + warning + "\n";
  }
  return text;
}

}  // namespace

json Catalog::list_json() const {
  json rows = json::array();
  for (const PluginEntry& plugin : *plugins_) {
    if (plugin.manifest.id.empty()) rows.push_back(row_of(plugin, nullptr, nullptr));
    for (const ManifestLibrary& library : plugin.manifest.libraries)
      for (const ManifestComponent& component : library.components) {
        json row = row_of(plugin, &library, &component);
        const auto opened = opened_.find(&library);
        if (plugin.refusal.is_ok() && opened != opened_.end() && !opened->second.status.is_ok()) {
          row["state"] = "refused";
          row["reason"] = advice(opened->second.status);
        }
        rows.push_back(std::move(row));
      }
  }
  return rows;
}

std::string Catalog::list_text() const {
  return rows_text(list_json(), {"kind", "name", "tier", "plugin", "version", "abi", "path", "state", "reason"},
                   warnings_);
}

Result<json> Catalog::explain_json(const std::string& id) {
  std::vector<std::string> ids;
  json rows = json::array();
  bool found = false;
  for (const PluginEntry& plugin : *plugins_) {
    ids.push_back(plugin.manifest.id);
    if (!id.empty() && plugin.manifest.id != id) continue;
    found = true;
    if (plugin.manifest.id.empty()) rows.emplace_back(row_of(plugin, nullptr, nullptr))["score"] = 0;
    for (const ManifestLibrary& library : plugin.manifest.libraries) {
      for (const ManifestComponent& component : library.components) {
        json row = row_of(plugin, &library, &component);
        row["score"] = 0;
        if (plugin.refusal.is_ok()) {
          const Result<const turbo_component*> opened = open({&plugin, &library, &component});
          if (opened) {
            ComponentHost host({.label = plugin.manifest.id + "/" + component.name});
            const ProbeOutcome outcome = probe_here(**opened, host.host(), nullptr);
            row["score"] = outcome.score;
            row["state"] = outcome.score > 0 ? "ok" : "unusable";
            row["reason"] = outcome.reason;
          } else {
            row["state"] = "refused";
            row["reason"] = advice(opened.status());
          }
        }
        rows.push_back(std::move(row));
      }
    }
  }
  if (found || id.empty()) return rows;
  const std::string near = nearest_name(id, ids);
  return Status(Code::not_found, fmt::format("plugin '{}': not found", clean_text(id, 128)),
                near.empty() ? "see `turbo plugins list`" : fmt::format("did you mean '{}'?", near));
}

Result<std::string> Catalog::explain_text(const std::string& id) {
  TURBO_ASSIGN(const json rows, explain_json(id));
  return rows_text(rows, {"kind", "name", "tier", "plugin", "version", "abi", "state", "score", "reason", "path"},
                   warnings_);
}

}  // namespace turbo::loader
