// Requests that tests of the engine share.
#pragma once

#include <random>
#include <vector>

#include "collector.h"
#include "engine/engine.h"
#include "fake_pack.h"

namespace turbo::engine::testing {

inline std::vector<int32_t> random_prompt(std::mt19937& rng, uint32_t n) {
  std::vector<int32_t> prompt(n);
  for (int32_t& token : prompt) token = static_cast<int32_t>(rng() % kVocab);
  return prompt;
}
inline Request greedy_request(std::vector<int32_t> prompt, uint32_t max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  return request;
}
inline EngineLimits limits(uint32_t context = 1024) {
  EngineLimits limits;
  limits.context = context;
  limits.max_running = 8;
  limits.max_step_rows = 96;
  limits.prefill_chunk = 80;
  return limits;
}
inline std::shared_ptr<Collector> submit(Engine& engine, const Request& request) {
  auto collector = std::make_shared<Collector>();
  const auto id = engine.submit(request, collector);
  EXPECT_TRUE(id) << id.status().message();
  return collector;
}

}  // namespace turbo::engine::testing
