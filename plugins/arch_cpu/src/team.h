// ThreadTeam: the pack's persistent threads. Member 0 is the calling (engine) thread, the others are workers that
// live from construction to stop(). One run() hands the same body to every member; inside it the members meet at
// barrier(). Waiting spins for a bounded time and then sleeps in the kernel, so an idle team costs nothing.
// run and stop belong to one thread at a time; barrier to the members of a run.
#pragma once

#include "park.h"

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace turbo::arch_cpu {

/// CPUs this process may use: affinity mask, then the control group's quota, at least 1.
uint32_t available_cpus();
/// "AMD EPYC 9755", or "unknown CPU".
std::string cpu_name();
/// Bytes of memory this process may use: physical, or the control group's limit when smaller.
uint64_t usable_memory_bytes();

class ThreadTeam {
 public:
  using Body = void (*)(void* context, uint32_t member);

  /// Starts n_threads - 1 workers. Throws Failure when the system refuses one (those started are joined).
  explicit ThreadTeam(uint32_t n_threads);
  ~ThreadTeam() { stop(); }
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  uint32_t size() const { return size_; }
  /// Body on every member; returns when all have returned.
  void run(Body body, void* context);
  /// All members of the run must call it the same number of times.
  void barrier() {
    if (size_ == 1) return;
    const uint32_t phase = phase_.value();
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
      arrived_.store(0, std::memory_order_relaxed);
      phase_.set_and_wake(phase + 1);
      return;
    }
    phase_.wait_while(phase, barrier_spin_ns_);
  }
  /// Join the workers. The team then has one member, and run() still works.
  void stop();

 private:
  void work(uint32_t member);

  uint32_t size_;
  uint64_t barrier_spin_ns_, idle_spin_ns_;
  Body body_ = nullptr;
  void* context_ = nullptr;
  bool stopping_ = false;
  Park start_;  // run counter
  Park phase_;  // barrier counter
  alignas(64) std::atomic<uint32_t> arrived_{0};
  std::vector<std::thread> workers_;
};

}  // namespace turbo::arch_cpu
