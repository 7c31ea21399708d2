// turbo bench: prefill and decode speed at chosen sizes, as a table, JSON, CSV or a drawing.
#include <algorithm>
#include <fstream>

#include "base/machine.h"
#include "cli/bench_run.h"
#include "cli/commands.h"
#include "cli/report.h"
#include "cli/roofline.h"

namespace turbo::cli {
namespace {

struct Plan {
  std::vector<BenchCase> cases;
  nlohmann::ordered_json sampling;      // as it was asked for
  std::vector<uint32_t> verify_rows;    // empty: not asked for
  std::vector<uint32_t> verify_depths;
  uint32_t reps = 5;
  uint32_t most_rows = 1;
};

Status set_sampling(const Arguments& arguments, Plan& plan) {
  TURBO_ASSIGN(const double temperature, arguments.real("--temperature", 0, 0, 2));
  TURBO_ASSIGN(const double top_p, arguments.real("--top-p", 1, 0, 1));
  TURBO_ASSIGN(const int64_t top_k, arguments.integer("--top-k", 0, -1, INT32_MAX));
  plan.sampling = {{"temperature", temperature}, {"top_k", top_k}, {"top_p", top_p}};
  for (BenchCase& what : plan.cases) {
    what.sampling.temperature = static_cast<float>(temperature);
    what.sampling.top_p = static_cast<float>(top_p);
    what.sampling.top_k = static_cast<int32_t>(top_k);
  }
  return Status::ok();
}

Result<Plan> make_plan(const Arguments& arguments) {
  Plan plan;
  TURBO_ASSIGN(const auto prompts, arguments.integers("--prompt-tokens", {512}, 0, 1 << 20));
  TURBO_ASSIGN(const int64_t gen, arguments.integer("--gen-tokens", 128, 0, 1 << 20));
  TURBO_ASSIGN(const auto depths, arguments.integers("--depth", {0}, 0, 1 << 20));
  TURBO_ASSIGN(const auto batches, arguments.integers("--batch", {1}, 1, 1024));
  TURBO_ASSIGN(const auto concurrencies, arguments.integers("--concurrency", {}, 1, 1024));
  TURBO_ASSIGN(const int64_t reps, arguments.integer("--reps", 5, 1, 1000));
  TURBO_ASSIGN(const auto verify, arguments.integers("--verify", {}, 1, spec::StepCost::kMostRows));
  plan.reps = static_cast<uint32_t>(reps);
  plan.verify_rows.assign(verify.begin(), verify.end());
  if (!verify.empty()) plan.verify_depths.assign(depths.begin(), depths.end());
  for (const int64_t n : prompts)
    if (n > 0) plan.cases.push_back({.prompt_tokens = static_cast<uint32_t>(n)});
  const uint32_t n_gen = static_cast<uint32_t>(gen);
  if (n_gen == 1) return error(Code::invalid_argument, "{}: 1 leaves nothing to time; expected 0 or at least 2", arguments.shown("--gen-tokens"));
  for (const int64_t depth : depths)
    for (const int64_t batch : batches)
      if (n_gen) plan.cases.push_back({.gen_tokens = n_gen, .depth = static_cast<uint32_t>(depth), .batch = static_cast<uint32_t>(batch)});
  for (const int64_t concurrency : concurrencies)
    if (n_gen)
      plan.cases.push_back({.prompt_tokens = static_cast<uint32_t>(std::max<int64_t>(1, prompts.front())), .gen_tokens = n_gen,
                            .concurrency = static_cast<uint32_t>(concurrency)});
  TURBO_RETURN_IF_ERROR(set_sampling(arguments, plan));
  for (const BenchCase& what : plan.cases) plan.most_rows = std::max({plan.most_rows, what.batch, what.concurrency});
  if (plan.cases.empty() && plan.verify_rows.empty()) return Status(Code::invalid_argument, "bench: nothing to time", "give --prompt-tokens or --gen-tokens");
  return plan;
}

// A case that the context cannot hold is a wrong command line, told before anything is timed.
Status check_context(const Arguments& arguments, const Plan& plan, uint32_t context) {
  for (const BenchCase& what : plan.cases) {
    const uint64_t tokens = what.tokens();
    if (tokens <= context) continue;
    const char* option = what.gen_tokens > what.prompt_length()    ? "--gen-tokens"
                         : what.prompt_tokens >= what.depth ? "--prompt-tokens"
                                                            : "--depth";
    return error(Code::invalid_argument, "{}: the test {} needs {} tokens but the context holds {}", arguments.shown(option), what.name(),
                 tokens, context)
        .with_hint("ask for fewer tokens or raise --context");
  }
  const uint32_t rows = plan.verify_rows.empty() ? 0 : *std::max_element(plan.verify_rows.begin(), plan.verify_rows.end());
  for (const uint32_t depth : plan.verify_depths)
    if (uint64_t{depth} + rows > context)
      return error(Code::invalid_argument, "{}: verifying {} rows after {} tokens needs more than the context of {}", arguments.shown("--depth"), rows,
                   depth, context)
          .with_hint("ask for fewer tokens or raise --context");
  return Status::ok();
}

// Prompts: the file's tokens, or a fixed walk over the vocabulary.
Result<std::vector<int32_t>> prompt_tokens(const Arguments& arguments, const engine::Runtime& runtime) {
  if (arguments.has("--prompt-file")) {
    TURBO_ASSIGN(const std::string text, read_option_file(arguments, "--prompt-file"));
    TURBO_ASSIGN(const text::Tokenizer* tokenizer, runtime.tokenizer());
    std::vector<int32_t> ids = tokenizer->encode(text);
    if (ids.empty()) return error(Code::invalid_argument, "{}: the file is empty", arguments.shown("--prompt-file"));
    return ids;
  }
  std::vector<int32_t> ids(4096);
  const uint32_t usable = std::max(1u, std::min(runtime.config().vocab_size, 50000u) - 1);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>((i * 7919 + 13) % usable);
  return ids;
}

nlohmann::ordered_json to_json(const Spread& spread) {
  return {{"median", spread.median}, {"min", spread.min}, {"max", spread.max}};
}

nlohmann::ordered_json to_json(const Quantiles& quantiles) { return {{"p50", quantiles.p50}, {"p99", quantiles.p99}}; }

double gigabytes_per_second(const BenchResult& r) { return r.bytes_read_per_token / (r.ms_per_step.median * 1e6); }

// The machine's read speed is known on the CPU tier only.
double percent_of(double value, double whole) { return whole > 0 ? 100 * value / whole : 0; }

// What was not measured is null.
nlohmann::ordered_json measured(double value) { return value > 0 ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr); }

nlohmann::ordered_json to_json(const Roofline& roofline) {
  return {{"threads", roofline.threads},
          {"read_gb_s", measured(roofline.read_gb_s)},
          {"read_gb_s_one_thread", measured(roofline.read_gb_s_one_thread)},
          {"int8_gmac_s", measured(roofline.dot_gmac_s)},
          {"int8_instruction", roofline.dot_instruction}};
}

nlohmann::ordered_json to_json(const VerifyResult& verify) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const spec::RowCost& cost : verify.costs)
    rows.push_back({{"rows", cost.rows}, {"ms", cost.seconds * 1e3}, {"relative", cost.seconds / verify.costs.front().seconds}});
  return {{"depth", verify.depth}, {"steps", rows}};
}

nlohmann::ordered_json to_json(const BenchResult& r, const std::string& drafter, const Roofline& roofline) {
  const bool alone = r.what.gen_tokens && !r.what.concurrency;
  return {{"test", r.what.name()},
          {"prompt_tokens", r.what.prompt_tokens},
          {"gen_tokens", r.what.gen_tokens},
          {"depth", r.what.depth},
          {"batch", r.what.batch},
          {"concurrency", r.what.concurrency},
          {"reps", r.reps},
          {"tokens_per_second", to_json(r.tokens_per_second)},
          {"ms_per_step", to_json(r.ms_per_step)},
          {"first_token_ms", to_json(r.first_token_ms)},
          {"inter_token_ms", to_json(r.inter_token_ms)},
          {"bytes_read_per_token", r.bytes_read_per_token},
          {"bandwidth_gb_s", measured(alone ? gigabytes_per_second(r) : 0.0)},
          {"bandwidth_percent", measured(alone ? percent_of(gigabytes_per_second(r), roofline.read_gb_s) : 0.0)},
          {"steps_by_rows", steps_json(r.speculation)},
          {"speculation", speculation_json(r.speculation, drafter)}};
}

Status write_csv(const std::string& path, const std::vector<BenchResult>& results) {
  std::ofstream file(path);
  file << "test,tokens_per_second_median,min,max,ms_per_step_median\n";
  for (const BenchResult& r : results)
    file << fmt::format("{},{:.3f},{:.3f},{:.3f},{:.4f}\n", r.what.name(), r.tokens_per_second.median, r.tokens_per_second.min,
                        r.tokens_per_second.max, r.ms_per_step.median);
  file.close();
  return file ? Status::ok() : error(Code::internal, "{}: could not be written", path).with_hint("check the folder and the free space");
}

// Horizontal bars, one a test.
Status write_svg(const std::string& path, const std::vector<BenchResult>& results) {
  double most = 1e-9;
  for (const BenchResult& r : results) most = std::max(most, r.tokens_per_second.max);
  std::ofstream file(path);
  file << fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"640\" height=\"{}\" font-family=\"sans-serif\" font-size=\"13\">\n",
                      30 * results.size() + 20);
  for (size_t i = 0; i < results.size(); ++i) {
    const BenchResult& r = results[i];
    const double y = 10.0 + 30.0 * static_cast<double>(i), width = 380 * r.tokens_per_second.median / most;
    file << fmt::format("<text x=\"10\" y=\"{}\">{}</text><rect x=\"150\" y=\"{}\" width=\"{:.1f}\" height=\"18\" fill=\"#c0392b\"/>"
                        "<text x=\"{:.1f}\" y=\"{}\">{:.1f} tokens/s</text>\n",
                        y + 14, r.what.name(), y, width, 156 + width, y + 14, r.tokens_per_second.median);
  }
  file << "</svg>\n";
  file.close();
  return file ? Status::ok() : error(Code::internal, "{}: could not be written", path).with_hint("check the folder and the free space");
}

void print_roofline(const Roofline& roofline) {
  fmt::print("machine: {:.1f} GB/s read by {} thread{}", roofline.read_gb_s, roofline.threads, roofline.threads == 1 ? "" : "s");
  if (roofline.threads > 1) fmt::print(" ({:.1f} by one)", roofline.read_gb_s_one_thread);
  if (roofline.dot_gmac_s > 0) fmt::print(", {:.0f} billion int8 multiply-adds/s ({})", roofline.dot_gmac_s, roofline.dot_instruction);
  fmt::print("\n");
  std::fflush(stdout);
}

void print_verify(const VerifyResult& verify) {
  fmt::print("{:<18}", verify.depth ? fmt::format("verify@d{}", verify.depth) : "verify");
  for (const spec::RowCost& cost : verify.costs)
    fmt::print(" {} row{} {:.2f} ms ({:.2f}x){}", cost.rows, cost.rows == 1 ? "" : "s", cost.seconds * 1e3,
               cost.seconds / verify.costs.front().seconds, &cost == &verify.costs.back() ? "\n" : ",");
  std::fflush(stdout);
}

std::string bandwidth_text(const BenchResult& r, const Roofline& roofline) {
  std::string text = fmt::format("  {:.1f} MB/token, {:.1f} GB/s", r.bytes_read_per_token * 1e-6, gigabytes_per_second(r));
  if (roofline.read_gb_s > 0) text += fmt::format(" ({:.0f} % of {:.1f})", percent_of(gigabytes_per_second(r), roofline.read_gb_s), roofline.read_gb_s);
  return text;
}

void print_row(const BenchResult& r, const Roofline& roofline) {
  fmt::print("{:<18} {:>10.2f} tokens/s  ({:.2f} to {:.2f})  {:>9.3f} ms/step{}\n", r.what.name(), r.tokens_per_second.median,
             r.tokens_per_second.min, r.tokens_per_second.max, r.ms_per_step.median,
             r.what.concurrency ? fmt::format("  first token {:.0f} / {:.0f} ms, then {:.1f} / {:.1f} ms (p50 / p99)", r.first_token_ms.p50,
                                              r.first_token_ms.p99, r.inter_token_ms.p50, r.inter_token_ms.p99)
             : r.what.gen_tokens ? bandwidth_text(r, roofline)
                                 : "");
  std::fflush(stdout);
}

}  // namespace

int run_bench(const Arguments& arguments) {
  int exit_code = kOk;
  std::optional<profile::Profile> profile = load_profile(arguments, exit_code);
  if (!profile) return exit_code;
  const Result<Plan> plan = make_plan(arguments);
  if (!plan) return fail(plan.status(), arguments, kUsage);
  profile->engine.max_running = static_cast<int>(plan->most_rows);
  // Before the model is loaded, and forgotten in the peak of memory, which is the model's. Prompts and load have no use for it.
  const bool decodes = std::any_of(plan->cases.begin(), plan->cases.end(), [](const BenchCase& what) { return what.gen_tokens && !what.concurrency; });
  Roofline roofline;
  if ((decodes || arguments.has("--roofline")) && std::find(profile->tiers.begin(), profile->tiers.end(), "cpu") != profile->tiers.end()) {
    const uint32_t threads = profile->compute.threads > 0 ? static_cast<uint32_t>(profile->compute.threads) : usable_cpus();
    roofline = measure_roofline(threads, arguments.has("--roofline"));
    reset_peak_rss();
  }
  const auto runtime = load_runtime(*profile, arguments, exit_code);
  if (!runtime) return exit_code;
  if (const Status status = check_context(arguments, *plan, runtime->context()); !status.is_ok()) return fail(status, arguments, kUsage);
  if (const auto tokenizer = runtime->tokenizer(); !tokenizer && arguments.has("--prompt-file"))
    return fail(tokenizer.status(), arguments, kModel);
  const auto text = prompt_tokens(arguments, *runtime);
  if (!text) return fail(text.status(), arguments, kUsage);

  const nlohmann::ordered_json& resolved = runtime->resolved().json;
  const nlohmann::ordered_json device = resolved.value("device", nlohmann::ordered_json::object());
  const bool on_cpu = resolved.value("tier", "") == "cpu";
  if (!on_cpu) roofline = {};
  if (arguments.has("--roofline") && !arguments.style.json) {
    if (on_cpu) print_roofline(roofline);
    else fmt::print("machine: measured on the cpu tier only\n");
  }

  std::vector<BenchResult> results;
  Progress bar("bench", arguments.style);
  for (const BenchCase& what : plan->cases) {
    Result<BenchResult> result = run_case(*runtime, what, plan->reps, *text);
    if (!result) return fail(result.status().with_context(what.name()), arguments);
    results.push_back(std::move(*result));
    if (!arguments.style.json) print_row(results.back(), roofline);
    bar.update(static_cast<double>(results.size()) / static_cast<double>(plan->cases.size()));
  }
  nlohmann::ordered_json verified = nlohmann::ordered_json::array();
  for (const uint32_t depth : plan->verify_depths) {
    const Result<VerifyResult> verify = run_verify(*runtime, plan->verify_rows, depth, plan->reps);
    if (!verify) return fail(verify.status().with_context("--verify"), arguments);
    verified.push_back(to_json(*verify));
    if (!arguments.style.json) print_verify(*verify);
  }
  if (arguments.has("--csv"))
    if (const Status status = write_csv(arguments.text("--csv"), results); !status.is_ok()) return fail(status, arguments);
  if (arguments.has("--plot"))
    if (const Status status = write_svg(arguments.text("--plot"), results); !status.is_ok()) return fail(status, arguments);
  if (!arguments.style.json) return kOk;

  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const BenchResult& result : results) rows.push_back(to_json(result, profile->drafter.name, roofline));
  print_json({{"host", {{"cpu", device.value("name", "")}, {"threads", device.value("threads", 0)}, {"isa", device.value("isa", "")}}},
              {"device", device},
              {"resolved", resolved},
              {"roofline", to_json(roofline)},
              {"sampling", plan->sampling},
              {"results", rows},
              {"verify", verified},
              {"load_ms", runtime->load_ms()},
              {"memory", engine::to_json(runtime->memory())}});
  return kOk;
}

}  // namespace turbo::cli
