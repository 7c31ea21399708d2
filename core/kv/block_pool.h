// Ids of fixed-size blocks with reference counts. Engine thread only.
#pragma once

#include <cassert>
#include <cstdint>
#include <optional>
#include <vector>

namespace turbo::kv {

class BlockPool {
 public:
  explicit BlockPool(uint32_t n_blocks) : references_(n_blocks, 0) {
    free_.reserve(n_blocks);
    for (uint32_t id = n_blocks; id > 0; --id) free_.push_back(static_cast<int32_t>(id - 1));
  }

  /// A block with one reference; empty when none is free.
  std::optional<int32_t> allocate() {
    if (free_.empty()) return std::nullopt;
    const int32_t id = free_.back();
    free_.pop_back();
    references_[id] = 1;
    return id;
  }
  void retain(int32_t id) {
    assert(references_[id] > 0);
    ++references_[id];
  }
  void release(int32_t id) {
    assert(references_[id] > 0);
    if (--references_[id] == 0) free_.push_back(id);
  }

  uint32_t references(int32_t id) const { return references_[id]; }
  uint32_t capacity() const { return static_cast<uint32_t>(references_.size()); }
  uint32_t n_free() const { return static_cast<uint32_t>(free_.size()); }
  uint32_t n_used() const { return capacity() - n_free(); }

 private:
  std::vector<uint32_t> references_;
  std::vector<int32_t> free_;
};

}  // namespace turbo::kv
