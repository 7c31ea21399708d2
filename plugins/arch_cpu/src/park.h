// Park: a 32-bit word that threads wait on, first spinning for a bounded time, then asleep in the kernel.
// [any] thread. A store before wake is seen by whoever returns from wait_while.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace turbo::arch_cpu {

inline void pause_core() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

class alignas(64) Park {
 public:
  uint32_t value() const { return word_.load(std::memory_order_acquire); }

  /// Return once the word differs from `old`. Gives the nanoseconds waited, 0 for less than about a microsecond.
  uint64_t wait_while(uint32_t old, uint64_t spin_ns) {
    for (int i = 0; i < 64; ++i) {
      if (value() != old) return 0;
      pause_core();
    }
    const auto start = Clock::now();
    if (!spin(old, start, spin_ns)) {
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      while (word_.load(std::memory_order_seq_cst) == old) sleep(old);
      sleepers_.fetch_sub(1, std::memory_order_relaxed);
    }
    return static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now() - start).count());
  }

  void set_and_wake(uint32_t value) {
    word_.store(value, std::memory_order_seq_cst);
    // Either this load sees the sleeper, or the sleeper's check after its increment sees the new word.
    if (sleepers_.load(std::memory_order_seq_cst) != 0) wake();
  }

 private:
  using Clock = std::chrono::steady_clock;

  bool spin(uint32_t old, Clock::time_point start, uint64_t spin_ns) const {
    for (auto now = start; now - start < std::chrono::nanoseconds(spin_ns); now = Clock::now()) {
      for (int i = 0; i < 16; ++i) {
        if (value() != old) return true;
        pause_core();
      }
      // On a busy machine the one waited for may sit behind this thread on the same CPU. Not at once: a yield costs a
      // system call, in a virtual machine several microseconds.
      if (now - start > std::chrono::microseconds(20)) std::this_thread::yield();
    }
    return value() != old;
  }
#if defined(__linux__)
  void sleep(uint32_t old) { syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, old, nullptr, nullptr, 0); }
  void wake() { syscall(SYS_futex, &word_, FUTEX_WAKE_PRIVATE, 0x7fffffff, nullptr, nullptr, 0); }
#else
  void sleep(uint32_t old) { word_.wait(old); }
  void wake() { word_.notify_all(); }
#endif
  std::atomic<uint32_t> word_{0};
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace turbo::arch_cpu
