// Overflow-checked size arithmetic. Every size that comes from a file, request or plugin goes through here.
#pragma once

#include <cstdint>
#include <optional>

namespace turbo {

inline std::optional<uint64_t> checked_add(uint64_t a, uint64_t b) {
  uint64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

inline std::optional<uint64_t> checked_mul(uint64_t a, uint64_t b) {
  uint64_t product;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

/// Round up to a multiple of a power of two; empty when the result does not fit.
inline std::optional<uint64_t> checked_align_up(uint64_t value, uint64_t alignment) {
  auto sum = checked_add(value, alignment - 1);
  if (!sum) return std::nullopt;
  return *sum & ~(alignment - 1);
}

}  // namespace turbo
