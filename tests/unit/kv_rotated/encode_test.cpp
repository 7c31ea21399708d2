// Codes and scales: stored bytes computed elsewhere, equal bits on every ISA, the scale rules, and vectors at the edges.
#include "support.h"

namespace turbo::test {
namespace {

std::string hex_of(const uint8_t* bytes, size_t n) {
  std::string text;
  for (size_t i = 0; i < n; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", bytes[i]);
    text += digits;
  }
  return text;
}

int half_steps(uint16_t a, uint16_t b) { return std::abs(static_cast<int>(a) - static_cast<int>(b)); }

TEST(Encode, RowsEqualTheGoldensOnEveryIsa) {
  size_t n = 0;
  for (const auto& item : goldens()["byte_exact"]["items"]) {
    const uint32_t d = item["d"];
    Options options;
    options.mix = item["mix"] == "hadamard";
    const SchemeTables tables(mode_of(item["mode"]), options, TURBO_KV_SIDE_K, d);
    Stream stream(item["input_seed"].get<uint64_t>(), StreamKind::test_input, 0, d);
    std::vector<float> x(d);
    for (float& value : x) value = static_cast<float>(stream.sym());
    uint16_t first_scale = 0;
    for (const auto& [isa, k] : all_kernels()) {
      Row row(tables.scheme());
      ASSERT_EQ(row.encode(*k, x.data()), kEncoded);
      EXPECT_EQ(hex_of(row.codes(), tables.scheme().page.code_bytes), item["codes_hex"].get<std::string>()) << item["mode"] << " " << d << " " << item["mix"] << " " << isa;
      uint16_t scale;
      std::memcpy(&scale, row.page.data() + scale_offset(tables.scheme().page, 0), 2);
      const uint16_t want = static_cast<uint16_t>(std::stoul(item["scale_f16_hex"].get<std::string>(), nullptr, 16));
      EXPECT_LE(half_steps(scale, static_cast<uint16_t>(want << 8 | want >> 8)), 1);
      if (isa == "scalar") first_scale = scale;
      EXPECT_EQ(scale, first_scale) << isa;
      for (uint32_t i = tables.scheme().page.code_bytes; i < tables.scheme().page.code_pitch; ++i) EXPECT_EQ(row.page[i], 0xa5);
    }
    ++n;
  }
  EXPECT_EQ(n, 55u);
}

// Random, outlying and tiny vectors of every mode, size and option give the same bytes on all ISAs.
TEST(Encode, BytesAreTheSameOnEveryIsa) {
  std::vector<Options> choices(6);
  choices[1].group = 32;
  choices[2].wide_scale = true;
  choices[3].rule = ScaleRule::least_squares;
  choices[4].rule = ScaleRule::norm;
  choices[5].rule = ScaleRule::raw;
  for (const Mode& mode : modes())
    for (const uint32_t d : {16u, 48u, 64u, 80u, 96u, 112u, 128u, 144u, 160u, 192u, 256u, 512u})
      for (size_t c = 0; c < choices.size(); ++c) {
        const SchemeTables tables(mode, choices[c], TURBO_KV_SIDE_V, d);
        for (const float size : {1.0f, 1e4f, 1e-6f}) {
          std::vector<float> x = normals(d + c, d, size);
          x[d / 2] *= 30;
          Row first(tables.scheme());
          first.encode(scalar_kernels(), x.data());
          for (const auto& [isa, k] : all_kernels()) {
            Row row(tables.scheme());
            ASSERT_EQ(row.encode(*k, x.data()), first.said);
            ASSERT_EQ(row.page, first.page) << mode.name << " d " << d << " options " << c << " " << isa;
          }
        }
      }
}

TEST(Encode, ZeroIsExactlyZeroAndNothingElseIs) {
  for (const Mode& mode : modes())
    for (const uint32_t group : {0u, 32u}) {
      Options options;
      options.group = group;
      const SchemeTables tables(mode, options, 0, 128);
      for (const auto& [isa, k] : all_kernels()) {
        std::vector<float> x(128, 0.0f);
        Row row(tables.scheme());
        ASSERT_EQ(row.encode(*k, x.data()), kEncoded);
        for (uint32_t i = 0; i < 128; ++i) ASSERT_EQ(code_at(row.codes(), mode.bits, i), 1u << (mode.bits - 1)) << isa;
        for (const float value : row.decode(*k)) ASSERT_EQ(value, 0.0f);
        x[77] = 0x1p-24f;  // the smallest half
        ASSERT_EQ(row.encode(*k, x.data()), kEncoded);
        ASSERT_GT(row.scale(), 0.0) << mode.name << " " << isa;
      }
    }
}

TEST(Encode, WhatIsNotFiniteIsRefusedAndWritesNothing) {
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY, 3e38f})
    for (const uint32_t where : {0u, 79u})
      for (const auto& [isa, k] : all_kernels()) {
        const SchemeTables tables(mode_of("tq3"), {}, 0, 80);
        std::vector<float> x(80, 1.0f);
        x[where] = bad;
        Row row(tables.scheme());
        EXPECT_EQ(row.encode(*k, x.data()), kNotFinite) << isa;
        EXPECT_EQ(row.page, std::vector<uint8_t>(row.page.size(), 0xa5)) << isa;
      }
}

TEST(Encode, LargeScalesSaturateAndSaySo) {
  for (const Mode& mode : modes()) {
    const SchemeTables tables(mode, {}, 0, 128);
    const std::vector<float> x = normals(3, 128, 2e5f);
    Options wide;
    wide.wide_scale = true;
    const SchemeTables wide_tables(mode, wide, 0, 128);
    for (const auto& [isa, k] : all_kernels()) {
      Row row(tables.scheme()), wide_row(wide_tables.scheme());
      EXPECT_EQ(row.encode(*k, x.data()), kSaturated) << isa;
      EXPECT_EQ(row.scale(), 65504.0);
      EXPECT_EQ(wide_row.encode(*k, x.data()), kEncoded);
      EXPECT_GT(wide_row.scale(), 65504.0);
    }
  }
}

TEST(Page, BytesEqualTheFormulaAndTheGoldens) {
  for (uint32_t d = 16; d <= 512; d += 16)
    for (const uint32_t bits : {2u, 3u, 4u})
      for (const uint32_t group : {0u, 32u})
        for (const bool wide : {false, true}) {
          const Page page = page_of(d, bits, group, wide);
          const uint64_t pitch = ((d * bits + 7) / 8 + 3) / 4 * 4, scales = group ? (d + 31) / 32 : 1;
          EXPECT_EQ(page.bytes, 64 * pitch + 64 * scales * (wide ? 4 : 2));
          EXPECT_EQ(page.bytes % 64, 0u);
        }
  for (const uint32_t d : {64u, 80u, 96u, 128u, 256u})
    for (const uint32_t bits : {2u, 3u, 4u}) {
      const auto& want = goldens()["bytes_per_vector"]["d" + std::to_string(d) + "_b" + std::to_string(bits)];
      const Page page = page_of(d, bits, 0, false);
      EXPECT_EQ(page.code_bytes, want["code_bytes"].get<uint32_t>());
      EXPECT_EQ(page.code_pitch, want["code_pitch_in_page"].get<uint32_t>());
      EXPECT_EQ(page.code_bytes + page.scale_bytes, want["total"].get<uint32_t>());
    }
}

}  // namespace
}  // namespace turbo::test
