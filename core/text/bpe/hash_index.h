// Hash tables of the tokenizer: built once while a vocabulary loads, then read by any number of threads.
//
// A vocabulary file may be hostile, so the hashes are seeded per process: nobody can prepare a file whose keys collide.
// No result depends on the seed.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

namespace turbo::text {

/// The seed of this process.
uint64_t hash_seed();

inline uint64_t mix_hash(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

/// uint64 -> uint32; the key ~0 is not allowed.
class PairMap {
 public:
  void reserve(size_t n_entries) {
    size_t n_slots = 16;
    while (n_slots < n_entries * 2) n_slots *= 2;
    slots_.assign(n_slots, Slot{empty_key, 0});
    mask_ = n_slots - 1;
    seed_ = hash_seed();
  }
  /// False when the key is there already. No more entries than reserved.
  bool insert(uint64_t key, uint32_t value) {
    size_t i = start(key);
    for (; slots_[i].key != empty_key; i = (i + 1) & mask_)
      if (slots_[i].key == key) return false;
    slots_[i] = {key, value};
    return true;
  }
  /// The value, or `absent`.
  uint32_t find(uint64_t key, uint32_t absent) const {
    for (size_t i = start(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].value;
      if (slots_[i].key == empty_key) return absent;
    }
  }

 private:
  static constexpr uint64_t empty_key = ~uint64_t{0};
  struct Slot {
    uint64_t key;
    uint32_t value;
  };
  size_t start(uint64_t key) const { return mix_hash(key ^ seed_, 0x9E3779B97F4A7C15u) & mask_; }

  std::vector<Slot> slots_;
  uint64_t mask_ = 0, seed_ = 0;
};

/// Byte string -> id. Holds views: the strings must outlive it.
class TextIndex {
 public:
  void reserve(size_t n_entries) {
    size_t n_slots = 16;
    while (n_slots < n_entries * 2) n_slots *= 2;
    slots_.assign(n_slots, Slot{});
    mask_ = n_slots - 1;
    seed_ = hash_seed() | 1;
  }
  /// The id that holds this text already, or empty when the text was added. No more entries than reserved.
  std::optional<int32_t> insert(std::string_view text, int32_t id) {
    const uint32_t tag = hash(text);
    size_t i = tag & mask_;
    for (; slots_[i].id >= 0; i = (i + 1) & mask_)
      if (slots_[i].tag == tag && slots_[i].text == text) return slots_[i].id;
    slots_[i] = {text, tag, id};
    return std::nullopt;
  }
  /// The id, or -1.
  int32_t find(std::string_view text) const {
    const uint32_t tag = hash(text);
    for (size_t i = tag & mask_;; i = (i + 1) & mask_) {
      if (slots_[i].id < 0) return -1;
      if (slots_[i].tag == tag && slots_[i].text == text) return slots_[i].id;
    }
  }

 private:
  struct Slot {
    std::string_view text;
    uint32_t tag = 0;
    int32_t id = -1;
  };
  uint32_t hash(std::string_view text) const {
    uint64_t state = seed_ ^ text.size();
    const char* p = text.data();
    size_t left = text.size();
    for (; left >= 8; left -= 8, p += 8) {
      uint64_t word;
      std::memcpy(&word, p, 8);
      state = mix_hash(state ^ word, 0x9E3779B97F4A7C15u);
    }
    uint64_t word = 0;
    if (left != 0) std::memcpy(&word, p, left);
    state = mix_hash(state ^ word, 0xD6E8FEB86659FD93u);
    return static_cast<uint32_t>(state ^ state >> 32);
  }

  std::vector<Slot> slots_;
  uint64_t mask_ = 0, seed_ = 0;
};

}  // namespace turbo::text
