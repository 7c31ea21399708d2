// Counters of the engine as Prometheus metrics. Updated by the engine thread, read by any thread.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <memory>

namespace turbo::engine {

// Steps that only decode, by ranges of their rows: how dear rows are that verify drafts.
class DecodeSteps {
 public:
  explicit DecodeSteps(prometheus::Registry& registry);
  void count(uint32_t rows, double took);

 private:
  struct Range {
    prometheus::Counter* steps;
    prometheus::Counter* seconds;
  };
  static constexpr std::array<uint32_t, 8> kUpTo{1, 2, 3, 4, 8, 16, 32, 64};
  std::array<Range, kUpTo.size() + 1> ranges_;  // the last: more rows
};

struct Metrics {
  explicit Metrics(const std::string& drafter_name);

  std::shared_ptr<prometheus::Registry> registry;
  prometheus::Counter& prompt_tokens;
  prometheus::Counter& cached_prompt_tokens;
  prometheus::Counter& generation_tokens;
  prometheus::Counter& draft_tokens;
  prometheus::Counter& accepted_draft_tokens;
  prometheus::Counter& cancelled;
  prometheus::Counter& preemptions;
  prometheus::Counter& block_leaks;
  prometheus::Counter& plugin_errors;
  // Time of the engine thread while it had work.
  prometheus::Counter& compute_seconds;
  prometheus::Counter& sample_seconds;
  prometheus::Counter& deliver_seconds;
  prometheus::Counter& draft_seconds;
  prometheus::Counter& schedule_seconds;
  DecodeSteps decode_steps;
  prometheus::Gauge& requests_running;
  prometheus::Gauge& requests_waiting;
  prometheus::Gauge& kv_blocks_used;
  prometheus::Gauge& kv_blocks_cached;
  prometheus::Gauge& kv_blocks_total;
  prometheus::Histogram& time_to_first_token;
  prometheus::Histogram& inter_token;
  prometheus::Histogram& request_seconds;
  prometheus::Histogram& queue_seconds;
  prometheus::Histogram& step_seconds;
  prometheus::Histogram& batch_tokens;
  prometheus::Histogram& batch_requests;
};

}  // namespace turbo::engine
