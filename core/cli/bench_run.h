// Timing one configuration through the engine. Calling thread waits.
#pragma once

#include <vector>

#include "engine/runtime.h"

namespace turbo::cli {

struct Spread {
  double median = 0, min = 0, max = 0;
};
Spread spread_of(std::vector<double> values);

struct Quantiles {
  double p50 = 0, p99 = 0;
};
/// Nearest rank; zeros for no values.
Quantiles quantiles_of(std::vector<double> values);

/// One row of the benchmark: prefill when gen_tokens is 0; decode after `depth` tokens in `batch` rows at once; or, with
/// `concurrency`, that many clients who each send prompt after prompt and wait for the answers.
struct BenchCase {
  uint32_t prompt_tokens = 0, gen_tokens = 0, depth = 0, batch = 1, concurrency = 0;
  engine::Sampling sampling{.temperature = 0};          // of every request; its seed is the request's number
  std::string name() const;
  uint32_t prompt_length() const;                       // of one request
  uint32_t generated() const;                           // by one request
  uint64_t tokens() const { return uint64_t{prompt_length()} + generated(); }  // that one request needs room for
};

struct BenchResult {
  BenchCase what;
  uint32_t reps = 0;
  Spread tokens_per_second, ms_per_step;
  Quantiles first_token_ms, inter_token_ms;  // with concurrency
  double bytes_read_per_token = 0;
  engine::Speculation speculation;  // of all repetitions
};

/// Steps of several rows of one request, as they verify drafts.
struct VerifyResult {
  uint32_t depth = 0;
  std::vector<spec::RowCost> costs;  // by rows, 1 first
};
Result<VerifyResult> run_verify(engine::Runtime& runtime, std::vector<uint32_t> rows, uint32_t depth, uint32_t reps);

/// Requests that a client sends in one repetition of a concurrency case.
inline constexpr uint32_t kRequestsPerClient = 2;

/// `text` is repeated to fill prompts; tokens inside the vocabulary. One warm-up, then `reps` timed repetitions.
Result<BenchResult> run_case(engine::Runtime& runtime, const BenchCase& what, uint32_t reps, const std::vector<int32_t>& text);

}  // namespace turbo::cli
