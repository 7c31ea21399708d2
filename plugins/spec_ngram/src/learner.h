// Puts tokens into the corpus: at once, or, long texts, on a worker. One writer at a time; the engine thread never
// waits for it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <turbo/draft/ngram.hpp>
#include <turbo/plugin.hpp>
#include <vector>

namespace turbo::spec_ngram {

class Learner {
 public:
  static constexpr size_t kQueuedTexts = 64, kQueuedTokens = 1 << 20;

  /// `extend` replaces the corpus's own in tests of faults.
  using Extend = std::function<void(std::span<const int32_t> context, std::span<const int32_t> fresh)>;

  Learner(draft::NgramCorpus& corpus, const Host& host, Extend extend = {});
  ~Learner() { stop(); }
  Learner(const Learner&) = delete;
  Learner& operator=(const Learner&) = delete;

  /// [load] Starts the worker if the machine has a core that the target's computing leaves idle.
  void start();
  /// [load] Drops what is queued and waits until the worker has ended: at most the time of one slice.
  void stop();
  bool has_worker() const { return worker_running_; }

  /// [engine] Learn now. False: the worker is at it; try again with the next tokens.
  bool now(std::span<const int32_t> context, std::span<const int32_t> fresh);
  /// [engine] Learn the tokens from n_context on in the background. False: no worker, or the queue is full.
  bool later(std::vector<int32_t> tokens, size_t n_context);
  /// [any] Forget everything, what is queued included.
  void reset();
  /// [any] Waits until nothing is queued. For tests.
  void drain();

 private:
  struct Text {
    std::vector<int32_t> tokens;
    size_t n_context;
    uint64_t era;
  };
  static void run(void* self) { static_cast<Learner*>(self)->work(); }
  void work();
  void learn(const Text& text);
  void extend(std::span<const int32_t> context, std::span<const int32_t> fresh);
  void failed(const char* why);

  draft::NgramCorpus& corpus_;
  const Host host_;
  const Extend extend_;
  std::mutex writer_;             // held while the corpus changes
  std::atomic<uint64_t> era_{0};  // grows with each reset: texts of an older one are dropped
  std::atomic<uint64_t> failures_{0};

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::deque<Text> queue_;
  size_t queued_tokens_ = 0;
  bool stopping_ = false, working_ = false;
  std::atomic<bool> worker_running_{false};
};

}  // namespace turbo::spec_ngram
