// The report of a resolution as JSON and as text.
#include <nlohmann/json.hpp>

#include "loader/resolve.h"
#include "loader/table.h"

namespace turbo::loader {

nlohmann::json Report::json() const {
  using nlohmann::json;
  json out{{"tier", tier.empty() ? json() : json(tier)},
           {"device", nullptr},
           {"slots", json::array()},
           {"warnings", warnings}};
  if (device)
    out["device"] = {
        {"name", device->name}, {tier == "hip" ? "gfx" : "isa", device->isa}, {"memory_bytes", device->memory_bytes}, {"threads", device->threads}};
  for (const Slot& slot : slots) {
    json entry{{"slot", slot.slot}, {"chosen", nullptr}, {"rejected", json::array()}};
    if (slot.chosen)
      entry["chosen"] = {{"plugin", slot.chosen->plugin},
                         {"version", slot.chosen->version},
                         {"component", slot.chosen->component},
                         {"tier", slot.chosen->tier},
                         {"score", slot.chosen->score}};
    for (const Rejected& rejected : slot.rejected)
      entry["rejected"].push_back({{"plugin", rejected.plugin}, {"tier", rejected.tier}, {"reason", rejected.reason}});
    out["slots"].push_back(std::move(entry));
  }
  return out;
}

std::string Report::text() const {
  std::string out = "tier: " + (tier.empty() ? std::string("none") : tier) + "\n";
  if (device) out += fmt::format("device: {} ({}), {} MiB\n", device->name, device->isa, device->memory_bytes >> 20);
  TextTable table({"slot", "plugin", "version", "component", "tier", "score"});
  for (const Slot& slot : slots) {
    if (slot.chosen)
      table.add({slot.slot, slot.chosen->plugin, slot.chosen->version, slot.chosen->component, slot.chosen->tier,
                 std::to_string(slot.chosen->score)});
    else
      table.add({slot.slot, "-", "-", "-", "-", "-"});
  }
  out += "\n" + table.text();
  TextTable lost({"slot", "tier", "plugin", "why not"});
  bool any = false;
  for (const Slot& slot : slots)
    for (const Rejected& rejected : slot.rejected) {
      any = true;
      lost.add({slot.slot, rejected.tier, rejected.plugin.empty() ? "-" : rejected.plugin, rejected.reason});
    }
  if (any) out += "\n" + lost.text();
  if (!warnings.empty()) out += "\n";
  for (const std::string& warning : warnings) out += "warning: " + warning + "\n";
  return out;
}

}  // namespace turbo::loader
