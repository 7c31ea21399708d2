#include "cli/bench_run.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>

namespace turbo::cli {
namespace {

struct Waiter : engine::Listener {
  void on_tokens(std::span<const engine::Token>) override {}
  void on_finish(const engine::Finish& end) override {
    std::lock_guard lock(mutex);
    finish = end;
    done = true;
    changed.notify_all();
  }
  engine::Finish wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done; });
    return finish;
  }
  std::mutex mutex;
  std::condition_variable changed;
  engine::Finish finish;
  bool done = false;
};

engine::Request make_request(const BenchCase& what, const std::vector<int32_t>& text, uint32_t salt) {
  engine::Request request;
  const uint32_t n = std::max(1u, what.gen_tokens ? std::max(what.depth, what.prompt_tokens) : what.prompt_tokens);
  for (uint32_t i = 0; i < n; ++i) request.prompt.push_back(text[(i + size_t{salt} * 97) % text.size()]);
  request.max_tokens = what.gen_tokens ? what.gen_tokens : 1;
  request.sampling.temperature = 0;
  return request;
}

struct Timing {
  double tokens_per_second, ms_per_step;
};

Result<Timing> time_once(engine::Runtime& runtime, const BenchCase& what, const std::vector<int32_t>& text, uint32_t salt,
                         engine::Speculation& speculation) {
  const uint32_t rows = std::max({1u, what.batch, what.concurrency});
  std::vector<std::shared_ptr<Waiter>> waiters;
  for (uint32_t i = 0; i < rows; ++i) {
    waiters.push_back(std::make_shared<Waiter>());
    TURBO_RETURN_IF_ERROR(runtime.engine().submit(make_request(what, text, salt * rows + i), waiters.back()).status());
  }
  double tokens = 0, longest_ns = 0, rounds = 0;
  for (const auto& waiter : waiters) {
    const engine::Finish finish = waiter->wait();
    TURBO_RETURN_IF_ERROR(finish.status);
    // The first token belongs to the prompt's time.
    tokens += what.gen_tokens ? finish.usage.completion_tokens - 1 : finish.usage.prompt_tokens;
    longest_ns = std::max(longest_ns, static_cast<double>(what.gen_tokens ? finish.timings.generate_ns : finish.timings.prompt_ns));
    rounds = std::max(rounds, static_cast<double>(finish.speculation.rounds) - (what.gen_tokens ? 1 : 0));
    speculation.rounds += finish.speculation.rounds;
    speculation.drafted += finish.speculation.drafted;
    speculation.accepted += finish.speculation.accepted;
    speculation.emitted += finish.speculation.emitted;
    auto& depths = speculation.accepted_by_depth;
    depths.resize(std::max(depths.size(), finish.speculation.accepted_by_depth.size()));
    for (size_t d = 0; d < finish.speculation.accepted_by_depth.size(); ++d) depths[d] += finish.speculation.accepted_by_depth[d];
  }
  if (longest_ns <= 0) return Status(Code::internal, "bench: no time passed; ask for more tokens");
  return Timing{tokens * 1e9 / longest_ns, longest_ns / 1e6 / std::max(1.0, rounds)};
}

// Bytes of weights and cache that one generated token must read when it is alone in its step.
double bytes_per_token(const engine::Runtime& runtime, const BenchCase& what) {
  const engine::MemoryReport memory = runtime.memory();
  double bytes = static_cast<double>(memory.weights_bytes);
  if (!runtime.config().tied_head)
    if (const model::Tensor* embedding = runtime.file().find("token_embd.weight")) bytes -= static_cast<double>(embedding->bytes);
  return bytes + static_cast<double>(memory.kv_bytes_per_token) * (what.depth + what.gen_tokens / 2.0);
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  if (values.empty()) return {};
  const size_t n = values.size();
  return {n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2, values.front(), values.back()};
}

std::string BenchCase::name() const {
  std::string name = gen_tokens ? fmt::format("tg{}", gen_tokens) : fmt::format("pp{}", prompt_tokens);
  if (depth) name += fmt::format("@d{}", depth);
  if (batch > 1) name += fmt::format(" x{}", batch);
  if (concurrency) name += fmt::format(" c{}", concurrency);
  return name;
}

Result<BenchResult> run_case(engine::Runtime& runtime, const BenchCase& what, uint32_t reps, const std::vector<int32_t>& text) {
  BenchResult result;
  result.what = what;
  result.reps = reps;
  engine::Speculation warm_up;
  TURBO_RETURN_IF_ERROR(time_once(runtime, what, text, 0, warm_up).status());
  std::vector<double> speeds, steps;
  for (uint32_t i = 0; i < reps; ++i) {
    TURBO_ASSIGN(const Timing timing, time_once(runtime, what, text, i + 1, result.speculation));
    speeds.push_back(timing.tokens_per_second);
    steps.push_back(timing.ms_per_step);
  }
  result.tokens_per_second = spread_of(speeds);
  result.ms_per_step = spread_of(steps);
  result.bytes_read_per_token = bytes_per_token(runtime, what);
  return result;
}

}  // namespace turbo::cli
