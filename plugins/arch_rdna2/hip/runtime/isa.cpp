#include "isa.h"

#include <turbo/plugin.hpp>

#include <algorithm>
#include <charconv>

namespace turbo::hip {
namespace {

struct Mapping {
  const char *isa, *family;
};
// All of RDNA2 has the instructions of gfx1030. Generations without a row have no common target.
constexpr Mapping kFamilies[] = {{"gfx1030", "gfx1030"}, {"gfx1031", "gfx1030"}, {"gfx1032", "gfx1030"}, {"gfx1033", "gfx1030"},
                                 {"gfx1034", "gfx1030"}, {"gfx1035", "gfx1030"}, {"gfx1036", "gfx1030"}};

// 90 of "sm_90"; of "sm_90a", which runs on nothing else, and of other names 0.
uint32_t sm_version(std::string_view isa) {
  if (!isa.starts_with("sm_")) return 0;
  uint32_t version = 0;
  const auto [end, failed] = std::from_chars(isa.data() + 3, isa.data() + isa.size(), version);
  return failed == std::errc() && end == isa.data() + isa.size() ? version : 0;
}

std::string_view name_of(const turbo_code_object* objects, uint32_t i) {
  const char* isa = detail::element(objects, i).isa;
  return isa ? isa : "";
}

}  // namespace

std::string plain_isa(std::string_view reported) { return std::string(reported.substr(0, reported.find(':'))); }

std::string normalised_isa(std::string_view isa) {
  for (const Mapping& row : kFamilies)
    if (isa == row.isa) return row.family;
  return std::string(isa);
}

std::vector<uint32_t> candidate_objects(std::string_view isa, const turbo_code_object* objects, uint32_t n) {
  const std::string family = normalised_isa(isa);
  const uint32_t version = sm_version(isa);
  std::vector<std::pair<uint32_t, uint32_t>> ranked;  // rank, place; lower is better
  for (uint32_t i = 0; i < n; ++i) {
    const std::string_view name = name_of(objects, i);
    const uint32_t other = sm_version(name);
    if (name == isa) ranked.emplace_back(0, i);
    else if (name == family) ranked.emplace_back(1, i);
    else if (version == 0 && normalised_isa(name) == family) ranked.emplace_back(2, i);
    else if (version != 0 && other / 10 == version / 10 && other <= version) ranked.emplace_back(2 + version - other, i);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<uint32_t> places;
  for (const auto& [rank, place] : ranked) places.push_back(place);
  return places;
}

std::string isa_list(const turbo_code_object* objects, uint32_t n) {
  std::string list;
  for (uint32_t i = 0; i < n; ++i) list += (i ? ", " : "") + std::string(name_of(objects, i));
  return n == 0 ? "none" : list;
}

}  // namespace turbo::hip
