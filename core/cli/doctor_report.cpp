#include "cli/doctor_report.h"

#include <turbo/abi/plugin.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "cli/child.h"
#include "cli/commands.h"
#include "profile/search.h"

extern char** environ;

namespace turbo::cli {
using Json = nlohmann::ordered_json;
namespace {

constexpr std::chrono::seconds kPlanLimit{60}, kRunLimit{180};
constexpr double kFastEnough = 20;  // tokens/s of the smaller bundled model that make the larger one worth its time

struct Model {
  const char* file;
  const char* tokens;
};
constexpr Model kSmall{"models/turbo-nano-q1.gguf", "32"}, kLarger{"models/turbo-mini-q1.gguf", "128"};
constexpr const char* kPrompt = "The git commit command records changes to the repository. ";

Json build_facts() {
  Json facts{{"version", TURBO_VERSION},
             {"abi", fmt::format("{}.{}", TURBO_ABI_MAJOR, TURBO_ABI_MINOR)},
             {"compiler", tidy(__VERSION__, 128)}};
#if defined(__clang__)
  facts["compiler"] = "clang " + facts["compiler"].get<std::string>();
#else
  facts["compiler"] = "gcc " + facts["compiler"].get<std::string>();
#endif
#if defined(__OPTIMIZE__)
  facts["optimised"] = true;
#else
  facts["optimised"] = false;
#endif
  return facts;
}

std::vector<std::string> variables_of_this_process() {
  std::vector<std::string> entries;
  for (char** entry = environ; entry && *entry; ++entry) entries.emplace_back(*entry);
  return entries;
}

// Children get settings on their command line; a variable such as TURBO_TIER or TURBO_JSON would only be in the way.
bool is_option_twin(const std::string& name) {
  if (!name.starts_with("TURBO_")) return false;
  for (const profile::Flag& flag : profile::flag_table())
    if (name == profile::environment_name(flag.name)) return true;
  for (const Command& command : commands())
    for (const Option& option : command.options)
      if (name == profile::environment_name(option.name)) return true;
  return false;
}

class Reporter {
 public:
  explicit Reporter(const Arguments& arguments) : arguments_(arguments) {}

  Json make() {
    Json report{{"report", "turbo doctor"}, {"schema", 1}};
    note("the machine");
    section(report, "turbo", [] { return build_facts(); });
    section(report, "system", [] { return system_facts(); });
    section(report, "processor", [] { return processor_facts(); });
    section(report, "displays", [] { return display_facts(); });
    section(report, "driver", [] { return driver_facts(); });
    section(report, "device_files", [] { return node_facts(); });
    section(report, "runtimes", [] { return runtime_facts(); });
    section(report, "variables", [] { return variable_facts(variables_of_this_process()); });
    note("the plugins");
    section(report, "hip_plugins", [&] { return plugins(); });
    note("the hip tier and its self-test");
    section(report, "hip_tier", [&] { return resolution(); });
    section(report, "self_test", [&] { return self_test(report["hip_tier"]); });
    section(report, "bench", [&] { return bench(report["hip_tier"].contains("device")); });
    report["faults"] = faults_;
    return report;
  }

 private:
  // A section that cannot be made is a fault among the others.
  template <typename Make>
  void section(Json& report, const char* name, Make&& make) {
    try {
      report[name] = make();
    } catch (const std::exception& fault) {
      report[name] = {{"error", tidy(fault.what())}};
      faults_.push_back(std::string(name) + ": " + tidy(fault.what()));
    }
  }

  void note(const char* what) const {
    if (!arguments_.style.quiet) print_note("turbo doctor: looking at {}\n", what);
  }

  // The settings of this command line, without those of a server: keys may be among them.
  std::vector<std::string> settings() const {
    std::vector<std::string> words;
    if (arguments_.profile) words.insert(words.end(), {"--profile", *arguments_.profile});
    for (const profile::Override& setting : arguments_.overrides) {
      if (setting.key_path.empty() || setting.key_path.starts_with("server") || setting.key_path == "require") continue;
      words.insert(words.end(), {"--set", setting.key_path + "=" + setting.value});
    }
    return words;
  }

  // The JSON of a command of this program; otherwise {"error": ...}, which is listed among the faults where it is one.
  Json ask(std::vector<std::string> words, std::chrono::milliseconds limit, double* seconds = nullptr) {
    const std::string command = words[0];
    const std::vector<std::string> more = settings();
    words.insert(words.begin() + 1, more.begin(), more.end());
    words.insert(words.end(), {"--json", "--quiet"});
    ChildSettings child;
    child.limit = limit;
    child.keeps_variable = [](const std::string& name) { return !is_option_twin(name); };
    const ChildResult result = run_child(words, child);
    if (seconds) *seconds = result.seconds;
    Json answer = Json::parse(result.out, nullptr, false);
    const std::string said = tail(result.err);
    if (!result.failure.empty() || answer.is_discarded()) {
      const std::string what = result.failure.empty() ? fmt::format("gave no result, exit code {}", result.exit_code) : result.failure;
      answer = {{"error", fmt::format("turbo {} {}", command, what)}};
      if (!said.empty()) answer["said"] = said;
      faults_.push_back(answer["error"]);
    } else if (answer.is_object() && answer.contains("error") && answer["error"].is_object()) {
      const Json error = answer["error"];
      answer = {{"error", tidy(error.value("message", "unknown"))}};
      if (const std::string hint = error.value("hint", ""); !hint.empty()) answer["hint"] = tidy(hint);
    }
    return answer;
  }

  static std::string tail(const std::string& text) {
    constexpr size_t most = 2048;
    if (text.size() <= most) return tidy(text);
    const size_t line = text.find('\n', text.size() - most);
    return tidy(line == std::string::npos ? text.substr(text.size() - most) : text.substr(line + 1));
  }

  Json plugins() {
    const Json rows = ask({"plugins", "explain"}, kPlanLimit);
    if (!rows.is_array()) return rows;
    Json hip = Json::array();
    for (const Json& row : rows) {
      const std::string tier = row.value("tier", "-");
      if (tier != "hip" && tier != "-") continue;  // "-": a manifest that could not be read
      hip.push_back({{"component", row.value("kind", "-") + " " + row.value("name", "-")},
                     {"plugin", row.value("plugin", "-") + " " + row.value("version", "-")},
                     {"state", row.value("state", "-")},
                     {"score", row.value("score", 0)},
                     {"says", tidy(row.value("reason", ""))},
                     {"path", tidy(row.value("path", ""), 1024)}});
    }
    return hip.empty() ? Json("none: this build has no hip tier, see ./setup.sh build") : hip;
  }

  Json resolution() {
    const Json plan = ask({"plan", "--tier", "hip"}, kPlanLimit);
    if (!plan.is_object() || plan.contains("error")) return plan;
    Json told{{"profile", plan.value("profile", Json())}, {"tier", plan.value("tier", Json())}, {"device", plan.value("device", Json())}};
    Json chosen = Json::object(), lost = Json::array();
    for (const Json& slot : plan.value("slots", Json::array())) {
      const std::string name = slot.value("slot", "");
      const Json choice = slot.value("chosen", Json());
      if (!name.starts_with("op:") && choice.is_object())
        chosen[name] = fmt::format("{} {} of {} {}", choice.value("tier", ""), choice.value("component", ""), choice.value("plugin", ""), choice.value("version", ""));
      for (const Json& rejected : slot.value("rejected", Json::array()))
        lost.push_back(fmt::format("{} ({}, {}): {}", name, rejected.value("plugin", ""), rejected.value("tier", ""), tidy(rejected.value("reason", ""))));
    }
    told["chosen"] = std::move(chosen);
    told["lost"] = std::move(lost);
    told["kv"] = plan.value("kv", Json());
    told["warnings"] = plan.value("warnings", Json::array());
    return told;
  }

  // A tier that was resolved has passed; a pack that fails is lost with the reason.
  static Json self_test(const Json& tier) {
    if (tier.contains("device")) return "passed";
    const std::string reason = tier.value("error", "");
    const bool failed = reason.find("self_test") != std::string::npos || reason.find("self-test") != std::string::npos;
    return (failed ? "failed: " : "not reached: ") + reason;
  }

  Json bench(bool works) {
    if (!works) return "not run: the hip tier does not work here";
    Json rows = Json::array();
    Json small = on_both(kSmall);
    const bool fast = small.contains("hip") && small["hip"].value("generated_per_second", 0.0) >= kFastEnough;
    rows.push_back(std::move(small));
    if (fast) rows.push_back(on_both(kLarger));
    return rows;
  }

  Json on_both(const Model& model) {
    note(model.file);
    const profile::SearchPaths search = profile::standard_search_paths(executable_path());
    const std::filesystem::path path = profile::resolve_path(model.file, search.working_folder, search);
    Json row{{"model", path.filename().string()}};
    std::vector<int32_t> ids[2];
    const char* const tiers[] = {"hip", "cpu"};
    for (int i = 0; i < 2; ++i) {
      double seconds = 0;
      const Json answer = ask({"run", "--model", path.string(), "--tier", tiers[i], "--drafter", "off", "--prompt", kPrompt, "--temperature", "0",
                               "--max-tokens", model.tokens, "--ignore-eos"}, kRunLimit, &seconds);
      if (!answer.contains("token_ids")) {
        row[tiers[i]] = answer;
        continue;
      }
      ids[i] = answer["token_ids"].get<std::vector<int32_t>>();
      const Json timings = answer.value("timings", Json::object());
      row[tiers[i]] = {{"prompt_tokens", answer["prompt_token_ids"].size()},
                       {"prompt_per_second", rounded(timings.value("prompt_per_second", 0.0))},
                       {"generated", ids[i].size()},
                       {"generated_per_second", rounded(timings.value("predicted_per_second", 0.0))},
                       {"load_ms", timings.value("load_ms", 0)},
                       {"whole_seconds", rounded(seconds)}};
    }
    if (!ids[0].empty() && !ids[1].empty()) row.update(compare_ids(ids[0], ids[1]));
    return row;
  }
  static double rounded(double value) { return static_cast<double>(static_cast<int64_t>(value * 100 + 0.5)) / 100; }

  const Arguments& arguments_;
  Json faults_ = Json::array();
};

bool is_plain(const Json& value) { return !value.is_structured() || value.empty(); }

std::string plain_text(const Json& value, const std::string& indent) {
  if (value.is_structured() || value.is_null()) return "none";  // an empty list, or nothing
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (!value.is_string()) return value.dump();
  std::string text = value.get<std::string>();
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 1 + indent.size()) text.insert(at + 1, indent);
  return text;
}

void write_value(const Json& value, const std::string& indent, std::string& text) {
  if (value.is_object()) {
    for (const auto& [key, element] : value.items()) {
      text += indent + key + ":";
      if (is_plain(element)) text += " " + plain_text(element, indent + "  ") + "\n";
      else write_value(element, indent + "  ", text += "\n");
    }
    return;
  }
  for (const Json& element : value) {
    if (is_plain(element)) {
      text += indent + "- " + plain_text(element, indent + "  ") + "\n";
      continue;
    }
    std::string row;
    write_value(element, indent + "  ", row);
    text += indent + "- " + row.substr(indent.size() + 2);
  }
}

Status write_file(const std::string& path, const std::string& text) {
  std::error_code ignored;
  const auto kind = std::filesystem::status(path, ignored).type();
  if (kind != std::filesystem::file_type::not_found && kind != std::filesystem::file_type::regular)
    return error(Code::invalid_argument, "{}: not a regular file", path).with_hint("name a file to be written");
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) return error(Code::internal, "{}: could not be written", path).with_hint("check the folder and the disk");
  return Status::ok();
}

}  // namespace

Json compare_ids(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  const auto [x, y] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  const bool same = x == a.end() && y == b.end();
  Json told{{"same_ids", same}};
  if (!same) told["first_difference"] = x - a.begin();
  return told;
}

Json make_doctor_report(const Arguments& arguments) { return Scrubber::of_this_process().json(Reporter(arguments).make()); }

std::string report_text(const Json& report) {
  std::string text;
  write_value(report, "", text);
  return text;
}

int run_doctor_report(const Arguments& arguments) {
  const std::string file = arguments.positional.empty() ? "" : arguments.positional[0];
  const bool to_file = !file.empty() && file != "-";
  // Before the work of minutes, not behind it.
  if (to_file)
    if (const Status status = write_file(file, ""); !status.is_ok()) return fail(status, arguments);
  const Json report = make_doctor_report(arguments);
  if (!to_file) {
    if (arguments.style.json) print_json(report);
    else fmt::print("{}", report_text(report));
    return kOk;
  }
  const bool json = arguments.style.json || file.ends_with(".json");
  const Status status = write_file(file, json ? report.dump(1, ' ', false, Json::error_handler_t::replace) + "\n" : report_text(report));
  if (!status.is_ok()) return fail(status, arguments);
  if (!arguments.style.quiet) print_note("turbo doctor: the report is in {}\n", file);
  return kOk;
}

}  // namespace turbo::cli
