// Loads a model with the built plugins and scores or generates tokens through the whole engine.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <condition_variable>
#include <fstream>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>

#include "engine/runtime.h"

namespace turbo::engine::testing {

struct ModelSetup {
  std::string model = "models/turbo-mini-q1.gguf";
  std::string activations = "int8";
  int threads = 2;
  int prefill_chunk = 256;
  std::string kv = "f32";
  std::string kv_v;  // empty: as kv
  std::string isa;  // TURBO_CPU_ISA; empty = the machine's best
  std::function<void(profile::Profile&)> tune;  // the last word on the profile; may be empty
};

// Nothing is remembered of other runs: no test sees what another found out.
inline const bool kNoCacheFolder = setenv("XDG_CACHE_HOME", "", 1) == 0 && setenv("HOME", "", 1) == 0;

inline std::unique_ptr<Runtime> load(const ModelSetup& setup) {
  if (setup.isa.empty()) unsetenv("TURBO_CPU_ISA");
  else setenv("TURBO_CPU_ISA", setup.isa.c_str(), 1);
  profile::Profile profile;
  profile.model.path = std::string(TURBO_SOURCE) + "/" + setup.model;
  profile.tiers = {"cpu"};
  profile.compute.activations = setup.activations;
  profile.compute.threads = setup.threads;
  profile.kv.k = setup.kv;
  profile.kv.v = setup.kv_v.empty() ? setup.kv : setup.kv_v;
  profile.engine.prefill_chunk = setup.prefill_chunk;
  profile.engine.max_running = 8;
  if (setup.tune) setup.tune(profile);
  auto runtime = Runtime::load(profile);
  unsetenv("TURBO_CPU_ISA");
  EXPECT_TRUE(runtime) << runtime.status().message();
  return runtime ? std::move(*runtime) : nullptr;
}

struct Outcome : Listener {
  std::vector<std::vector<float>> logits;  // row i: after prompt token i (the last one has none)
  std::vector<int32_t> ids;
  Finish finish;
  bool done = false;
  std::mutex mutex;
  std::condition_variable changed;

  void on_prompt_logits(uint32_t, std::span<const float> row) override { logits.emplace_back(row.begin(), row.end()); }
  void on_tokens(std::span<const Token> tokens) override {
    for (const Token& token : tokens) ids.push_back(token.id);
  }
  void on_finish(const Finish& end) override {
    std::lock_guard lock(mutex);
    finish = end;
    done = true;
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done; });
  }
};

inline std::shared_ptr<Outcome> submit_scoring(Runtime& runtime, const std::vector<int32_t>& tokens) {
  auto run = std::make_shared<Outcome>();
  Request request;
  request.prompt = tokens;
  request.max_tokens = 0;
  request.prompt_logprobs = request.prompt_logits = true;
  const auto id = runtime.engine().submit(std::move(request), run);
  EXPECT_TRUE(id) << id.status().message();
  if (!id) run->done = true;
  return run;
}
/// Logits after each token but the last.
inline std::vector<std::vector<float>> score(Runtime& runtime, const std::vector<int32_t>& tokens) {
  auto run = submit_scoring(runtime, tokens);
  run->wait();
  EXPECT_TRUE(run->finish.status) << run->finish.status.message();
  return std::move(run->logits);
}
inline std::shared_ptr<Outcome> submit_greedy(Runtime& runtime, const std::vector<int32_t>& prompt, uint32_t n) {
  auto run = std::make_shared<Outcome>();
  Request request;
  request.prompt = prompt;
  request.max_tokens = n;
  request.sampling.temperature = 0;
  const auto id = runtime.engine().submit(std::move(request), run);
  EXPECT_TRUE(id) << id.status().message();
  if (!id) run->done = true;
  return run;
}
inline std::vector<int32_t> greedy(Runtime& runtime, const std::vector<int32_t>& prompt, uint32_t n) {
  auto run = submit_greedy(runtime, prompt, n);
  run->wait();
  EXPECT_TRUE(run->finish.status) << run->finish.status.message();
  return run->ids;
}

inline int32_t argmax(const std::vector<float>& row) {
  return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}
inline nlohmann::json read_json(const std::string& name) {
  std::ifstream file(std::string(TURBO_TEST_DATA) + "/golden/" + name);
  return nlohmann::json::parse(file);
}
inline std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace turbo::engine::testing
