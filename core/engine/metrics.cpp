#include "engine/metrics.h"

#include <algorithm>

namespace turbo::engine {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;

const Buckets& second_buckets() {
  static const Buckets buckets{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300};
  return buckets;
}

prometheus::Counter& counter(prometheus::Registry& registry, const char* name, const char* help, prometheus::Labels labels = {}) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
}
prometheus::Counter& engine_seconds(prometheus::Registry& registry, const char* part) {
  return counter(registry, "turbo_engine_seconds_total", "Where the engine thread's time went while it had work", {{"part", part}});
}
prometheus::Gauge& gauge(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
}
prometheus::Histogram& histogram(prometheus::Registry& registry, const char* name, const char* help, const Buckets& buckets) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, buckets);
}

prometheus::Family<prometheus::Counter>& counters(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

}  // namespace

DecodeSteps::DecodeSteps(prometheus::Registry& registry) {
  for (size_t i = 0; i < ranges_.size(); ++i) {
    const uint32_t from = i == 0 ? 1 : kUpTo[i - 1] + 1;
    const std::string label = i == kUpTo.size()  ? std::to_string(from) + "+"
                              : from == kUpTo[i] ? std::to_string(from)
                                                 : std::to_string(from) + "-" + std::to_string(kUpTo[i]);
    ranges_[i] = {&counter(registry, "turbo_decode_steps_total", "Steps that only decode, by their rows", {{"rows", label}}),
                  &counter(registry, "turbo_decode_seconds_total", "Computing and sampling steps that only decode, by their rows",
                           {{"rows", label}})};
  }
}

void DecodeSteps::count(uint32_t rows, double took) {
  const auto range = static_cast<size_t>(std::lower_bound(kUpTo.begin(), kUpTo.end(), rows) - kUpTo.begin());
  ranges_[range].steps->Increment();
  ranges_[range].seconds->Increment(took);
}

void DepthCounters::count_down_to(uint32_t depth) {
  while (counters_.size() < depth)
    counters_.push_back(&family_.Add({{"drafter", drafter_}, {"depth", std::to_string(counters_.size() + 1)}}));
  for (uint32_t i = 0; i < depth; ++i) counters_[i]->Increment();
}

Metrics::Metrics(const std::string& drafter_name)
    : registry(std::make_shared<prometheus::Registry>()),
      prompt_tokens(counter(*registry, "turbo_prompt_tokens_total", "Prompt tokens computed or reused")),
      cached_prompt_tokens(counter(*registry, "turbo_cached_prompt_tokens_total", "Prompt tokens reused from the cache")),
      generation_tokens(counter(*registry, "turbo_generation_tokens_total", "Tokens generated")),
      draft_tokens(counter(*registry, "turbo_draft_tokens_total", "Draft tokens verified", {{"drafter", drafter_name}})),
      accepted_draft_tokens(
          counter(*registry, "turbo_accepted_draft_tokens_total", "Draft tokens accepted", {{"drafter", drafter_name}})),
      draft_depth_reached(counters(*registry, "turbo_draft_depth_reached_total", "Drafts verified that reached the depth"), drafter_name),
      draft_depth_accepted(
          counters(*registry, "turbo_draft_depth_accepted_total", "Drafts verified that were accepted down to the depth"), drafter_name),
      drafts_not_ready(counter(*registry, "turbo_drafts_not_ready_total", "Steps without drafts because the drafter was not ready",
                               {{"drafter", drafter_name}})),
      cancelled(counter(*registry, "turbo_cancelled_total", "Requests cancelled")),
      preemptions(counter(*registry, "turbo_preemptions_total", "Times a request gave up its KV blocks to another")),
      block_leaks(counter(*registry, "turbo_kv_block_leaks_total", "Idle self-checks that found KV blocks unaccounted for")),
      plugin_errors(counter(*registry, "turbo_plugin_errors_total", "Faults of the drafter", {{"plugin", drafter_name}})),
      compute_seconds(engine_seconds(*registry, "compute")),
      sample_seconds(engine_seconds(*registry, "sample")),
      deliver_seconds(engine_seconds(*registry, "deliver")),
      draft_seconds(engine_seconds(*registry, "draft")),
      schedule_seconds(engine_seconds(*registry, "schedule")),
      decode_steps(*registry),
      requests_running(gauge(*registry, "turbo_requests_running", "Requests being computed")),
      requests_waiting(gauge(*registry, "turbo_requests_waiting", "Requests in the queue")),
      kv_blocks_used(gauge(*registry, "turbo_kv_blocks_used", "KV blocks held by requests")),
      kv_blocks_cached(gauge(*registry, "turbo_kv_blocks_cached", "KV blocks held by the prefix cache alone")),
      kv_blocks_total(gauge(*registry, "turbo_kv_blocks_total", "KV blocks of the pool")),
      time_to_first_token(histogram(*registry, "turbo_time_to_first_token_seconds", "Submit to first token", second_buckets())),
      inter_token(histogram(*registry, "turbo_inter_token_seconds", "Between tokens of a request", second_buckets())),
      request_seconds(histogram(*registry, "turbo_request_seconds", "Submit to end", second_buckets())),
      queue_seconds(histogram(*registry, "turbo_queue_seconds", "Submit to admission", second_buckets())),
      step_seconds(histogram(*registry, "turbo_step_seconds", "One engine step", second_buckets())),
      batch_tokens(histogram(*registry, "turbo_batch_tokens", "Rows of a step", {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024})),
      batch_requests(histogram(*registry, "turbo_batch_requests", "Requests of a step", {1, 2, 4, 8, 16, 32, 64, 128, 256})) {}

}  // namespace turbo::engine
