// Storage of an n-gram corpus: 32-byte nodes in chunks that never move, handed out and taken back by index.
//
// One writer; any number of readers. Every field is atomic: a reader may see a list in the middle of a change (it then
// misses or repeats a child) but never a value that was not written. `token` and `parent` of a node are fixed from the
// moment it is linked until it is reused, and readers are told of reuse: see NgramReaders.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace turbo::draft::detail {

/// Loads acquire and stores release, which is free on x86: whoever reads a link sees what it leads to.
class NgramField {
 public:
  operator uint32_t() const { return value_.load(std::memory_order_acquire); }
  void operator=(uint32_t value) { value_.store(value, std::memory_order_release); }

 private:
  std::atomic<uint32_t> value_{0};
};

struct NgramNode {
  NgramField token, parent;
  NgramField first_child, previous, next;  // siblings
  NgramField frequency;
  NgramField newer, older;  // list of all nodes by last use; the writer's only
};
static_assert(sizeof(NgramNode) == 32);

/// Who reads now. A reader counts itself in and out; the writer reuses what it unlinked either when nobody reads, or
/// after a new generation, which makes the readers of the old one discard what they read. Neither side ever waits.
class NgramReaders {
 public:
  class Scope {
   public:
    explicit Scope(const NgramReaders& readers) : readers_(readers) {
      readers_.count_.fetch_add(1, std::memory_order_acq_rel);
      generation_ = readers_.generation_.load(std::memory_order_acquire);
    }
    ~Scope() { readers_.count_.fetch_sub(1, std::memory_order_release); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    /// Nothing that was read since the start has been reused.
    bool valid() const { return readers_.generation_.load(std::memory_order_acquire) == generation_; }

   private:
    const NgramReaders& readers_;
    uint64_t generation_;
  };

  /// [writer] No reader can still hold what was unlinked before this call. A read-modify-write, so that a reader that
  /// comes after it sees those unlinks.
  bool none() { return count_.fetch_add(0, std::memory_order_acq_rel) == 0; }
  /// [writer] Readers that started before this call will discard what they read.
  void new_generation() { generation_.fetch_add(1, std::memory_order_acq_rel); }

 private:
  mutable std::atomic<uint64_t> count_{0};
  std::atomic<uint64_t> generation_{0};
};

/// Nodes 0 .. capacity - 1, of which 0 is the root and stands for "none" in every link.
class NgramNodes {
 public:
  static constexpr uint32_t kChunkNodes = 1u << 13;
  /// Nodes beyond the capacity, so that those unlinked under a reader's feet can rest for a while before reuse.
  static constexpr uint32_t kSlack = 4096;

  explicit NgramNodes(uint64_t capacity)
      : capacity_(capacity), chunks_((capacity + kSlack + kChunkNodes - 1) / kChunkNodes) {
    chunks_[0] = std::make_unique<NgramNode[]>(kChunkNodes);
  }

  NgramNode& operator[](uint32_t id) const { return chunks_[id / kChunkNodes][id % kChunkNodes]; }
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }  // the root included
  uint64_t free() const { return capacity_ - used(); }
  uint64_t bytes() const {
    return n_chunks_.load(std::memory_order_relaxed) * kChunkNodes * sizeof(NgramNode) +
           chunks_.size() * sizeof(chunks_[0]) + list_bytes_.load(std::memory_order_relaxed);
  }

  /// [writer] A node to fill and link; the caller has made sure that free() > 0.
  uint32_t take(NgramReaders& readers) {
    if (free_.empty() && !resting_.empty()) recycle(readers);
    uint32_t id;
    if (!free_.empty()) {
      id = free_.back();
      free_.pop_back();
    } else {
      id = static_cast<uint32_t>(grown_);
      auto& chunk = chunks_[id / kChunkNodes];
      if (!chunk) {
        chunk = std::make_unique<NgramNode[]>(kChunkNodes);
        n_chunks_.fetch_add(1, std::memory_order_relaxed);
      }
      ++grown_;
    }
    used_.store(used() + 1, std::memory_order_relaxed);
    return id;
  }
  /// [writer] Room for `n` calls of give, so that they cannot fail.
  void reserve(size_t n) {
    if (resting_.capacity() >= resting_.size() + n) return;
    resting_.reserve(2 * (resting_.size() + n));
    list_bytes_.store((free_.capacity() + resting_.capacity()) * sizeof(uint32_t), std::memory_order_relaxed);
  }
  /// [writer] Take back an unlinked node. Its fields stay until it is reused.
  void give(uint32_t id) {
    resting_.push_back(id);
    used_.store(used() - 1, std::memory_order_relaxed);
  }
  /// [writer] Take back all nodes; no link to any of them is left.
  void give_all(NgramReaders& readers) {
    if (!readers.none()) readers.new_generation();
    free_.clear();
    resting_.clear();
    grown_ = 1;
    used_.store(1, std::memory_order_relaxed);
  }

 private:
  void recycle(NgramReaders& readers) {
    if (!readers.none()) {
      if (grown_ < capacity_ + kSlack) return;
      readers.new_generation();
    }
    free_.swap(resting_);
  }

  uint64_t capacity_, grown_ = 1;
  std::atomic<uint64_t> used_{1}, n_chunks_{1}, list_bytes_{0};
  std::vector<std::unique_ptr<NgramNode[]>> chunks_;
  std::vector<uint32_t> free_, resting_;
};

}  // namespace turbo::draft::detail
