// The random numbers behind rotations: counted 64-bit streams, the same on every machine. Only sums, products,
// quotients and square roots of doubles, which every platform rounds alike. Pure, [load].
#pragma once

#include <turbo/kernel/random.h>

#include <cmath>
#include <cstdint>

namespace turbo::rotated_kv {

/// What a stream is drawn for; part of its state, so kinds never share numbers.
enum class StreamKind : uint64_t { signs = 1, givens = 2, quaternion_left = 3, quaternion_right = 4, gaussian = 5, test_input = 15 };

class Stream {
 public:
  Stream(uint64_t seed, StreamKind kind, uint32_t side, uint64_t d, uint64_t stream = 0)
      : state_(turbo_mix64(turbo_mix64(turbo_mix64(turbo_mix64(seed) ^ (16 * static_cast<uint64_t>(kind) + side)) ^ d) ^ stream)) {}

  uint64_t next() {
    const uint64_t r = turbo_mix64(state_);
    state_ += 0x9E3779B97F4A7C15ull;
    return r;
  }
  /// In [-1, 1).
  double sym() { return static_cast<double>(next() >> 11) * 0x1p-52 - 1.0; }

  /// A point of the unit disc: a, e and a*a + e*e in (1e-12, limit]. The open disc where `open`.
  double disc(double& a, double& e, bool open) {
    for (;;) {
      a = sym();
      e = sym();
      const double r = a * a + e * e;
      if (r > 1e-12 && (open ? r < 1.0 : r <= 1.0)) return r;
    }
  }

 private:
  uint64_t state_;
};

struct Givens { double cos, sin; };

inline Givens draw_givens(Stream& stream) {
  double a, e;
  const double root = std::sqrt(stream.disc(a, e, false));
  return {a / root, e / root};
}

struct Quaternion { double w, x, y, z; };

/// Uniform on the 3-sphere.
inline Quaternion draw_quaternion(Stream& stream) {
  double a, e, f, h;
  const double r1 = stream.disc(a, e, true), r2 = stream.disc(f, h, true), m = std::sqrt((1.0 - r1) / r2);
  return {a, e, f * m, h * m};
}

}  // namespace turbo::rotated_kv
