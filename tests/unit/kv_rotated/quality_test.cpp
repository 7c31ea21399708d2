// Errors of decoded vectors against figures computed elsewhere: random directions for every mode, size and scale rule,
// and the structured sets on which codecs differ.
#include "support.h"

#include <algorithm>

namespace turbo::test {
namespace {

constexpr uint32_t kVectors = 20480;

struct Figures { double rel_mse = 0, p99 = 0, cosine = 0, slope = 0, ip_mean = 0, ip_error = 0; };

// Vectors lie one behind the other; with `probes`, one random unit vector each.
Figures measure(const Scheme& scheme, const std::vector<float>& vectors, const std::vector<float>* probes = nullptr) {
  const Kernels& k = widest_kernels();
  const uint32_t d = scheme.d;
  const size_t n = vectors.size() / d;
  std::vector<double> errors;
  errors.reserve(n);
  Figures f;
  double ip_square = 0;
  std::vector<uint8_t> page(scheme.page.bytes);
  std::vector<float> y(d), back(d);
  for (size_t v = 0; v < n; ++v) {
    const float* x = &vectors[v * d];
    EXPECT_EQ(k.encode(scheme, x, page.data(), page.data() + scale_offset(scheme.page, 0)), kEncoded);
    for (uint32_t i = 0; i < d; ++i) {
      const uint32_t group = scheme.group ? i / scheme.group : 0;
      uint16_t half;
      std::memcpy(&half, page.data() + scale_offset(scheme.page, 0) + group * 2, 2);
      y[i] = turbo_f16_to_f32(half) * scheme.level[code_at(page.data(), scheme.bits, i)];
    }
    k.unrotate(scheme.rotation, y.data(), back.data());
    double xx = 0, xb = 0, bb = 0, ee = 0, ip = 0;
    for (uint32_t i = 0; i < d; ++i) {
      const double a = x[i], b = back[i];
      xx += a * a;
      xb += a * b;
      bb += b * b;
      ee += (a - b) * (a - b);
      if (probes) ip += static_cast<double>((*probes)[v * d + i]) * (b - a);
    }
    errors.push_back(ee / xx);
    f.cosine += xb / std::sqrt(xx * bb);
    f.slope += xb / xx;
    ip *= std::sqrt(d / xx);
    f.ip_mean += ip;
    ip_square += ip * ip;
  }
  for (const double e : errors) f.rel_mse += e;
  const double count = static_cast<double>(n);
  f.rel_mse /= count;
  f.cosine /= count;
  f.slope /= count;
  f.ip_mean /= count;
  f.ip_error = std::sqrt(ip_square) / count;
  std::nth_element(errors.begin(), errors.begin() + static_cast<ptrdiff_t>(n * 99 / 100), errors.end());
  f.p99 = errors[n * 99 / 100];
  return f;
}

void normalise(std::vector<float>& vectors, uint32_t d) {
  for (size_t at = 0; at < vectors.size(); at += d) {
    double square = 0;
    for (uint32_t i = 0; i < d; ++i) square += static_cast<double>(vectors[at + i]) * static_cast<double>(vectors[at + i]);
    for (uint32_t i = 0; i < d; ++i) vectors[at + i] /= static_cast<float>(std::sqrt(square));
  }
}

TEST(Quality, RandomDirectionsMeetTheBandsOfEveryModeAndSize) {
  for (const uint32_t d : {64u, 80u, 96u, 128u, 256u}) {
    std::vector<float> vectors = normals(d, uint64_t{kVectors} * d), probes = normals(d + 1, vectors.size());
    normalise(probes, d);
    const std::vector<float> lengths = normals(d + 2, kVectors);
    for (size_t i = 0; i < vectors.size(); ++i) vectors[i] *= std::exp(lengths[i / d]);
    for (const Mode& mode : modes()) {
      const SchemeTables tables(mode, {}, TURBO_KV_SIDE_K, d);
      const Figures f = measure(tables.scheme(), vectors, &probes);
      const std::string where = std::string(mode.name) + "_d" + std::to_string(d);
      const auto& want = goldens()["gaussian_direction"]["per_mode"][where];
      const auto& accept = want["accept_default"];
      EXPECT_GE(f.rel_mse, accept["rel_mse"][0].get<double>()) << where;
      EXPECT_LE(f.rel_mse, accept["rel_mse"][1].get<double>()) << where;
      EXPECT_GE(f.cosine, accept["cos_min"].get<double>()) << where;
      EXPECT_GE(f.slope, accept["slope"][0].get<double>()) << where;
      EXPECT_LE(f.slope, accept["slope"][1].get<double>()) << where;
      EXPECT_NEAR(f.p99, want["unb"]["p99"].get<double>(), 0.1 * want["unb"]["p99"].get<double>()) << where;
      EXPECT_LE(std::fabs(f.ip_mean), 3.5 * f.ip_error) << where;  // 3 for one figure; this is the largest of 35
      const double spread = f.ip_error * std::sqrt(static_cast<double>(kVectors));
      EXPECT_NEAR(spread, want["ip_std"].get<double>(), 0.03 * want["ip_std"].get<double>()) << where;
    }
  }
}

TEST(Quality, OtherScaleRulesAndOptionsMeetTheirFigures) {
  const std::vector<float> vectors = normals(5, uint64_t{kVectors} * 128);
  for (const Mode& mode : modes()) {
    const std::string where = std::string(mode.name) + "_d128";
    const auto& want = goldens()["gaussian_direction"]["per_mode"][where];
    for (const auto& [rule, key] : {std::pair{ScaleRule::norm, "norm"}, std::pair{ScaleRule::least_squares, "lsq"}, std::pair{ScaleRule::raw, "raw"}}) {
      Options options;
      options.rule = rule;
      const Figures f = measure(SchemeTables(mode, options, 0, 128).scheme(), vectors);
      EXPECT_NEAR(f.rel_mse, want[key]["rel_mse"].get<double>(), 0.03 * want[key]["rel_mse"].get<double>()) << where << " " << key;
      EXPECT_NEAR(f.slope, want[key]["slope"].get<double>(), 0.003) << where << " " << key;
    }
  }
  Options grouped;  // a scale per 32 coordinates: 0.0307 at 3 bits, 0.0083 at 4
  grouped.group = 32;
  EXPECT_NEAR(measure(SchemeTables(mode_of("tq3"), grouped, 0, 128).scheme(), vectors).rel_mse, 0.0307, 0.0307 * 0.05);
  EXPECT_NEAR(measure(SchemeTables(mode_of("tq4"), grouped, 0, 128).scheme(), vectors).rel_mse, 0.0083, 0.0083 * 0.05);
  Options dense;  // the fast forms lose nothing
  dense.dense = true;
  const std::vector<float> few(vectors.begin(), vectors.begin() + 4096 * 128);
  EXPECT_NEAR(measure(SchemeTables(mode_of("tq3"), dense, 0, 128).scheme(), few).rel_mse, 0.0347, 0.0347 * 0.03);
}

std::vector<float> structured(const std::string& set) {
  constexpr uint32_t d = 128;
  if (set == "all_equal") return std::vector<float>(d, 1.0f);
  std::vector<float> x;
  if (set == "one_hot_all_positions") {
    x.assign(uint64_t{d} * d, 0.0f);
    for (uint32_t i = 0; i < d; ++i) x[uint64_t{i} * d + i] = 3.0f;
    return x;
  }
  x = normals(11, uint64_t{kVectors} * d);
  std::mt19937_64 random(12);
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t at = i % d;
    if (set == "two_outlier_channels_x20" && (at == 57 || at == 121)) x[i] *= 20;
    if (set == "constant_bias") x[i] += at == 57 ? 25.0f : at == 121 ? 15.0f : at == 60 ? -18.0f : 0.0f;
    if (set == "laplace") x[i] = std::copysign(std::exponential_distribution<float>()(random), x[i]);
  }
  if (set == "student_t3") {
    std::student_t_distribution<float> t(3.0f);
    for (float& value : x) value = t(random);
  }
  return x;
}

TEST(Quality, StructuredSetsMeetTheirFigures) {
  for (const auto& [set, figures] : goldens()["structured_d128"]["sets"].items()) {
    if (set == "all_equal") continue;  // a single vector
    const std::vector<float> vectors = structured(set);
    const double slack = set == "one_hot_all_positions" ? 0.30 : 0.15;
    for (const Mode& mode : modes())
      for (const auto& [key, mix] : {std::pair{"hadamard", true}, std::pair{"none", false}}) {
        const auto& want = figures["rel_mse"][mode.name];
        if (!want.contains(key)) continue;
        Options options;
        options.mix = mix;
        const double got = measure(SchemeTables(mode, options, TURBO_KV_SIDE_K, 128).scheme(), vectors).rel_mse, expected = want[key];
        EXPECT_NEAR(got, expected, std::max(slack * expected, 1e-6)) << set << " " << mode.name << " " << key;
        if (mix && mode.bits > 2) {
          EXPECT_LT(got, mode.bits == 3 ? 0.045 : 0.012) << set << " " << mode.name;
        }
      }
  }
}

}  // namespace
}  // namespace turbo::test
