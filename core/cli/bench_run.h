// Timing one configuration through the engine. Calling thread waits.
#pragma once

#include <vector>

#include "engine/runtime.h"

namespace turbo::cli {

struct Spread {
  double median = 0, min = 0, max = 0;
};
Spread spread_of(std::vector<double> values);

/// One row of the benchmark: prefill when gen_tokens is 0, else decode after `depth` tokens in `batch` rows at once.
struct BenchCase {
  uint32_t prompt_tokens = 0, gen_tokens = 0, depth = 0, batch = 1, concurrency = 0;
  std::string name() const;
};

struct BenchResult {
  BenchCase what;
  uint32_t reps = 0;
  Spread tokens_per_second, ms_per_step;
  double bytes_read_per_token = 0;
  engine::Speculation speculation;  // of all repetitions
};

/// `text` is repeated to fill prompts; tokens inside the vocabulary. One warm-up, then `reps` timed repetitions.
Result<BenchResult> run_case(engine::Runtime& runtime, const BenchCase& what, uint32_t reps, const std::vector<int32_t>& text);

}  // namespace turbo::cli
