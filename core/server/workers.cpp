#include "server/workers.h"

#include <algorithm>

namespace turbo::server {

Workers::Workers(uint32_t threads, size_t max_waiting) : max_waiting_(max_waiting) {
  for (uint32_t i = 0; i < std::max(2u, threads); ++i) threads_.emplace_back([this, i] { run(/*small_only=*/i == 0); });
}

bool Workers::submit(Size size, std::function<void()> job) {
  std::lock_guard lock(mutex_);
  size_t n_waiting = 0;
  for (const auto& queue : queues_) n_waiting += queue.size();
  if (stop_ || n_waiting >= max_waiting_) return false;
  queues_[static_cast<size_t>(size)].push_back({next_ticket_++, std::move(job)});
  changed_.notify_all();  // not every thread takes every job
  return true;
}

void Workers::stop() {
  decltype(queues_) dropped;  // dropped outside the lock: jobs own what tells others of their end
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    dropped.swap(queues_);
    changed_.notify_all();
  }
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

// The queue whose front comes first, or null.
std::deque<Workers::Waiting>* Workers::next(bool small_only) {
  std::deque<Waiting>* first = nullptr;
  for (const Size size : {Size::small, Size::large, Size::huge}) {
    if ((small_only && size != Size::small) || (huge_runs_ && size == Size::huge)) continue;
    std::deque<Waiting>& queue = queues_[static_cast<size_t>(size)];
    if (!queue.empty() && (!first || queue.front().ticket < first->front().ticket)) first = &queue;
  }
  return first;
}

void Workers::run(bool small_only) {
  std::unique_lock lock(mutex_);
  while (true) {
    std::deque<Waiting>* queue = nullptr;
    changed_.wait(lock, [&] { return stop_ || (queue = next(small_only)); });
    if (stop_) return;
    std::function<void()> job = std::move(queue->front().job);
    queue->pop_front();
    const bool huge = queue == &queues_[static_cast<size_t>(Size::huge)];
    if (huge) huge_runs_ = true;
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
    if (huge) {
      huge_runs_ = false;
      changed_.notify_all();
    }
  }
}

}  // namespace turbo::server
