// A listener that collects one request and can be waited for.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "engine/request.h"

namespace turbo::engine::testing {

class Collector : public Listener {
 public:
  void on_prompt_scores(uint32_t first, std::span<const Token> tokens) override {
    std::lock_guard lock(mutex_);
    if (first != 1 + scores_.size()) gap_ = true;
    scores_.insert(scores_.end(), tokens.begin(), tokens.end());
  }
  void on_tokens(std::span<const Token> tokens) override {
    std::lock_guard lock(mutex_);
    for (const Token& token : tokens) ids_.push_back(token.id);
    changed_.notify_all();
  }
  void on_finish(const Finish& finish) override {
    std::lock_guard lock(mutex_);
    ++n_finished_;
    finish_ = finish;
    changed_.notify_all();
  }

  /// The end of the request, or reason failed with a message after ten seconds.
  Finish wait() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(10), [&] { return n_finished_ > 0; })) {
      Finish late;
      late.reason = FinishReason::failed;
      late.status = Status(Code::internal, "the request did not end");
      return late;
    }
    return finish_;
  }
  bool wait_for_tokens(size_t n) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), [&] { return ids_.size() >= n || n_finished_ > 0; });
  }
  std::vector<int32_t> ids() {
    std::lock_guard lock(mutex_);
    return ids_;
  }
  std::vector<Token> scores() {
    std::lock_guard lock(mutex_);
    return scores_;
  }
  bool gap() {
    std::lock_guard lock(mutex_);
    return gap_;
  }
  int n_finished() {
    std::lock_guard lock(mutex_);
    return n_finished_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int32_t> ids_;
  std::vector<Token> scores_;
  Finish finish_;
  int n_finished_ = 0;
  bool gap_ = false;
};

}  // namespace turbo::engine::testing
