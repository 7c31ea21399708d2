// turbo perplexity: consecutive windows of a text, scored as llama-perplexity counts; optionally against another codec.
#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <mutex>

#include "cli/commands.h"

namespace turbo::cli {
namespace {

struct Settings {
  std::vector<int32_t> tokens;
  uint32_t window = 512;
  bool all = false;
  std::optional<int32_t> bos;  // replaces the first token of each window, as the model was trained

  uint32_t n_windows() const { return static_cast<uint32_t>(tokens.size() / window); }
  /// Index in the window of the first token whose prediction counts.
  uint32_t first_scored() const { return all ? 1 : window / 2 + 1; }
  std::vector<int32_t> prompt(uint32_t index) const {
    std::vector<int32_t> prompt(tokens.begin() + size_t{index} * window, tokens.begin() + (size_t{index} + 1) * window);
    if (bos) prompt[0] = *bos;
    return prompt;
  }
};

// Scores of one window; with keep_logits also the rows themselves.
struct WindowListener : engine::Listener {
  WindowListener(uint32_t first_scored, bool keep_logits) : first_scored(first_scored), keep_logits(keep_logits) {}
  void on_prompt_scores(uint32_t first, std::span<const engine::Token> tokens) override {
    for (size_t i = 0; i < tokens.size(); ++i)
      if (first + i >= first_scored) logprobs.push_back(tokens[i].logprob);
  }
  void on_prompt_logits(uint32_t position, std::span<const float> row) override {
    if (keep_logits && position + 1 >= first_scored) logits.emplace_back(row.begin(), row.end());
  }
  void on_tokens(std::span<const engine::Token>) override {}
  void on_finish(const engine::Finish& end) override {
    std::lock_guard lock(mutex);
    finish = end;
    done = true;
    changed.notify_all();
  }
  Status wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done; });
    return finish.status;
  }
  const uint32_t first_scored;
  const bool keep_logits;
  std::vector<float> logprobs;
  std::vector<std::vector<float>> logits;
  engine::Finish finish;
  bool done = false;
  std::mutex mutex;
  std::condition_variable changed;
};

Result<std::shared_ptr<WindowListener>> submit(engine::Runtime& runtime, const Settings& settings, uint32_t index, bool keep_logits) {
  auto listener = std::make_shared<WindowListener>(settings.first_scored(), keep_logits);
  engine::Request request;
  request.prompt = settings.prompt(index);
  request.max_tokens = 0;
  request.prompt_logprobs = true;
  request.prompt_logits = keep_logits;
  TURBO_RETURN_IF_ERROR(runtime.engine().submit(std::move(request), listener).status());
  return listener;
}

struct Divergence {
  std::vector<double> kl;
  uint64_t same_top = 0;

  // KL(reference || other) of one row, in double.
  void add(std::span<const float> reference, std::span<const float> other) {
    const auto log_sum = [](std::span<const float> row, float largest) {
      double sum = 0;
      for (const float x : row) sum += std::exp(static_cast<double>(x) - largest);
      return largest + std::log(sum);
    };
    const auto top_a = std::max_element(reference.begin(), reference.end()), top_b = std::max_element(other.begin(), other.end());
    const double za = log_sum(reference, *top_a), zb = log_sum(other, *top_b);
    double divergence = 0;
    for (size_t i = 0; i < reference.size(); ++i) {
      const double log_p = reference[i] - za;
      divergence += std::exp(log_p) * (log_p - (other[i] - zb));
    }
    kl.push_back(std::max(0.0, divergence));
    same_top += (top_a - reference.begin()) == (top_b - other.begin());
  }
  double mean() const {
    double sum = 0;
    for (const double x : kl) sum += x;
    return kl.empty() ? 0 : sum / static_cast<double>(kl.size());
  }
  double p99() {
    if (kl.empty()) return 0;
    std::sort(kl.begin(), kl.end());
    return kl[std::min(kl.size() - 1, static_cast<size_t>(static_cast<double>(kl.size()) * 0.99))];
  }
};

struct Totals {
  double nll = 0;
  uint64_t scored = 0;
  void add(const WindowListener& window) {
    for (const float logprob : window.logprobs) nll -= logprob;
    scored += window.logprobs.size();
  }
  double mean() const { return nll / static_cast<double>(scored); }
};

Status score_all(engine::Runtime& runtime, engine::Runtime* reference, const Settings& settings, Totals& totals,
                 Divergence& divergence, const OutputStyle& style) {
  Progress bar("perplexity", style);
  for (uint32_t i = 0; i < settings.n_windows(); ++i) {
    TURBO_ASSIGN(const auto window, submit(runtime, settings, i, reference != nullptr));
    TURBO_RETURN_IF_ERROR(window->wait());
    totals.add(*window);
    if (reference) {
      TURBO_ASSIGN(const auto against, submit(*reference, settings, i, true));
      TURBO_RETURN_IF_ERROR(against->wait());
      for (size_t row = 0; row < window->logits.size(); ++row) divergence.add(against->logits[row], window->logits[row]);
    }
    bar.update((i + 1.0) / settings.n_windows(), fmt::format("{:.4f}", std::exp(totals.mean())));
  }
  return Status::ok();
}

Result<Settings> read_settings(const Arguments& arguments, const engine::Runtime& runtime) {
  Settings settings;
  if (!arguments.has("--file")) return Status(Code::invalid_argument, "perplexity: --file is missing");
  TURBO_ASSIGN(const int64_t window, arguments.integer("--window", 512, 8, runtime.context()));
  settings.window = static_cast<uint32_t>(window);
  const std::string count = arguments.text("--count", "half");
  if (count != "half" && count != "all") return error(Code::invalid_argument, "{}: expected half or all but found '{}'", arguments.shown("--count"), count);
  settings.all = count == "all";
  TURBO_ASSIGN(const std::string text, read_option_file(arguments, "--file"));
  TURBO_ASSIGN(const text::Tokenizer* tokenizer, runtime.tokenizer());
  settings.tokens = tokenizer->encode(text, {.parse_special = true, .add_special = false});
  if (tokenizer->add_bos()) settings.bos = tokenizer->bos();
  TURBO_ASSIGN(const int64_t most, arguments.integer("--max-tokens", static_cast<int64_t>(settings.tokens.size()), 1, INT64_MAX));
  settings.tokens.resize(std::min<size_t>(settings.tokens.size(), static_cast<size_t>(most)));
  if (settings.n_windows() == 0)
    return error(Code::invalid_argument, "perplexity: the text has {} tokens, less than one window of {}", settings.tokens.size(), settings.window);
  return settings;
}

std::string codec_name(const profile::Profile& profile) {
  return profile.kv.k == profile.kv.v ? profile.kv.k : profile.kv.k + "/" + profile.kv.v;
}

}  // namespace

int run_perplexity(const Arguments& arguments) {
  int exit_code = kOk;
  std::optional<profile::Profile> profile = load_profile(arguments, exit_code);
  if (!profile) return exit_code;
  profile->engine.max_running = 1;
  const auto runtime = load_runtime(*profile, arguments, exit_code);
  if (!runtime) return exit_code;
  if (const auto tokenizer = runtime->tokenizer(); !tokenizer) return fail(tokenizer.status(), arguments, kModel);
  const Result<Settings> settings = read_settings(arguments, *runtime);
  if (!settings) return fail(settings.status(), arguments, kUsage);

  std::unique_ptr<engine::Runtime> reference;
  if (arguments.has("--against")) {
    profile::Profile other = *profile;
    other.kv.k = other.kv.v = arguments.text("--against");
    other.kv.options.clear();
    other.kv.k_options.clear();
    other.kv.v_options.clear();
    reference = load_runtime(other, arguments, exit_code);
    if (!reference) return exit_code;
  }
  Totals totals;
  Divergence divergence;
  if (const Status status = score_all(*runtime, reference.get(), *settings, totals, divergence, arguments.style); !status.is_ok())
    return fail(status, arguments);

  nlohmann::ordered_json json{{"perplexity", std::exp(totals.mean())}, {"nll", totals.mean()},
                              {"tokens", settings->tokens.size()},     {"scored", totals.scored},
                              {"windows", settings->n_windows()},      {"window", settings->window},
                              {"count", settings->all ? "all" : "half"}};
  if (reference) {
    json["kl_mean"] = divergence.mean();
    json["kl_p99"] = divergence.p99();
    json["same_top_share"] = static_cast<double>(divergence.same_top) / static_cast<double>(divergence.kl.size());
  }
  json["kv_codec"] = codec_name(*profile);
  if (arguments.style.json) {
    print_json(json);
    return kOk;
  }
  fmt::print("perplexity {:.4f} over {} windows of {} ({} predictions), kv {}\n", json["perplexity"].get<double>(),
             settings->n_windows(), settings->window, totals.scored, json["kv_codec"].get<std::string>());
  if (reference)
    fmt::print("against {}: KL mean {:.3g}, p99 {:.3g}, same top {:.4f}\n", arguments.text("--against"),
               json["kl_mean"].get<double>(), json["kl_p99"].get<double>(), json["same_top_share"].get<double>());
  return kOk;
}

}  // namespace turbo::cli
