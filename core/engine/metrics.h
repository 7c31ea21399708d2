// Counters of the engine as Prometheus metrics. Updated by the engine thread, read by any thread.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

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

/// One counter a depth of drafts, labelled {drafter, depth}, made when the depth first comes up. Depths count from 1 and
/// end below the most slots of a draft. Engine thread; reading the registry is safe from any.
class DepthCounters {
 public:
  DepthCounters(prometheus::Family<prometheus::Counter>& family, std::string drafter) : family_(family), drafter_(std::move(drafter)) {}
  /// Count depths 1..depth.
  void count_down_to(uint32_t depth);

 private:
  prometheus::Family<prometheus::Counter>& family_;
  std::string drafter_;
  std::vector<prometheus::Counter*> counters_;
};

struct Metrics {
  explicit Metrics(const std::string& drafter_name);

  std::shared_ptr<prometheus::Registry> registry;
  prometheus::Counter& prompt_tokens;
  prometheus::Counter& cached_prompt_tokens;
  prometheus::Counter& generation_tokens;
  prometheus::Counter& draft_tokens;
  prometheus::Counter& accepted_draft_tokens;
  DepthCounters draft_depth_reached;   // by the deepest node of a draft
  DepthCounters draft_depth_accepted;  // by the accepted path
  prometheus::Counter& drafts_not_ready;
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
