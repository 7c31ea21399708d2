// Random streams, transforms, rotation tables and codebooks against values computed elsewhere, and rotations on every
// ISA against plain doubles.
#include "support.h"

#include <numeric>

namespace turbo::test {
namespace {

std::string sign_bits(uint32_t side, uint32_t d) {
  Stream stream(42, StreamKind::signs, side, d);
  std::string hex(d / 4, '0');
  for (uint32_t i = 0; i < d; ++i)
    if (stream.next() >> 63) {
      char& digit = hex[d / 4 - 1 - i / 4];
      const int value = (digit <= '9' ? digit - '0' : digit - 'a' + 10) | 1 << (i % 4);
      digit = static_cast<char>(value < 10 ? '0' + value : 'a' + value - 10);
    }
  const size_t first = hex.find_first_not_of('0');
  return "0x" + hex.substr(first == std::string::npos ? hex.size() - 1 : first);
}

TEST(Streams, EqualTheGoldens) {
  const auto& all = goldens()["random_streams"];
  EXPECT_EQ(turbo_mix64(0), std::stoull(all["mix_of_0"].get<std::string>(), nullptr, 16));
  EXPECT_EQ(turbo_mix64(42), std::stoull(all["mix_of_42"].get<std::string>(), nullptr, 16));
  EXPECT_EQ(Stream(42, StreamKind::signs, 0, 128).next(), std::stoull(all["stream_K_signs_d128_first_u64"].get<std::string>(), nullptr, 16));
  for (const uint32_t d : {64u, 128u}) {
    const auto& want = all["d" + std::to_string(d)];
    EXPECT_EQ(sign_bits(0, d), want["K_sign_bits_lsb_first_hex"].get<std::string>());
    EXPECT_EQ(sign_bits(1, d), want["V_sign_bits_lsb_first_hex"].get<std::string>());
    Stream pairs(42, StreamKind::givens, 0, d);
    Givens last{};
    for (uint32_t g = 0; g < d / 2; ++g) {
      last = draw_givens(pairs);
      if (g >= 3) continue;
      EXPECT_NEAR(last.cos, want["K_givens_first3"][g][0].get<double>(), 1e-9);
      EXPECT_NEAR(last.sin, want["K_givens_first3"][g][1].get<double>(), 1e-9);
    }
    EXPECT_NEAR(last.cos, want["K_givens_last"][0].get<double>(), 1e-9);
    EXPECT_NEAR(last.sin, want["K_givens_last"][1].get<double>(), 1e-9);
    for (const auto& [kind, key] : {std::pair{StreamKind::quaternion_left, "K_quat_left_first2"}, std::pair{StreamKind::quaternion_right, "K_quat_right_first2"}}) {
      Stream stream(42, kind, 0, d);
      for (int i = 0; i < 2; ++i) {
        const Quaternion q = draw_quaternion(stream);
        const double parts[4] = {q.w, q.x, q.y, q.z};
        for (int k = 0; k < 4; ++k) EXPECT_NEAR(parts[k], want[key][i][k].get<double>(), 1e-9) << key;
      }
    }
  }
}

TEST(Transform, SeedsEqualTheGoldens) {
  for (const auto& [order, key] : {std::pair{12u, "H12_rows_1_means_minus"}, std::pair{20u, "H20_rows_1_means_minus"}})
    for (uint32_t r = 0; r < order; ++r) {
      const std::string want = goldens()["hadamard_seeds"][key][r];
      for (uint32_t c = 0; c < order; ++c) EXPECT_EQ(seed_entry(order, r, c), want[c] == '1' ? -1 : 1) << key << " " << r << " " << c;
    }
}

TEST(Transform, ColumnsAreOrthogonalForEverySize) {
  for (const uint32_t d : {16u, 32u, 48u, 64u, 80u, 96u, 128u, 160u, 192u, 256u, 320u, 384u, 512u}) {
    ASSERT_NE(hadamard_shape(d).seed, 0u) << d;
    std::vector<double> columns(uint64_t{d} * d), scratch(d);
    for (uint32_t c = 0; c < d; ++c) {
      columns[uint64_t{c} * d + c] = 1;
      hadamard(&columns[uint64_t{c} * d], scratch.data(), d, false);
    }
    for (uint32_t a = 0; a < d; ++a)
      for (uint32_t b = a; b < d; b += 1 + (b - a) / 8)  // all near pairs, some far ones
        ASSERT_EQ(std::inner_product(&columns[uint64_t{a} * d], &columns[uint64_t{a} * d] + d, &columns[uint64_t{b} * d], 0.0), a == b ? d : 0.0) << d;
  }
  for (const uint32_t d : {112u, 144u, 176u, 208u, 224u, 240u}) EXPECT_EQ(hadamard_shape(d).seed, 0u) << d;
}

std::vector<RotationSpec> specs() {
  std::vector<RotationSpec> all;
  for (const Turn turn : {Turn::signs, Turn::givens, Turn::quaternion}) {
    all.push_back({turn, true, false, false, 42});
    if (turn != Turn::signs) all.push_back({turn, false, false, false, 42});
  }
  all.push_back({Turn::quaternion, true, false, true, 7});
  all.push_back({Turn::signs, true, true, false, 42});
  return all;
}

TEST(Rotations, AreOrthogonalEqualThePlainFormAndHaveTheSameBitsOnEveryIsa) {
  for (const uint32_t d : {16u, 64u, 80u, 96u, 112u, 128u, 160u, 192u, 256u})
    for (const RotationSpec& spec : specs())
      for (const uint32_t side : {0u, 1u}) {
        const RotationTables tables(spec, side, d);
        const Rotation& r = tables.rotation();
        const std::vector<float> x = normals(d, d);
        const std::vector<double> wide(x.begin(), x.end()), want = reference_rotate(r, wide.data());
        std::vector<float> first(d);
        for (const auto& [isa, k] : all_kernels()) {
          std::vector<float> y(d), back(d);
          k->rotate(r, x.data(), y.data());
          k->unrotate(r, y.data(), back.data());
          for (uint32_t i = 0; i < d; ++i) {
            ASSERT_NEAR(y[i], want[i], 2e-6 * std::sqrt(d)) << isa << " d " << d << " turn " << static_cast<int>(spec.turn);
            ASSERT_NEAR(back[i], x[i], 2e-6 * std::sqrt(d)) << isa << " d " << d << " turn " << static_cast<int>(spec.turn);
          }
          if (isa == "scalar") first = y;
          ASSERT_TRUE(same_bits(first.data(), y.data(), d)) << isa << " d " << d;
        }
      }
}

TEST(Rotations, MatricesTimesTheirTransposeAreOne) {
  for (const uint32_t d : {64u, 80u, 96u, 112u, 128u, 192u, 256u})
    for (const RotationSpec& spec : specs()) {
      const RotationTables tables(spec, 0, d);
      std::vector<std::vector<double>> columns;
      for (uint32_t c = 0; c < d; ++c) {
        std::vector<double> unit(d);
        unit[c] = 1;
        columns.push_back(reference_rotate(tables.rotation(), unit.data()));
      }
      for (uint32_t a = 0; a < d; ++a)
        for (uint32_t b = a; b < d; b += 1 + (b - a) / 4)
          ASSERT_NEAR(std::inner_product(columns[a].begin(), columns[a].end(), columns[b].begin(), 0.0), a == b ? 1.0 : 0.0, 1e-6) << d;
    }
}

TEST(Rotations, SidesSeedsAndSizesDiffer) {
  const std::vector<float> x = normals(1, 128);
  std::vector<std::vector<float>> seen;
  for (const uint64_t seed : {42u, 43u})
    for (const uint32_t side : {0u, 1u}) {
      const RotationTables tables({Turn::givens, true, false, false, seed}, side, 128);
      std::vector<float> y(128);
      widest_kernels().rotate(tables.rotation(), x.data(), y.data());
      for (const auto& other : seen) EXPECT_NE(y, other);
      seen.push_back(y);
    }
}

TEST(Codebooks, EqualTheGoldens) {
  for (const auto& [d, name] : {std::pair{64u, "64"}, std::pair{80u, "80"}, std::pair{96u, "96"}, std::pair{128u, "128"}, std::pair{256u, "256"}, std::pair{160u, "inf"}})
    for (const uint32_t bits : {2u, 3u, 4u}) {
      const Codebook book = make_codebook(d, bits);
      const auto& want = goldens()["codebooks"]["tables"][std::string(name) + "_" + std::to_string(bits)];
      const uint32_t half = 1u << (bits - 1);
      for (uint32_t i = 0; i < half; ++i) {
        EXPECT_EQ(book.level[half + i], want["centroids_pos"][i].get<float>());
        EXPECT_EQ(book.level[half - 1 - i], -want["centroids_pos"][i].get<float>());
        EXPECT_EQ(book.boundary[half - 1 + i], want["boundaries_pos"][i].get<float>());
        EXPECT_EQ(book.boundary[half - 1 - i], -want["boundaries_pos"][i].get<float>());
      }
      for (uint32_t i = 0; i < 16; ++i) EXPECT_EQ(book.level[i], book.level[i % (2 * half)]);
      const std::vector<int> level8 = goldens()["codebooks"]["int8_gauss"][std::to_string(bits)];
      for (uint32_t i = 0; i < 16 && d == 160; ++i) EXPECT_EQ(book.level8[i], level8[i % (2 * half)]);
    }
}

}  // namespace
}  // namespace turbo::test
