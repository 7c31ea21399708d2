// Builds the tables of a rotation: drawn in double, rounded to f32 once. [load]; the result is read-only.
#pragma once

#include <turbo/kernel/rotated_kv/hadamard.hpp>
#include <turbo/kernel/rotated_kv/kernels.hpp>
#include <turbo/kernel/rotated_kv/streams.hpp>

#include <vector>

namespace turbo::rotated_kv {

struct RotationSpec {
  Turn turn;        // of the mode: signs, givens or quaternion
  bool mix;         // Hadamard transform behind the turn
  bool dense;       // a dense random rotation instead of everything
  bool left_only;   // quaternions on the left alone
  uint64_t seed;
};

namespace detail {

// A = R(conj r) L(l), row-major: p -> l p conj(r).
inline void fold_quaternions(const Quaternion& l, const Quaternion& r, double a[16]) {
  const double left[16] = {l.w, -l.x, -l.y, -l.z, l.x, l.w, -l.z, l.y, l.y, l.z, l.w, -l.x, l.z, -l.y, l.x, l.w};
  const double x = -r.x, y = -r.y, z = -r.z;
  const double right[16] = {r.w, -x, -y, -z, x, r.w, z, -y, y, -z, r.w, x, z, y, -x, r.w};
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) {
      a[i * 4 + j] = 0;
      for (int k = 0; k < 4; ++k) a[i * 4 + j] += right[i * 4 + k] * left[k * 4 + j];
    }
}

// Orthonormal columns of a Gaussian matrix with the signs of R's diagonal positive: q[column * d + row]. Numbers are
// drawn row by row.
inline std::vector<double> dense_rotation(Stream stream, uint32_t d) {
  std::vector<double> q(uint64_t{d} * d);
  for (uint64_t i = 0; i < q.size(); i += 2) {
    const double u = static_cast<double>((stream.next() >> 11) + 1) * 0x1p-53, angle = static_cast<double>(stream.next() >> 11) * 0x1p-53;
    const double radius = std::sqrt(-2.0 * std::log(u));
    const uint64_t row = i / d, column = i % d;
    q[column * d + row] = radius * std::cos(6.283185307179586477 * angle);
    q[(column + 1) * d + row] = radius * std::sin(6.283185307179586477 * angle);
  }
  // Gram-Schmidt, twice over each column; its lengths are R's diagonal, so they are positive.
  for (uint32_t c = 0; c < d; ++c) {
    double* own = &q[uint64_t{c} * d];
    for (int pass = 0; pass < 2; ++pass)
      for (uint32_t b = 0; b < c; ++b) {
        const double* other = &q[uint64_t{b} * d];
        double dot = 0;
        for (uint32_t r = 0; r < d; ++r) dot += other[r] * own[r];
        for (uint32_t r = 0; r < d; ++r) own[r] -= dot * other[r];
      }
    double square = 0;
    for (uint32_t r = 0; r < d; ++r) square += own[r] * own[r];
    for (uint32_t r = 0; r < d; ++r) own[r] /= std::sqrt(square);
  }
  return q;
}

}  // namespace detail

/// Owns the tables that a Rotation points into.
class RotationTables {
 public:
  /// d is a multiple of 16 up to kMaxDim.
  RotationTables(const RotationSpec& spec, uint32_t side, uint32_t d) {
    const HadamardShape shape = hadamard_shape(d);
    rotation_.d = d;
    rotation_.turn = spec.dense || (spec.mix && shape.seed == 0) ? Turn::dense : spec.turn;
    const bool mixed = spec.mix && rotation_.turn != Turn::dense;
    rotation_.seed = mixed ? shape.seed : 0;
    rotation_.block = mixed ? shape.block : 0;
    rotation_.factor = mixed ? static_cast<float>(1.0 / std::sqrt(static_cast<double>(d))) : 1.0f;
    switch (rotation_.turn) {
      case Turn::signs: draw_signs(spec, side, d); break;
      case Turn::givens: draw_pairs(spec, side, d); break;
      case Turn::quaternion: draw_quads(spec, side, d); break;
      case Turn::dense: draw_dense(spec, side, d); break;
    }
    if (rotation_.seed > 1) lay_out_seed();
    rotation_.first = first_.data();
    rotation_.second = second_.data();
    for (int transposed : {0, 1}) rotation_.mix[transposed] = mix_[transposed].data();
  }
  RotationTables(const RotationTables&) = delete;
  const Rotation& rotation() const { return rotation_; }

 private:
  void draw_signs(const RotationSpec& spec, uint32_t side, uint32_t d) {
    Stream stream(spec.seed, StreamKind::signs, side, d);
    for (uint32_t i = 0; i < d; ++i) first_.push_back(stream.next() >> 63 ? -1.0f : 1.0f);
  }
  void draw_pairs(const RotationSpec& spec, uint32_t side, uint32_t d) {
    Stream stream(spec.seed, StreamKind::givens, side, d);
    for (uint32_t g = 0; g < d / 2; ++g) {
      const Givens pair = draw_givens(stream);
      first_.push_back(static_cast<float>(pair.cos));
      second_.push_back(static_cast<float>(pair.sin));
    }
  }
  void draw_quads(const RotationSpec& spec, uint32_t side, uint32_t d) {
    Stream left(spec.seed, StreamKind::quaternion_left, side, d), right(spec.seed, StreamKind::quaternion_right, side, d);
    first_.resize(uint64_t{d} * 4);
    for (uint32_t g = 0; g < d / 4; ++g) {
      const Quaternion l = draw_quaternion(left), r = spec.left_only ? Quaternion{1, 0, 0, 0} : draw_quaternion(right);
      double a[16];
      detail::fold_quaternions(l, r, a);
      for (uint32_t k = 0; k < 16; ++k) first_[k * (d / 4) + g] = static_cast<float>(a[k]);
    }
  }
  void draw_dense(const RotationSpec& spec, uint32_t side, uint32_t d) {
    const std::vector<double> q = detail::dense_rotation(Stream(spec.seed, StreamKind::gaussian, side, d), d);
    first_.resize(q.size());
    second_.resize(q.size());
    for (uint32_t r = 0; r < d; ++r)
      for (uint32_t c = 0; c < d; ++c) first_[uint64_t{c} * d + r] = second_[uint64_t{r} * d + c] = static_cast<float>(q[uint64_t{c} * d + r]);
  }
  void lay_out_seed() {
    const uint32_t order = rotation_.seed;
    for (bool transposed : {false, true})
      for (uint32_t chunk = 0; chunk < rotation_.d / 16; ++chunk)
        for (uint32_t column = 0; column < order; ++column)
          for (uint32_t lane = 0; lane < 16; ++lane) {
            const uint32_t row = (chunk * 16 + lane) / rotation_.block;
            mix_[transposed].push_back(static_cast<float>(transposed ? seed_entry(order, column, row) : seed_entry(order, row, column)));
          }
  }

  Rotation rotation_{};
  std::vector<float> first_, second_, mix_[2];
};

}  // namespace turbo::rotated_kv
