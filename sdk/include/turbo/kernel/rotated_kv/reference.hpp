// Plain forms of the rotated codecs, in double, to compare kernels with. Pure, [any]; slow.
#pragma once

#include <turbo/kernel/rotated_kv/hadamard.hpp>
#include <turbo/kernel/rotated_kv/kernels.hpp>

#include <cmath>
#include <vector>

namespace turbo::rotated_kv {

/// R x from the tables of r.
inline std::vector<double> reference_rotate(const Rotation& r, const double* x) {
  const uint32_t d = r.d, quarter = d / 4;
  std::vector<double> y(d), scratch(d);
  for (uint32_t i = 0; i < d; ++i) switch (r.turn) {
      case Turn::signs: y[i] = r.first[i] * x[i]; break;
      case Turn::givens: {
        const uint32_t half = i / (2 * quarter), g = half * quarter + i % quarter, a = half * 2 * quarter + i % quarter;
        y[i] = i == a ? r.first[g] * x[a] - r.second[g] * x[a + quarter] : r.second[g] * x[a] + r.first[g] * x[a + quarter];
        break;
      }
      case Turn::quaternion:
        for (uint32_t c = 0; c < 4; ++c) y[i] += r.first[(i / quarter * 4 + c) * quarter + i % quarter] * x[c * quarter + i % quarter];
        break;
      case Turn::dense:
        for (uint32_t c = 0; c < d; ++c) y[i] += r.second[uint64_t{i} * d + c] * x[c];
        break;
    }
  if (r.seed) {
    hadamard(y.data(), scratch.data(), d, false);
    for (double& v : y) v /= std::sqrt(static_cast<double>(d));
  }
  return y;
}

/// Scale of coordinate i of a row.
inline float reference_scale(const Scheme& s, const uint8_t* page, uint64_t row, uint32_t i) {
  return scale_of_row(s.page, page, row, s.group ? i / s.group : 0);
}

/// g c: the row in the rotated basis.
inline std::vector<double> reference_levels(const Scheme& s, const uint8_t* page, uint64_t row) {
  std::vector<double> y(s.d);
  for (uint32_t i = 0; i < s.d; ++i)
    y[i] = static_cast<double>(reference_scale(s, page, row, i)) * static_cast<double>(s.level[code_at(page + code_offset(s.page, row), s.bits, i)]);
  return y;
}

/// <q, x^> of a query that is not rounded to int8, in f32 as a device without integer dots would: the measure of what int8 costs.
inline float reference_score_f32(const Scheme& s, const uint8_t* page, uint64_t row, const float* rotated_query) {
  float sum = 0;
  for (uint32_t i = 0; i < s.d; ++i)
    sum = std::fma(rotated_query[i] * reference_scale(s, page, row, i),
                   s.level[code_at(page + code_offset(s.page, row), s.bits, i)], sum);
  return sum;
}

}  // namespace turbo::rotated_kv
