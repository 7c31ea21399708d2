// In-process probing and the cache of verdicts; the child process is in probe_child.cpp.
#include "loader/probe.h"

#include <nlohmann/json.hpp>

#include "loader/cache_folder.h"
#include "loader/library.h"
#include "loader/probe_child.h"
#include "loader/text.h"

namespace turbo::loader {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

constexpr auto overtime = std::chrono::milliseconds(200);
constexpr uint64_t max_verdict_bytes = 256 << 10;

json identity_json(const FileIdentity& library) {
  return {{"schema", 1},
          {"host_abi", fmt::format("{}.{}", TURBO_ABI_MAJOR, TURBO_ABI_MINOR)},
          {"path", clean_text(library.path, 4096)},
          {"bytes", library.bytes},
          {"mtime_ns", library.mtime_ns},
          {"sha256", library.sha256}};
}

std::optional<Verdict> recall(const fs::path& file, const FileIdentity& library) {
  if (!check_trusted(file).is_ok()) return std::nullopt;
  const Result<std::string> text = read_bounded(file, max_verdict_bytes);
  if (!text) return std::nullopt;
  const json stored = json::parse(*text, nullptr, false);
  if (!stored.is_object() || stored.value("library", json()) != identity_json(library)) return std::nullopt;
  try {
    Verdict verdict;
    verdict.refusal = clean_text(stored.at("refusal").get<std::string>(), 1024);
    for (const json& entry : stored.at("bad")) {
      const auto index = entry.at("component").get<uint32_t>();
      verdict.bad[index] = clean_text(entry.at("what").get<std::string>(), 1024);
    }
    verdict.remembered = true;
    return verdict;
  } catch (const json::exception&) {  // written by something else: as if it were not there
    return std::nullopt;
  }
}

void remember(const fs::path& file, const FileIdentity& library, const Verdict& verdict) {
  json bad = json::array();
  for (const auto& [index, what] : verdict.bad) bad.push_back({{"component", index}, {"what", what}});
  const json stored{{"library", identity_json(library)}, {"refusal", verdict.refusal}, {"bad", std::move(bad)}};
  replace_file(file, stored.dump(1, ' ', false, json::error_handler_t::replace));
}

}  // namespace

fs::path default_probe_cache_folder() { return cache_folder("probe"); }

fs::path verdict_file(const fs::path& cache_folder, const FileIdentity& library) {
  return cache_folder / (sha256_hex(library.path).substr(0, 32) + ".json");
}

Result<Verdict> probe_in_child(const FileIdentity& library, uint32_t tier_hint, const ProbeSettings& settings) {
  const fs::path file = settings.cache_folder.empty() ? fs::path() : verdict_file(settings.cache_folder, library);
  if (!file.empty())
    if (std::optional<Verdict> known = recall(file, library)) return *std::move(known);
  TURBO_ASSIGN(ChildReport report, run_probe_children(library.path, tier_hint, settings));
  // A refusal (a missing driver, another ABI) can be mended without touching the file, so it is not remembered.
  if (!file.empty() && !report.mendable) remember(file, library, report.verdict);
  return report.verdict;
}

ProbeOutcome probe_here(const turbo_component& component, const turbo_host* host, const turbo_model_facts* model) {
  turbo_probe_facts facts{};
  facts.struct_size = sizeof facts;
  facts.tier = component.tier;
  facts.model = model;
  turbo_probe_result result{};
  result.struct_size = sizeof result;
  const auto begin = std::chrono::steady_clock::now();
  const Status status =
      call_plugin("probe", [&](turbo_error* error) { return component.probe(host, &facts, &result, error); });
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
  ProbeOutcome outcome;
  if (took > overtime)
    outcome.warning = fmt::format("probe took {} ms; at most {} ms are allowed", took.count(), overtime.count());
  outcome.reason = clean_c_text(result.reason, sizeof result.reason);
  if (!status.is_ok()) {
    outcome.reason = status.message();
    outcome.misbehaved = status.code() == Code::internal;
  } else if (result.score < 0 || result.score > 1000 || result.struct_size != sizeof result) {
    outcome.reason = fmt::format("probe answered garbage: score {}, expected 0 to 1000", result.score);
    outcome.misbehaved = true;
  } else {
    outcome.score = result.score;
    if (outcome.score == 0 && outcome.reason.empty()) outcome.reason = "probe says unusable here, without a reason";
  }
  return outcome;
}

}  // namespace turbo::loader
