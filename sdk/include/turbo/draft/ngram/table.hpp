// Children of an n-gram corpus by (parent, token): an open-addressing table in shards, so that growing one costs
// microseconds.
//
// One writer; readers look up at any time. A shard grows into a new array; the old one is freed when nobody reads.
#pragma once

#include <algorithm>
#include <bit>
#include <turbo/draft/ngram/nodes.hpp>

namespace turbo::draft::detail {

class NgramTable {
 public:
  NgramTable(const NgramNodes& nodes, uint64_t capacity)
      : nodes_(nodes), shards_(std::bit_ceil(std::clamp<uint64_t>(capacity / 4096, 1, 65536))) {}
  ~NgramTable() {
    for (Shard& shard : shards_) delete shard.array.load(std::memory_order_relaxed);
  }
  NgramTable(const NgramTable&) = delete;
  NgramTable& operator=(const NgramTable&) = delete;

  /// [any] The child of `parent` with `token`, or 0.
  uint32_t find(uint32_t parent, uint32_t token) const {
    const uint64_t hash = mix(parent, token);
    const Array* array = shard(hash).array.load(std::memory_order_acquire);
    if (!array) return 0;
    const uint32_t tag = tag_of(hash);
    uint32_t at = tag & array->mask;
    for (uint32_t probes = 0; probes <= array->mask; ++probes, at = (at + 1) & array->mask) {
      const uint64_t entry = array->slots[at].load(std::memory_order_acquire);
      if (entry == 0) return 0;
      if (static_cast<uint32_t>(entry >> 32) != tag) continue;
      const auto id = static_cast<uint32_t>(entry);
      const NgramNode& node = nodes_[id];
      if (node.token == token && node.parent == parent) return id;
    }
    return 0;
  }
  /// [writer] Room for one more child, so that the next add cannot fail.
  void reserve(uint32_t parent, uint32_t token) {
    Shard& shard = this->shard(mix(parent, token));
    Array* array = shard.array.load(std::memory_order_relaxed);
    if (array && (shard.used + 1) * 4ull <= (array->mask + 1ull) * 3) return;
    retired_.reserve(retired_.size() + 1);
    auto grown = std::make_unique<Array>(array ? 2 * (array->mask + 1) : 8);
    if (array)
      for (uint32_t i = 0; i <= array->mask; ++i)
        if (const uint64_t entry = array->slots[i].load(std::memory_order_relaxed)) grown->put(entry);
    bytes_.fetch_add(grown->bytes(), std::memory_order_relaxed);
    shard.array.store(grown.release(), std::memory_order_release);
    if (array) retired_.emplace_back(array);
  }
  void add(uint32_t id, uint32_t parent, uint32_t token) {
    const uint64_t hash = mix(parent, token);
    Shard& shard = this->shard(hash);
    shard.array.load(std::memory_order_relaxed)->put(uint64_t{tag_of(hash)} << 32 | id);
    ++shard.used;
  }
  /// [writer] Forget a child that is there. Later entries move up, so a reader may miss one of them for a moment.
  void remove(uint32_t id, uint32_t parent, uint32_t token) {
    const uint64_t hash = mix(parent, token);
    Shard& shard = this->shard(hash);
    Array& array = *shard.array.load(std::memory_order_relaxed);
    const uint64_t entry = uint64_t{tag_of(hash)} << 32 | id;
    uint32_t hole = tag_of(hash) & array.mask;
    while (array.slots[hole].load(std::memory_order_relaxed) != entry) hole = (hole + 1) & array.mask;
    for (uint32_t at = (hole + 1) & array.mask;; at = (at + 1) & array.mask) {
      const uint64_t moved = array.slots[at].load(std::memory_order_relaxed);
      if (moved == 0) break;
      const uint32_t home = static_cast<uint32_t>(moved >> 32) & array.mask;
      if (((at - home) & array.mask) < ((at - hole) & array.mask)) continue;  // it would move above its home
      array.slots[hole].store(moved, std::memory_order_release);
      hole = at;
    }
    array.slots[hole].store(0, std::memory_order_release);
    --shard.used;
  }
  /// [writer] Forget all children.
  void clear() {
    size_t n = retired_.size();
    for (Shard& shard : shards_) n += shard.array.load(std::memory_order_relaxed) != nullptr;
    retired_.reserve(n);
    for (Shard& shard : shards_) {
      if (Array* array = shard.array.exchange(nullptr, std::memory_order_acq_rel)) retired_.emplace_back(array);
      shard.used = 0;
    }
  }
  /// [writer] Free what has been replaced, unless somebody reads.
  void collect(NgramReaders& readers) {
    if (retired_.empty() || !readers.none()) return;
    for (const auto& array : retired_) bytes_.fetch_sub(array->bytes(), std::memory_order_relaxed);
    retired_.clear();
  }
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed) + shards_.size() * sizeof(Shard); }

 private:
  struct Array {
    explicit Array(uint32_t size) : mask(size - 1), slots(std::make_unique<std::atomic<uint64_t>[]>(size)) {}
    void put(uint64_t entry) {
      uint32_t at = static_cast<uint32_t>(entry >> 32) & mask;
      while (slots[at].load(std::memory_order_relaxed) != 0) at = (at + 1) & mask;
      slots[at].store(entry, std::memory_order_release);
    }
    uint64_t bytes() const { return sizeof(Array) + (mask + 1ull) * sizeof(slots[0]); }
    uint32_t mask;
    std::unique_ptr<std::atomic<uint64_t>[]> slots;  // tag and node id; 0 = empty
  };
  struct Shard {
    std::atomic<Array*> array{nullptr};
    uint32_t used = 0;
  };

  static uint64_t mix(uint32_t parent, uint32_t token) {
    uint64_t x = (uint64_t{parent} << 32 | token) * 0x9E3779B97F4A7C15u;
    x ^= x >> 29;
    x *= 0xD6E8FEB86659FD93u;
    return x ^ x >> 32;
  }
  static uint32_t tag_of(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }
  Shard& shard(uint64_t hash) { return shards_[hash & (shards_.size() - 1)]; }
  const Shard& shard(uint64_t hash) const { return shards_[hash & (shards_.size() - 1)]; }

  const NgramNodes& nodes_;
  std::vector<Shard> shards_;
  std::vector<std::unique_ptr<Array>> retired_;
  std::atomic<uint64_t> bytes_{0};
};

}  // namespace turbo::draft::detail
