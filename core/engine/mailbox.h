// What other threads hand to the engine thread: submissions, ends, tasks, stop. The only lock of the engine.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/request.h"

namespace turbo::engine {

struct Submission {
  uint64_t id = 0;
  Request request;
  std::shared_ptr<Listener> listener;
  uint64_t submitted_ns = 0;
};

class Mailbox {
 public:
  struct Mail {
    std::vector<Submission> submissions;
    std::vector<std::pair<uint64_t, FinishReason>> ends;
    std::vector<std::function<void()>> tasks;
    bool stop = false;
  };

  explicit Mailbox(uint32_t max_queue) : max_queue_(max_queue) {}

  /// [any] Fails with resource_exhausted when max_queue requests wait, with close()'s reason after it.
  Status submit(Submission submission) {
    std::lock_guard lock(mutex_);
    if (draining_ || mail_.stop) return refusal_;
    if (n_waiting_ >= max_queue_)
      return error(Code::resource_exhausted, "queue full: {} requests are waiting", n_waiting_).with_hint("try again later");
    ++n_waiting_;
    mail_.submissions.push_back(std::move(submission));
    changed_.notify_one();
    return Status::ok();
  }
  void end(uint64_t id, FinishReason reason) {
    std::lock_guard lock(mutex_);
    mail_.ends.emplace_back(id, reason);
    changed_.notify_one();
  }
  /// [any] Run on the engine thread between two steps. False: the engine ended, the task is dropped.
  bool run(std::function<void()> task) {
    std::lock_guard lock(mutex_);
    if (mail_.stop) return false;
    mail_.tasks.push_back(std::move(task));
    changed_.notify_one();
    return true;
  }
  /// The first reason given stays.
  void close(Status why = Status(Code::cancelled, "the engine is shutting down")) {
    std::lock_guard lock(mutex_);
    if (!std::exchange(draining_, true)) refusal_ = std::move(why);
  }
  void stop() {
    std::lock_guard lock(mutex_);
    draining_ = mail_.stop = true;
    changed_.notify_one();
  }
  bool closed() const {
    std::lock_guard lock(mutex_);
    return draining_;
  }

  /// [engine] Everything that came in. Waits until something does, or for so long (negative: for ever).
  Mail take(std::chrono::milliseconds wait) {
    std::unique_lock lock(mutex_);
    const auto something = [&] {
      return mail_.stop || !mail_.submissions.empty() || !mail_.ends.empty() || !mail_.tasks.empty();
    };
    if (wait.count() < 0) changed_.wait(lock, something);
    else if (wait.count() > 0) changed_.wait_for(lock, wait, something);
    Mail taken = std::move(mail_);
    mail_ = Mail{};
    mail_.stop = taken.stop;
    return taken;
  }
  /// [engine] Requests that left the queue (admitted or ended).
  void left_queue(uint32_t n) {
    std::lock_guard lock(mutex_);
    n_waiting_ -= n;
  }
  uint32_t n_waiting() const {
    std::lock_guard lock(mutex_);
    return n_waiting_;
  }

 private:
  const uint32_t max_queue_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Mail mail_;
  Status refusal_{Code::cancelled, "the engine is shutting down"};
  uint32_t n_waiting_ = 0;
  bool draining_ = false;
};

}  // namespace turbo::engine
