#include "server/workers.h"

#include <algorithm>

namespace turbo::server {

Workers::Workers(uint32_t threads, size_t max_waiting) : max_waiting_(max_waiting) {
  for (uint32_t i = 0; i < std::max(2u, threads); ++i) threads_.emplace_back([this, i] { run(/*small_only=*/i == 0); });
}

bool Workers::submit(Size size, std::function<void()> job) {
  std::lock_guard lock(mutex_);
  if (stop_ || small_.size() + large_.size() >= max_waiting_) return false;
  (size == Size::small ? small_ : large_).push_back({next_ticket_++, std::move(job)});
  changed_.notify_all();  // not every thread takes every job
  return true;
}

void Workers::stop() {
  std::deque<Waiting> small, large;  // dropped outside the lock: jobs own what tells others of their end
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    small.swap(small_);
    large.swap(large_);
    changed_.notify_all();
  }
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

// The queue whose front comes first, or null.
std::deque<Workers::Waiting>* Workers::next(bool small_only) {
  if (small_only || large_.empty()) return small_.empty() ? nullptr : &small_;
  if (small_.empty()) return &large_;
  return small_.front().ticket < large_.front().ticket ? &small_ : &large_;
}

void Workers::run(bool small_only) {
  std::unique_lock lock(mutex_);
  while (true) {
    std::deque<Waiting>* queue = nullptr;
    changed_.wait(lock, [&] { return stop_ || (queue = next(small_only)); });
    if (stop_) return;
    std::function<void()> job = std::move(queue->front().job);
    queue->pop_front();
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
  }
}

}  // namespace turbo::server
