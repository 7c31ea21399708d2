#include "cli/bench_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <thread>

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

// Row i of repetition `rep`. What is timed must be computed, so every repetition has its own text and no request reads
// the prefix cache; except generation behind a filled cache, where filling is not timed and is done once for each row.
engine::Request make_request(const BenchCase& what, const std::vector<int32_t>& text, uint32_t rep, uint32_t row, uint32_t n_rows) {
  engine::Request request;
  const uint32_t n = what.prompt_length();
  const bool fill_once = what.depth && what.gen_tokens && !what.concurrency;
  const uint32_t salt = fill_once ? row : rep * n_rows + row;
  for (uint32_t i = 0; i < n; ++i) request.prompt.push_back(text[(i + size_t{salt} * 97) % text.size()]);
  request.max_tokens = what.generated();
  request.sampling = what.sampling;
  request.sampling.seed = rep * n_rows + row;
  request.use_prefix_cache = fill_once;
  return request;
}

struct Timing {
  double tokens_per_second, ms_per_step;
};

using Clock = std::chrono::steady_clock;
double ms_between(Clock::time_point from, Clock::time_point to) { return std::chrono::duration<double, std::milli>(to - from).count(); }

// One client's request, timed as the client sees it.
struct TimedWaiter : Waiter {
  void on_tokens(std::span<const engine::Token> tokens) override {
    const Clock::time_point now = Clock::now();
    if (n_tokens == 0) first_ms = ms_between(sent, now);
    else gaps_ms.insert(gaps_ms.end(), tokens.size(), ms_between(last, now) / static_cast<double>(tokens.size()));
    n_tokens += tokens.size();
    last = now;
  }
  const Clock::time_point sent = Clock::now();
  Clock::time_point last;
  size_t n_tokens = 0;
  double first_ms = 0;
  std::vector<double> gaps_ms;
};

struct Load {
  std::vector<double> first_ms, gaps_ms;
};

// Closed loop: every client sends its next request when the last one is answered.
Result<Timing> load_once(engine::Runtime& runtime, const BenchCase& what, const std::vector<int32_t>& text, uint32_t rep, Load& load,
                         engine::Speculation& speculation) {
  std::mutex mutex;
  Status failure;
  double tokens = 0;
  uint64_t steps = runtime.engine().snapshot().steps;
  std::vector<std::thread> clients;
  const Clock::time_point begin = Clock::now();
  for (uint32_t client = 0; client < what.concurrency; ++client)
    clients.emplace_back([&, client] {
      for (uint32_t i = 0; i < kRequestsPerClient; ++i) {
        auto waiter = std::make_shared<TimedWaiter>();
        engine::Request request = make_request(what, text, rep, client * kRequestsPerClient + i, what.concurrency * kRequestsPerClient);
        request.client = client;
        const auto id = runtime.engine().submit(std::move(request), waiter);
        const engine::Finish finish = id ? waiter->wait() : engine::Finish{.status = id.status()};
        std::lock_guard lock(mutex);
        if (!finish.status.is_ok()) {
          failure = finish.status;
          return;
        }
        speculation.add(finish.speculation);
        tokens += static_cast<double>(waiter->n_tokens);
        load.first_ms.push_back(waiter->first_ms);
        load.gaps_ms.insert(load.gaps_ms.end(), waiter->gaps_ms.begin(), waiter->gaps_ms.end());
      }
    });
  for (std::thread& client : clients) client.join();
  TURBO_RETURN_IF_ERROR(failure);
  const double ms = ms_between(begin, Clock::now());
  steps = runtime.engine().snapshot().steps - steps;
  return Timing{tokens * 1e3 / ms, ms / static_cast<double>(std::max<uint64_t>(1, steps))};
}

Result<Timing> time_once(engine::Runtime& runtime, const BenchCase& what, const std::vector<int32_t>& text, uint32_t rep,
                         engine::Speculation& speculation) {
  const uint32_t rows = std::max(1u, what.batch);
  std::vector<std::shared_ptr<Waiter>> waiters;
  for (uint32_t i = 0; i < rows; ++i) {
    waiters.push_back(std::make_shared<Waiter>());
    TURBO_RETURN_IF_ERROR(runtime.engine().submit(make_request(what, text, rep, i, rows), waiters.back()).status());
  }
  double tokens = 0, longest_ns = 0, rounds = 0;
  for (const auto& waiter : waiters) {
    const engine::Finish finish = waiter->wait();
    TURBO_RETURN_IF_ERROR(finish.status);
    // The first token belongs to the prompt's time.
    tokens += what.gen_tokens ? finish.usage.completion_tokens - 1 : finish.usage.prompt_tokens;
    longest_ns = std::max(longest_ns, static_cast<double>(what.gen_tokens ? finish.timings.generate_ns : finish.timings.prompt_ns));
    rounds = std::max(rounds, static_cast<double>(finish.speculation.rounds) - (what.gen_tokens ? 1 : 0));
    speculation.add(finish.speculation);
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

Result<VerifyResult> run_verify(engine::Runtime& runtime, std::vector<uint32_t> rows, uint32_t depth, uint32_t reps) {
  rows.push_back(1);
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  TURBO_ASSIGN(auto costs, runtime.engine().measure_verify_cost(rows, depth, reps));
  return VerifyResult{depth, std::move(costs)};
}

Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  if (values.empty()) return {};
  const size_t n = values.size();
  return {n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2, values.front(), values.back()};
}

Quantiles quantiles_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  if (values.empty()) return {};
  const auto at = [&](double share) { return values[static_cast<size_t>(std::ceil(share * static_cast<double>(values.size()))) - 1]; };
  return {at(0.50), at(0.99)};
}

std::string BenchCase::name() const {
  std::string name = gen_tokens ? fmt::format("tg{}", gen_tokens) : fmt::format("pp{}", prompt_tokens);
  if (depth) name += fmt::format("@d{}", depth);
  if (batch > 1) name += fmt::format(" x{}", batch);
  if (concurrency) name += fmt::format(" c{}", concurrency);
  return name;
}

uint32_t BenchCase::prompt_length() const { return std::max(1u, gen_tokens ? std::max(depth, prompt_tokens) : prompt_tokens); }

uint32_t BenchCase::generated() const { return gen_tokens ? gen_tokens : 1; }

Result<BenchResult> run_case(engine::Runtime& runtime, const BenchCase& what, uint32_t reps, const std::vector<int32_t>& text) {
  BenchResult result;
  result.what = what;
  result.reps = reps;
  engine::Speculation warm_up;
  Load load, warm_load;
  const auto once = [&](uint32_t rep, engine::Speculation& speculation, Load& seen) {
    return what.concurrency ? load_once(runtime, what, text, rep, seen, speculation) : time_once(runtime, what, text, rep, speculation);
  };
  TURBO_RETURN_IF_ERROR(once(0, warm_up, warm_load).status());
  std::vector<double> speeds, steps;
  for (uint32_t i = 0; i < reps; ++i) {
    TURBO_ASSIGN(const Timing timing, once(i + 1, result.speculation, load));
    speeds.push_back(timing.tokens_per_second);
    steps.push_back(timing.ms_per_step);
  }
  result.tokens_per_second = spread_of(speeds);
  result.ms_per_step = spread_of(steps);
  result.first_token_ms = quantiles_of(load.first_ms);
  result.inter_token_ms = quantiles_of(load.gaps_ms);
  result.bytes_read_per_token = bytes_per_token(runtime, what);
  return result;
}

}  // namespace turbo::cli
