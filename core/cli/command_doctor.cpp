// turbo doctor: what this machine offers, and what to do about what it does not.
#include <dlfcn.h>

#include <array>
#include <fstream>

#include "base/machine.h"
#include "base/human.h"
#include "cli/commands.h"
#include "cli/doctor_report.h"
#include "loader/catalog.h"

namespace turbo::cli {
namespace {

struct Check {
  std::string what;
  bool good;
  std::string found;
  std::string fix;  // when not good
};

std::string cpu_row(const char* key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) {
      const size_t colon = line.find(':');
      return colon == std::string::npos || colon + 2 > line.size() ? "" : line.substr(colon + 2);
    }
  return "unknown";
}

std::string isa_summary() {
  const std::string flags = " " + cpu_row("flags") + " ";
  std::string found;
  for (const char* flag : {"avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_vbmi", "avx512_bf16"})
    if (flags.find(" " + std::string(flag) + " ") != std::string::npos) found += std::string(found.empty() ? "" : " ") + flag;
  return found.empty() ? "baseline only" : found;
}

Check library_check(const char* what, std::span<const char* const> names, const char* fix) {
  for (const char* name : names)
    if (void* handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL)) {
      dlclose(handle);
      return {what, true, name, ""};
    }
  return {what, false, "not found", fix};
}

// An arch pack tells of the machine's other devices behind the one it would use.
std::string below_each_other(std::string text) {
  const std::string between = "; device ";
  for (size_t at = 0; (at = text.find(between, at)) != std::string::npos;) text.replace(at, 2, "\n" + std::string(50, ' '));
  return text;
}

std::vector<Check> run_checks() {
  std::vector<Check> checks;
  checks.push_back({"cpu", true, fmt::format("{}, {} usable", cpu_row("model name"), usable_cpus()), ""});
  checks.push_back({"isa", true, isa_summary(), ""});
  const uint64_t memory = available_memory_bytes();
  checks.push_back({"memory", memory > (uint64_t{1} << 30), human_bytes(memory) + " available", "close other programs or use a smaller model"});
  constexpr std::array hip{"libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"};
  checks.push_back(library_check("hip runtime", hip, "install ROCm's HIP runtime to use an AMD card; the CPU tier needs nothing"));
  constexpr std::array vulkan{"libvulkan.so.1"};
  checks.push_back(library_check("vulkan loader", vulkan, "install libvulkan1 to use a GPU through Vulkan; the CPU tier needs nothing"));
  return checks;
}

}  // namespace

int run_doctor(const Arguments& arguments) {
  if (arguments.has("--report")) return run_doctor_report(arguments);
  if (!arguments.positional.empty())
    return fail(Status(Code::invalid_argument, "turbo doctor: unexpected argument '" + arguments.positional[0] + "'", "a file goes with --report"),
                arguments, kUsage);
  int exit_code = kOk;
  const auto profile = load_profile(arguments, exit_code);
  if (!profile) return exit_code;
  std::vector<Check> checks = run_checks();
  loader::CatalogSettings settings = loader::CatalogSettings::of_this_process();
  settings.plugin_paths = profile->plugins.paths;
  settings.allow_unsafe = profile->plugins.allow_unsafe;
  Result<loader::Catalog> catalog = loader::Catalog::scan(std::move(settings));
  if (!catalog) return fail(catalog.status(), arguments, kUsage);
  const auto rows = catalog->explain_json("");
  if (!rows) return fail(rows.status(), arguments);
  for (const auto& row : *rows) {
    const std::string state = row.value("state", ""), reason = row.value("reason", "");
    const bool good = state == "ok" || state == "usable";
    checks.push_back({fmt::format("plugin {} {} ({})", row.value("kind", ""), row.value("name", ""), row.value("tier", "")), good,
                      good ? (reason.empty() ? state : reason) : state, reason});
  }
  if (arguments.style.json) {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const Check& check : checks)
      json.push_back({{"check", check.what}, {"ok", check.good}, {"found", check.found}, {"fix", check.fix}});
    print_json(json);
    return kOk;
  }
  for (const Check& check : checks) {
    fmt::print("{} {:<44} {}\n", check.good ? "ok  " : "--  ", check.what, below_each_other(check.found));
    if (!check.good && !check.fix.empty()) fmt::print("       fix: {}\n", check.fix);
  }
  for (const std::string& warning : catalog->warnings()) fmt::print("!!   {}\n", warning);
  return kOk;
}

}  // namespace turbo::cli
