/* Counter-based random numbers: the draw at (seed, position) never depends on what was drawn before. */
#ifndef TURBO_KERNEL_RANDOM_H
#define TURBO_KERNEL_RANDOM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

static inline uint64_t turbo_mix64(uint64_t z) {
  z += 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

/* Uniform in [0, 1), 53 bits. */
static inline double turbo_uniform(uint64_t seed, uint64_t position) {
  return (double)(turbo_mix64(turbo_mix64(seed) ^ turbo_mix64(position ^ 0x7475726264726177ull)) >> 11) * 0x1p-53;
}

#ifdef __cplusplus
}
#endif
#endif
