// ThreadTeam: the pack's persistent threads. Member 0 is the calling (engine) thread, the others are workers that
// live from construction to stop(). One run() hands the same body to every member; inside it the members meet at
// barrier(). Waiting spins for a bounded time and then sleeps in the kernel, so an idle team costs nothing.
// run and stop belong to one thread at a time; barrier to the members of a run.
#pragma once

#include "park.h"
#include "team_size.h"

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
  /// How many members a run should have now; the caller of run keeps it informed.
  TeamSize& pace() { return pace_; }
  /// Body on members [0, n_members), at most size() of them; returns when all have returned. Gives the nanoseconds that a
  /// member waited at barriers for one that had lost its CPU, on average.
  uint64_t run(Body body, void* context, uint32_t n_members);
  uint64_t run(Body body, void* context) { return run(body, context, size_); }
  /// All members of the run must call it the same number of times.
  void barrier() {
    const uint64_t waited = wait_for_all();
    if (waited > kStallNs) stalled_ns_.fetch_add(waited, std::memory_order_relaxed);
  }
  /// Join the workers. The team then has one member, and run() still works.
  void stop();

 private:
  // Longer than any item of a phase should make the others wait.
  static constexpr uint64_t kStallNs = 300'000;

  // Nothing of the run may be read after the arrival: where it is the last one, the next run may have begun.
  uint64_t wait_for_all() {
    const uint32_t members = members_, phase = phase_.value();
    if (members == 1) return 0;
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == members) {
      arrived_.store(0, std::memory_order_relaxed);
      phase_.set_and_wake(phase + 1);
      return 0;
    }
    return phase_.wait_while(phase, barrier_spin_ns_);
  }
  void work(uint32_t member);
  void begin(uint32_t n_members);

  uint32_t size_, members_ = 1;  // members_: of the run
  TeamSize pace_;
  uint64_t barrier_spin_ns_, idle_spin_ns_;
  Body body_ = nullptr;
  void* context_ = nullptr;
  bool stopping_ = false;
  Park start_;  // runs begun << 16 | members of the last one: who is not of them may look late and must not mistake it
  Park phase_;  // barrier counter
  alignas(64) std::atomic<uint32_t> arrived_{0};
  std::atomic<uint64_t> stalled_ns_{0};  // of all members in the run
  std::vector<std::thread> workers_;
};

}  // namespace turbo::arch_cpu
