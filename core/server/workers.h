// Threads for what takes long: parsing bodies, rendering templates, tokenizing. I/O threads hand over and go on.
//
// Bounded: a full queue refuses. One thread takes small jobs only, so that a few large ones never hold up the others.
// Of huge jobs one runs at a time, which bounds the memory they take.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace turbo::server {

class Workers {
 public:
  enum class Size { small, large, huge };

  /// At least two threads; at most `max_waiting` jobs wait.
  Workers(uint32_t threads, size_t max_waiting);
  ~Workers() { stop(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  /// [any] False when the queue is full or the workers stop. Jobs must not throw.
  bool submit(Size size, std::function<void()> job);
  /// Drops what waits and joins what runs.
  void stop();

 private:
  struct Waiting {
    uint64_t ticket;
    std::function<void()> job;
  };
  void run(bool small_only);
  std::deque<Waiting>* next(bool small_only);

  const size_t max_waiting_;
  std::mutex mutex_;  // of everything below but the threads
  std::condition_variable changed_;
  std::array<std::deque<Waiting>, 3> queues_;  // by Size
  bool huge_runs_ = false;
  uint64_t next_ticket_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace turbo::server
