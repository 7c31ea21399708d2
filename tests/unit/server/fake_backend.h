// A model that says what a test wants: a thread of its own plays scripted tokens to listeners, step by step, as the
// engine would.
#pragma once

#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "server/backend.h"

namespace turbo::server::testing {

/// One token per byte, then the special ones below. Text becomes its bytes.
constexpr int32_t kStart = 256, kEnd = 257, kThinkOpen = 258, kThinkClose = 259, kVocab = 260;

struct Script {
  std::vector<int32_t> tokens;   // one per step; the end token follows by itself
  bool fails = false;            // after the tokens
  bool endless = false;          // repeats them
  Code code = Code::internal;    // of the failure
};
std::vector<int32_t> bytes_of(std::string_view text);

class FakeBackend : public Backend {
 public:
  FakeBackend();
  ~FakeBackend() override;

  // What tests set, before requests.
  std::function<Script(const engine::Request&)> script;  // default: "Hello!"
  std::atomic<uint32_t> step_us{0};
  std::atomic<uint32_t> queue_limit{256};
  std::atomic<bool> hold{false};  // nothing is admitted
  std::atomic<bool> broken{false};     // the engine has stopped for good
  std::function<void()> on_tokenizer;  // before it is given

  // What tests look at.
  std::vector<engine::Request> requests() const;
  std::atomic<uint32_t> n_cancelled{0}, n_steps{0}, n_finished{0};
  /// Waits for `n` requests to have ended; false after five seconds.
  bool wait_finished(uint32_t n) const;
  bool wait_submitted(size_t n) const;

  Result<uint64_t> submit(engine::Request request, std::shared_ptr<engine::Listener> listener) override;
  void cancel(uint64_t id) override;
  void finish(uint64_t id) override;
  bool drain(uint64_t timeout_ms) override;
  Result<std::vector<engine::RequestInfo>> requests(bool with_prompts) override;
  Result<uint32_t> flush_prefix_cache() override { return 3u; }
  Result<uint32_t> save_prefix(std::span<const int32_t> tokens, const std::string& salt, const std::filesystem::path& path) override {
    prefix_calls.push_back(fmt::format("save {} '{}' {}", tokens.size(), salt, path.string()));
    return prefix_answer;
  }
  Result<uint32_t> restore_prefix(const std::string& salt, const std::filesystem::path& path) override {
    prefix_calls.push_back(fmt::format("restore '{}' {}", salt, path.string()));
    return prefix_answer;
  }
  std::vector<std::string> prefix_calls;
  Result<uint32_t> prefix_answer = 64u;
  Status failure() const override { return broken ? Status(Code::device_lost, "the device is gone") : Status::ok(); }
  Result<const text::Tokenizer*> tokenizer() const override {
    if (on_tokenizer) on_tokenizer();
    return tokenizer_.get();
  }
  Result<const text::ChatTemplate*> chat_template() const override { return &*template_; }
  engine::Sampling default_sampling() const override { return {}; }
  std::string model_name() const override { return "org/fake"; }
  std::string model_path() const override { return "/models/fake.gguf"; }
  uint32_t context() const override { return 2048; }
  int32_t vocab_size() const override { return kVocab; }
  uint32_t max_running() const override { return 8; }
  Json plugins() const override { return Json::array(); }
  Json cache() const override { return Json::object(); }
  std::vector<prometheus::MetricFamily> metrics() const override { return registry_.Collect(); }

 private:
  struct Live {
    engine::Request request;
    std::shared_ptr<engine::Listener> listener;
    Script script;
    size_t at = 0;
    uint32_t n_out = 0;
    bool admitted = false;
    std::atomic<bool> cancelled{false}, finished{false};
    std::chrono::steady_clock::time_point begun;
  };
  void loop();
  bool step(Live& live);
  void finish(Live& live, engine::FinishReason reason);

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::optional<text::ChatTemplate> template_;
  prometheus::Registry registry_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::map<uint64_t, std::shared_ptr<Live>> live_;
  std::vector<engine::Request> requests_;
  uint64_t next_ = 1;
  bool stop_ = false, draining_ = false;
  std::thread thread_;
};

}  // namespace turbo::server::testing
