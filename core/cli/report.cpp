#include "cli/output.h"
#include "cli/report.h"

namespace turbo::cli {
namespace {

double milliseconds(uint64_t ns) { return static_cast<double>(ns) / 1e6; }

const char* reason_name(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::stop: return "stop";
    case engine::FinishReason::length: return "length";
    case engine::FinishReason::cancelled: return "cancelled";
    case engine::FinishReason::timeout: return "timeout";
    case engine::FinishReason::failed: return "failed";
  }
  return "failed";
}

}  // namespace

double per_second(uint64_t tokens, uint64_t ns) { return ns ? static_cast<double>(tokens) * 1e9 / static_cast<double>(ns) : 0.0; }

nlohmann::ordered_json steps_json(const engine::Speculation& speculation) {
  nlohmann::ordered_json steps = nlohmann::ordered_json::array();
  for (size_t rows = 0; rows < speculation.steps_by_rows.size(); ++rows)
    if (const auto& width = speculation.steps_by_rows[rows]; width.steps > 0)
      steps.push_back({{"rows", rows}, {"steps", width.steps}, {"ms", milliseconds(width.ns)}});
  return steps;
}

nlohmann::ordered_json speculation_json(const engine::Speculation& s, const std::string& drafter) {
  if (drafter == "off" || s.rounds == 0) return nullptr;
  return {{"drafter", drafter},
          {"rounds", s.rounds},
          {"drafted", s.drafted},
          {"accepted", s.accepted},
          {"emitted", s.emitted},
          {"mean_accept_length", static_cast<double>(s.emitted) / static_cast<double>(s.rounds)},
          {"accept_rate", s.drafted ? static_cast<double>(s.accepted) / static_cast<double>(s.drafted) : 0.0},
          {"accept_by_depth", s.accepted_by_depth},
          {"draft_ms", milliseconds(s.draft_ns)}};
}

nlohmann::ordered_json run_report(const engine::Runtime& runtime, const std::vector<int32_t>& prompt, const Generated& g) {
  const engine::Finish& f = g.finish;
  const uint64_t steps = g.ids.empty() ? 0 : g.ids.size() - 1;  // the first token belongs to the prompt
  nlohmann::ordered_json json;
  json["text"] = g.text;
  json["prompt_token_ids"] = prompt;
  json["token_ids"] = g.ids;
  json["finish_reason"] = reason_name(f.reason);
  json["usage"] = {{"prompt_tokens", f.usage.prompt_tokens}, {"completion_tokens", g.ids.size()}};
  json["timings"] = {{"load_ms", runtime.load_ms()},
                     {"prompt_ms", milliseconds(f.timings.prompt_ns)},
                     {"prompt_per_second", per_second(f.usage.prompt_tokens, f.timings.prompt_ns)},
                     {"predicted_ms", milliseconds(f.timings.generate_ns)},
                     {"predicted_per_second", per_second(steps, f.timings.generate_ns)},
                     {"ttft_ms", milliseconds(f.timings.queued_ns + f.timings.prompt_ns)}};
  json["steps_by_rows"] = steps_json(f.speculation);
  json["speculation"] = speculation_json(f.speculation, runtime.profile().drafter.name);
  json["memory"] = engine::to_json(runtime.memory());
  json["resolved"] = runtime.resolved().json;
  return json;
}

void print_run_summary(const Generated& g) {
  const engine::Finish& f = g.finish;
  // The first token belongs to the prompt's time: alone it has no rate.
  const double speed = g.ids.empty() ? 0 : per_second(g.ids.size() - 1, f.timings.generate_ns);
  print_note("[{} prompt tokens at {:.1f}/s, {} generated{}, {}]\n", f.usage.prompt_tokens,
             per_second(f.usage.prompt_tokens, f.timings.prompt_ns), g.ids.size(), speed > 0 ? fmt::format(" at {:.1f}/s", speed) : "",
             reason_name(f.reason));
}

}  // namespace turbo::cli
