// DraftRing: finished drafts on their way from one producer thread to one consumer thread.
//
// Each slot carries its state and the stamp of its publication in one atomic word:
//   FREE -> WRITING (producer) -> READY -> READING (consumer) -> FREE
// The producer takes a FREE slot, else the oldest READY one, never one that is being read; the consumer takes the newest
// READY one that it has use for. Neither waits for the other. What a draft is for stands in the slot, so a slot can be
// judged without knowledge of who wrote it when.
#pragma once

#include <turbo/plugin.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

namespace turbo::draft {

/// What the drafts of a slot were built for.
struct RingMeta {
  uint64_t job = 0;
  uint32_t n_sequences = 0;
  uint32_t max_slots = 0;      // of each draft, root included
  std::vector<int32_t> roots;  // one per draft
};

template <typename Payload>
class DraftRing {
 public:
  static constexpr uint32_t kMostBuffers = 4;

  class Slot {
   public:
    RingMeta meta;
    Payload payload;

   private:
    friend class DraftRing;
    std::atomic<uint64_t> word{kFree};  // stamp << 2 | state
    uint64_t epoch = 0;
  };

  /// Throws Failure unless n_buffers is 1..4.
  explicit DraftRing(uint32_t n_buffers) : n_(n_buffers) {
    if (n_ < 1 || n_ > kMostBuffers)
      throw Failure(TURBO_INVALID_ARGUMENT, "buffers: " + std::to_string(n_buffers) + " is not in 1.." + std::to_string(kMostBuffers));
  }
  DraftRing(const DraftRing&) = delete;
  DraftRing& operator=(const DraftRing&) = delete;

  uint32_t size() const { return n_; }

  // ---- producer ----

  /// A slot to fill, holding whatever it held before; null when the consumer has all of them.
  Slot* begin_write() {
    // Each retry means that the consumer took the slot looked at, and it holds at most all of them.
    for (uint32_t attempt = 0; attempt <= n_; ++attempt) {
      Slot* best = nullptr;
      uint64_t best_word = 0;
      for (uint32_t i = 0; i < n_; ++i) {
        const uint64_t word = slots_[i].word.load(std::memory_order_acquire);
        const uint64_t state = word & kStateMask;
        if (state == kFree) {
          best = &slots_[i];
          best_word = word;
          break;
        }
        if (state == kReady && (!best || word < best_word)) {
          best = &slots_[i];
          best_word = word;
        }
      }
      if (!best) return nullptr;
      if (!best->word.compare_exchange_strong(best_word, kWriting, std::memory_order_acquire)) continue;
      best->epoch = epoch_.load(std::memory_order_acquire);
      return best;
    }
    return nullptr;
  }
  void publish(Slot* slot) { slot->word.store(++stamp_ << kStateBits | kReady, std::memory_order_release); }
  void abandon(Slot* slot) { slot->word.store(kFree, std::memory_order_release); }

  // ---- consumer ----

  /// The newest finished slot of which `match(const RingMeta&)` is true, or null.
  template <typename Match>
  Slot* take(Match&& match) {
    uint64_t below = ~uint64_t{0};
    while (true) {
      Slot* newest = nullptr;
      uint64_t newest_word = 0;
      for (uint32_t i = 0; i < n_; ++i) {
        const uint64_t word = slots_[i].word.load(std::memory_order_acquire);
        if ((word & kStateMask) == kReady && word < below && word > newest_word) {
          newest = &slots_[i];
          newest_word = word;
        }
      }
      if (!newest) return nullptr;
      uint64_t expected = newest_word;
      // Only what is older than the last one looked at is looked at next, so this ends however fast the producer is.
      below = newest_word;
      if (!newest->word.compare_exchange_strong(expected, (newest_word & ~kStateMask) | kReading, std::memory_order_acquire)) continue;
      if (newest->epoch != epoch_.load(std::memory_order_relaxed)) {
        release(newest);
        continue;
      }
      if (match(static_cast<const RingMeta&>(newest->meta))) return newest;
      put_back(newest);
    }
  }
  /// Done with it. A payload that is still being copied elsewhere must not be released yet.
  void release(Slot* slot) { slot->word.store(kFree, std::memory_order_release); }
  /// Not used after all: READY again, as old as it was.
  void put_back(Slot* slot) {
    slot->word.store((slot->word.load(std::memory_order_relaxed) & ~kStateMask) | kReady, std::memory_order_release);
  }
  /// Nothing written or begun before this call is ever taken.
  void invalidate() {
    epoch_.fetch_add(1, std::memory_order_acq_rel);
    while (Slot* slot = take([](const RingMeta&) { return true; })) release(slot);
  }

 private:
  static constexpr uint64_t kFree = 0, kWriting = 1, kReady = 2, kReading = 3, kStateMask = 3;
  static constexpr int kStateBits = 2;

  uint32_t n_;
  uint64_t stamp_ = 0;              // producer's
  std::atomic<uint64_t> epoch_{0};  // written by the consumer
  std::array<Slot, kMostBuffers> slots_;
};

}  // namespace turbo::draft
