// Hadamard transforms of sizes 2^k, 12 * 2^k and 20 * 2^k: which one a size takes, the entries of the seeds, and a
// plain form to compare with. Unnormalised: H H^T = d I. Pure, [any].
#pragma once

#include <cstdint>

namespace turbo::rotated_kv {

/// H = seed (x) butterflies: index = block_index * block + offset; seed 1 is butterflies alone, 0 is none.
struct HadamardShape { uint32_t seed, block; };

inline HadamardShape hadamard_shape(uint32_t d) {
  uint32_t odd = d;
  while (odd && odd % 2 == 0) odd /= 2;
  if (odd == 1) return {1, d};
  if (odd == 3 && d % 12 == 0) return {12, d / 12};
  if (odd == 5 && d % 20 == 0) return {20, d / 20};
  return {0, 0};
}

/// Entry of the Paley matrix of order 12 or 20: identity plus a skew matrix of quadratic characters.
inline int seed_entry(uint32_t order, uint32_t row, uint32_t column) {
  if (row == column) return 1;
  if (row == 0) return 1;
  if (column == 0) return -1;
  const uint32_t q = order - 1, difference = (row + q - column) % q;
  for (uint32_t root = 1; root < q; ++root)
    if (root * root % q == difference) return 1;
  return -1;
}

/// In place; v has d elements and scratch d more.
template <typename T>
void hadamard(T* v, T* scratch, uint32_t d, bool transposed) {
  const HadamardShape shape = hadamard_shape(d);
  for (uint32_t base = 0; base < d; base += shape.block)
    for (uint32_t h = 1; h < shape.block; h *= 2)
      for (uint32_t i = base; i < base + shape.block; ++i)
        if (((i - base) & h) == 0) {
          const T a = v[i], b = v[i + h];
          v[i] = a + b;
          v[i + h] = a - b;
        }
  if (shape.seed == 1) return;
  for (uint32_t r = 0; r < shape.seed; ++r)
    for (uint32_t o = 0; o < shape.block; ++o) {
      T sum = 0;
      for (uint32_t c = 0; c < shape.seed; ++c)
        sum += static_cast<T>(transposed ? seed_entry(shape.seed, c, r) : seed_entry(shape.seed, r, c)) * v[c * shape.block + o];
      scratch[r * shape.block + o] = sum;
    }
  for (uint32_t i = 0; i < d; ++i) v[i] = scratch[i];
}

}  // namespace turbo::rotated_kv
