// Several copies of one plugin id: which of them counts.
//
// The earliest on the search path, unless it cannot be loaded. What works is known only after opening, so copies are
// opened here, and only where there are several: the earliest, and when it is faulty the later ones. A copy makes way
// for a later one that provides all that works in it, and something that is broken in it. So a plugin whose part for
// a missing GPU runtime cannot be loaded keeps its place before one that has no such part.
#include <algorithm>
#include <iterator>
#include <set>

#include "loader/catalog.h"
#include "loader/text.h"

namespace turbo::loader {
namespace {

struct CopyFacts {
  std::set<std::string> works, broken;  // components
  Status why;                           // of the first that is broken
};

bool makes_way(const CopyFacts& earlier, const CopyFacts& later) {
  if (later.works.empty() ||
      !std::includes(later.works.begin(), later.works.end(), earlier.works.begin(), earlier.works.end()))
    return false;
  if (earlier.works.empty()) return true;
  return std::any_of(earlier.broken.begin(), earlier.broken.end(),
                     [&](const std::string& component) { return later.works.count(component) != 0; });
}

std::string at(const PluginEntry& copy) {
  return fmt::format("plugin '{}' at {}", copy.manifest.id, clean_text(copy.folder.string(), 1024));
}

}  // namespace

void Catalog::settle_copies() {
  std::map<std::string, std::vector<PluginEntry*>> by_id;
  for (PluginEntry& plugin : *plugins_)
    if (!plugin.manifest.id.empty()) by_id[plugin.manifest.id].push_back(&plugin);
  for (auto& [id, copies] : by_id)
    if (copies.size() > 1) settle(copies);
}

void Catalog::settle(const std::vector<PluginEntry*>& copies) {
  const auto examine = [&](const PluginEntry& copy) {
    CopyFacts facts;
    for (const ManifestLibrary& library : copy.manifest.libraries)
      for (const ManifestComponent& component : library.components) {
        const Result<const turbo_component*> opened = open({&copy, &library, &component});
        if (!opened && facts.broken.empty()) facts.why = opened.status();
        (opened ? facts.works : facts.broken)
            .insert(fmt::format("{}:{}:{}", component.kind, component.name, component.tier));
      }
    return facts;
  };
  std::vector<PluginEntry*> usable;
  std::copy_if(copies.begin(), copies.end(), std::back_inserter(usable),
               [](const PluginEntry* copy) { return copy->refusal.is_ok(); });
  if (usable.empty()) return;
  PluginEntry* used = usable.front();
  std::map<const PluginEntry*, Status> broken;  // why a copy is passed over although it came first, or cannot serve
  if (usable.size() > 1) {
    CopyFacts facts = examine(*used);
    for (size_t i = 1; i < usable.size() && !facts.broken.empty(); ++i) {
      CopyFacts other = examine(*usable[i]);
      if (makes_way(facts, other)) {
        broken.emplace(used, facts.why);
        used = usable[i];
        facts = std::move(other);
      } else if (other.works.empty()) {
        broken.emplace(usable[i], other.why);
      }
    }
    if (facts.works.empty())
      warnings_.push_back(fmt::format("plugin '{}': no copy can be loaded; the one at {}: {}", used->manifest.id,
                                      clean_text(used->folder.string(), 1024), advice(facts.why)));
  }
  const std::string instead = fmt::format("using the one at {}", clean_text(used->folder.string(), 1024));
  for (PluginEntry* copy : copies) {
    if (copy == used) continue;
    const auto found = broken.find(copy);
    const Status why = found != broken.end() ? found->second : copy->refusal;
    copy->shadowed = why.is_ok();
    copy->refusal =
        copy->shadowed ? error(Code::unsupported, "{} not used: the one at {} comes earlier on the search path",
                               at(*copy), clean_text(used->folder.string(), 1024))
                       : Status(why.code(), fmt::format("{} refused because {}; {}", at(*copy), why.message(), instead),
                                why.hint());
    copy->replaced = true;
  }
}

}  // namespace turbo::loader
