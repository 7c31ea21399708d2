// What holds for all codecs of the library: stated errors, centers, rotation, moves, refused input and options.
#include "fixture.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace turbo::test {
namespace {

const std::vector<Variant> kNarrow = {{"fp8_e4m3", {}},
                                      {"fp8_e4m3", {{"scale", "head"}}},
                                      {"fp8_e4m3", {{"rotate", "hadamard"}}},
                                      {"fp8_e5m2", {}},
                                      {"fp8_e5m2", {{"scale", "head"}, {"rotate", "hadamard"}}},
                                      {"q8", {}},
                                      {"q8", {{"rotate", "hadamard"}}},
                                      {"q4", {}},
                                      {"q4", {{"rotate", "none"}}}};

std::vector<Variant> all_variants() {
  std::vector<Variant> all = kNarrow;
  for (const char* name : {"f32", "f16", "bf16"}) all.push_back({name, {}});
  return all;
}

/// Error of decoded rows relative to the rows, squared norms.
double relative_mse(const Codec& codec, const turbo_kv_shape& shape, uint8_t* block, const std::vector<float>& rows) {
  const uint64_t width = uint64_t{shape.n_kv_heads} * shape.head_dim;
  std::vector<float> back(width);
  double error = 0, norm = 0;
  for (uint64_t row = 0; row * width < rows.size(); ++row) {
    EXPECT_EQ(codec->append(codec.self(), &shape, block, row % 64, &rows[row * width], 0, shape.n_kv_heads), TURBO_OK);
    codec->decode_row(codec.self(), &shape, 1, block, row % 64, back.data());
    for (uint64_t i = 0; i < width; ++i) {
      const double x = static_cast<double>(rows[row * width + i]), d = static_cast<double>(back[i]) - x;
      error += d * d;
      norm += x * x;
    }
  }
  return error / norm;
}

// Published figures of unit Gaussian vectors of 128; those of fp8_e5m2 and q4 are our own measurement.
TEST(KvNarrow, ErrorOnGaussianVectorsIsThePublishedOne) {
  const std::vector<float> rows = gaussian(4096 * 4 * 128, 11);
  const auto expect = [&](const Variant& variant, double want) {
    for (const uint32_t side : {TURBO_KV_SIDE_K, TURBO_KV_SIDE_V}) {
      Codec codec(variant);
      const auto shape = shape_of(side, 4, 128);
      Block block(codec, shape, 0);
      const double mse = relative_mse(codec, shape, block.base, rows);
      EXPECT_NEAR(mse, want, want * 0.03) << variant.text();
      EXPECT_LE(std::sqrt(mse), static_cast<double>(block.layout.error_bound)) << variant.text();
    }
  };
  expect({"f16", {}}, 4.317e-8);
  expect({"bf16", {}}, 2.758e-6);
  expect({"fp8_e4m3", {}}, 7.043e-4);
  expect({"q8", {}}, 2.854e-5);
  expect({"q8", {{"rotate", "hadamard"}}}, 2.854e-5);
  expect({"fp8_e5m2", {}}, 2.80e-3);
  expect({"q4", {}}, 7.38e-3);
  expect({"q4", {{"rotate", "none"}}}, 7.38e-3);
}

// Two channels of twenty times the size: what the rotation is for.
TEST(KvNarrow, RotationTamesOutlierChannels) {
  std::vector<float> rows = gaussian(512 * 128, 12);
  for (size_t i = 0; i < rows.size(); ++i)
    if (i % 128 == 3 || i % 128 == 70) rows[i] *= 20;
  const auto error_of_rest = [&](const Variant& variant) {
    Codec codec(variant);
    const auto shape = shape_of(TURBO_KV_SIDE_K, 1, 128);
    Block block(codec, shape, 0);
    return relative_mse(codec, shape, block.base, rows);
  };
  const double rotated = error_of_rest({"q4", {}}), plain = error_of_rest({"q4", {{"rotate", "none"}}});
  std::printf("q4 with outlier channels: %.5f rotated, %.5f not\n", rotated, plain);
  EXPECT_LT(rotated, 0.009);
}

// The worst rows for blocks and for floats stay within what the layout states.
TEST(KvNarrow, ErrorOfHardVectorsStaysWithinTheStatedBound) {
  for (const Variant& variant : all_variants()) {
    Codec codec(variant);
    const auto shape = shape_of(TURBO_KV_SIDE_K, 1, 64);
    Block block(codec, shape, 0);
    std::mt19937 random(9);
    std::vector<float> x(64), back(64);
    for (uint32_t round = 0; round < 2000; ++round) {
      const int kind = static_cast<int>(random() % 4);
      double norm = 0;
      for (uint32_t e = 0; e < 64; ++e) {
        const float u = static_cast<float>(random() % 2001) / 1000 - 1;
        x[e] = kind == 0 ? u * u * u * u * u : kind == 1 ? (e == round % 64 ? 1 : 1 / 16.1f) : kind == 2 ? (random() % 2 ? 1 : -1) : u * std::exp(-u * 8);
        norm += static_cast<double>(x[e]) * static_cast<double>(x[e]);
      }
      double error = 0;
      for (float& value : x) value = static_cast<float>(static_cast<double>(value) / std::sqrt(norm));
      ASSERT_EQ(codec->append(codec.self(), &shape, block.base, 0, x.data(), 0, 1), TURBO_OK);
      codec->decode_row(codec.self(), &shape, 1, block.base, 0, back.data());
      for (uint32_t e = 0; e < 64; ++e) error += std::pow(static_cast<double>(back[e]) - static_cast<double>(x[e]), 2);
      ASSERT_LE(std::sqrt(error), static_cast<double>(block.layout.error_bound) + 1e-6) << variant.text() << " kind " << kind;
    }
  }
}

TEST(KvNarrow, StoredBytesAreTheSameOnEveryIsa) {
  for (const Variant& variant : kNarrow)
    for (const uint32_t side : {TURBO_KV_SIDE_K, TURBO_KV_SIDE_V})
      for (const uint32_t dim : {64u, 80u, 96u, 128u, 160u, 192u, 256u}) {
        std::vector<float> rows = gaussian(64 * 2 * dim, dim);
        for (size_t i = 0; i < rows.size(); i += 97) rows[i] *= 1e4f;
        std::vector<uint8_t> first;
        for (const std::string& isa : usable_isas(library().component(variant.name))) {
          Codec codec(variant, isa);
          const auto shape = shape_of(side, 2, dim);
          Block block(codec, shape, 0);
          fill(codec, shape, block.base, rows);
          const std::vector<uint8_t> bytes(block.base, block.base + block.layout.packed_block_bytes);
          if (first.empty()) first = bytes;
          ASSERT_EQ(bytes, first) << variant.text() << " " << isa << " dim " << dim;
        }
      }
}

// Scores and weighted sums are those of the decoded rows; where the query itself is rounded to int8, within that.
TEST(KvNarrow, AttentionIsThatOfTheDecodedRows) {
  for (const Variant& variant : kNarrow)
    for (const uint32_t dim : {64u, 80u, 96u, 128u, 256u}) {
      Codec codec(variant);
      const auto k = shape_of(TURBO_KV_SIDE_K, 2, dim), v = shape_of(TURBO_KV_SIDE_V, 2, dim);
      Block keys(codec, k, 0), values(codec, v, 0);
      const std::vector<float> rows = gaussian(64 * 2 * dim, dim + 1), query = gaussian(dim, 2), weights = gaussian(64, 3);
      fill(codec, k, keys.base, rows);
      fill(codec, v, values.base, rows);
      std::vector<float> prepared(keys.layout.query_floats), scores(64), sum(values.layout.query_floats), out(dim), row(2 * dim);
      codec->prepare_query(codec.self(), &k, 1, query.data(), prepared.data());
      turbo_kv_run run{sizeof(turbo_kv_run), 1, keys.base, 0, 64, 1, 1, nullptr};
      codec->qk_scores(codec.self(), &k, &run, prepared.data(), prepared.size(), scores.data(), 64);
      run.block = values.base;
      codec->pv_accumulate(codec.self(), &v, &run, weights.data(), 64, sum.data(), sum.size());
      codec->finish_output(codec.self(), &v, 1, sum.data(), out.data());
      std::vector<double> want(dim, 0.0);
      const double scale = static_cast<double>(dim), tolerance = variant.name[0] == 'q' ? 0.004 : 1e-6;
      for (uint32_t i = 0; i < 64; ++i) {
        double score = 0;
        codec->decode_row(codec.self(), &k, 1, keys.base, i, row.data());
        for (uint32_t e = 0; e < dim; ++e) score += static_cast<double>(query[e]) * static_cast<double>(row[dim + e]);
        ASSERT_NEAR(static_cast<double>(scores[i]), score, tolerance * scale) << variant.text() << " dim " << dim;
        codec->decode_row(codec.self(), &v, 1, values.base, i, row.data());
        for (uint32_t e = 0; e < dim; ++e) want[e] += static_cast<double>(weights[i]) * static_cast<double>(row[dim + e]);
      }
      for (uint32_t e = 0; e < dim; ++e) ASSERT_NEAR(static_cast<double>(out[e]), want[e], 2e-4) << variant.text() << " dim " << dim;
    }
}

// Rows around a large common vector: stored without it they keep the precision of what varies; scores lack one constant.
TEST(KvNarrow, CentersAreTakenFromKeysAndGivenBackOnDecode) {
  const uint32_t dim = 64, heads = 2;
  std::vector<float> center = gaussian(heads * dim, 21), varying = gaussian(64 * heads * dim, 22), rows = varying;
  for (float& x : center) x *= 50;
  for (size_t i = 0; i < rows.size(); ++i) rows[i] += center[i % (heads * dim)];
  for (const Variant& variant : all_variants()) {
    Codec codec(variant), plain(variant);
    turbo_kv_shape shape = shape_of(TURBO_KV_SIDE_K, heads, dim);
    shape.layer = 3;
    shape.n_layers = 5;
    turbo_error error{sizeof(turbo_error)};
    Block block(codec, shape, 0), bare(plain, shape, 0);
    ASSERT_EQ(codec->set_center(codec.self(), &shape, center.data(), &error), TURBO_OK) << error.message;
    fill(codec, shape, block.base, rows);
    fill(plain, shape, bare.base, varying);
    std::vector<float> back(heads * dim), alone(heads * dim);
    double squares = 0;
    for (uint32_t row = 0; row < 64; ++row) {
      codec->decode_row(codec.self(), &shape, 1, block.base, row, back.data());
      plain->decode_row(plain.self(), &shape, 1, bare.base, row, alone.data());
      for (uint32_t i = 0; i < heads * dim; ++i) {
        squares += std::pow(static_cast<double>(back[i]) - static_cast<double>(rows[row * heads * dim + i]), 2);
        if (variant.name == "f16") {
          ASSERT_NEAR(back[i] - center[i], alone[i], 2e-3f);
        }
      }
    }
    const double rms = std::sqrt(squares / static_cast<double>(rows.size()));
    EXPECT_LT(rms, static_cast<double>(block.layout.error_bound) * 1.3 + 2e-5) << variant.text();
    // Another layer, and values, are as they were.
    turbo_kv_shape layer = shape, values = shape;
    layer.layer = 2;
    values.side = TURBO_KV_SIDE_V;
    for (const turbo_kv_shape& other : {layer, values}) {
      Block untouched(codec, other, 0), expected(plain, other, 0);
      fill(codec, other, untouched.base, varying);
      fill(plain, other, expected.base, varying);
      EXPECT_EQ(std::memcmp(untouched.base, expected.base, untouched.layout.packed_block_bytes), 0) << variant.text();
    }
    std::vector<float> broken = center;
    broken[5] = INFINITY;
    EXPECT_EQ(codec->set_center(codec.self(), &shape, broken.data(), &error), TURBO_CORRUPT_INPUT);
    shape.side = TURBO_KV_SIDE_V;
    EXPECT_EQ(codec->set_center(codec.self(), &shape, center.data(), &error), TURBO_INVALID_ARGUMENT);
  }
}

TEST(KvNarrow, AWholeNumberedCenterShiftsScoresByOneConstant) {
  const uint32_t dim = 64;
  std::vector<float> center(dim), rows(64 * dim), query = gaussian(dim, 31);
  for (uint32_t e = 0; e < dim; ++e) center[e] = static_cast<float>(e % 7);
  std::mt19937 random(5);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(static_cast<int>(random() % 9) - 4);
  for (const char* name : {"f32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2"}) {
    Codec codec({name, {}}), plain({name, {}});
    const auto shape = shape_of(TURBO_KV_SIDE_K, 1, dim);
    Block block(codec, shape, 0), bare(plain, shape, 0);
    turbo_error error{sizeof(turbo_error)};
    ASSERT_EQ(codec->set_center(codec.self(), &shape, center.data(), &error), TURBO_OK);
    std::vector<float> shifted = rows;
    for (size_t i = 0; i < rows.size(); ++i) shifted[i] += center[i % dim];
    fill(codec, shape, block.base, shifted);
    fill(plain, shape, bare.base, rows);
    EXPECT_EQ(std::memcmp(block.base, bare.base, block.layout.packed_block_bytes), 0) << name;
  }
}

TEST(KvNarrow, WhatIsNotFiniteIsRefusedAndNothingOfItsHeadWritten) {
  for (const Variant& variant : kNarrow)
    for (const uint32_t side : {TURBO_KV_SIDE_K, TURBO_KV_SIDE_V})
      for (const float bad : {std::nanf(""), INFINITY, -INFINITY})
        for (const uint32_t at : {0u, 37u, 79u}) {
          Codec codec(variant);
          const auto shape = shape_of(side, 1, 80);
          Block block(codec, shape, 0x11);
          std::vector<float> src(80, 1.0f);
          src[at] = bad;
          const auto before = block.raw;
          EXPECT_EQ(codec->append(codec.self(), &shape, block.base, 7, src.data(), 0, 1), TURBO_CORRUPT_INPUT) << variant.text();
          EXPECT_EQ(block.raw, before) << variant.text();
        }
}

TEST(KvNarrow, HugeTinyAndEmptyRowsDecodeToFiniteNumbers) {
  for (const Variant& variant : kNarrow)
    for (const uint32_t side : {TURBO_KV_SIDE_K, TURBO_KV_SIDE_V}) {
      Codec codec(variant);
      const auto shape = shape_of(side, 1, 96);
      Block block(codec, shape, 0xff);
      std::vector<float> back(96), x(96);
      for (const float size : {3.4e38f, 1e30f, 1e9f, 1e-6f, 1e-20f, 1e-41f, 0.0f}) {
        for (uint32_t e = 0; e < 96; ++e) x[e] = e % 3 ? size : -size;
        ASSERT_EQ(codec->append(codec.self(), &shape, block.base, 1, x.data(), 0, 1), TURBO_OK);
        codec->decode_row(codec.self(), &shape, 1, block.base, 1, back.data());
        for (uint32_t e = 0; e < 96; ++e) {
          ASSERT_TRUE(std::isfinite(back[e])) << variant.text() << " " << size;
          ASSERT_LE(std::fabs(back[e]), std::fmax(size * 2, 1e-5f)) << variant.text() << " " << size;
          if (size == 0.0f) {
            ASSERT_EQ(back[e], 0.0f) << variant.text();
          }
        }
      }
    }
}

TEST(KvNarrow, MovedRowsReadTheSameAndTheOthersStay) {
  for (const Variant& variant : all_variants())
    for (const uint32_t side : {TURBO_KV_SIDE_K, TURBO_KV_SIDE_V})
      for (const uint32_t dim : {64u, 80u}) {
        Codec codec(variant);
        const auto shape = shape_of(side, 2, dim);
        Block a(codec, shape, 0), b(codec, shape, 0);
        const std::vector<float> rows = gaussian(64 * 2 * dim, 41);
        fill(codec, shape, a.base, rows);
        std::vector<float> before(64 * 2 * dim), after(2 * dim);
        for (uint32_t r = 0; r < 64; ++r) codec->decode_row(codec.self(), &shape, 1, a.base, r, &before[r * 2 * dim]);
        codec->move_row(codec.self(), &shape, a.base, 63, a.base, 20);
        codec->move_row(codec.self(), &shape, a.base, 5, b.base, 40);
        for (uint32_t r = 0; r < 64; ++r) {
          codec->decode_row(codec.self(), &shape, 1, a.base, r, after.data());
          ASSERT_TRUE(same_bits(after.data(), &before[(r == 20 ? 63 : r) * 2 * dim], 2 * dim)) << variant.text() << " row " << r;
        }
        codec->decode_row(codec.self(), &shape, 1, b.base, 40, after.data());
        ASSERT_TRUE(same_bits(after.data(), &before[5 * 2 * dim], 2 * dim)) << variant.text();
      }
}

TEST(KvNarrow, BytesOfABlockAreTheFormula) {
  for (const uint32_t dim : {64u, 80u, 96u, 128u, 160u, 192u, 256u, 512u})
    for (const auto& [variant, row_bytes] : std::vector<std::pair<Variant, uint32_t>>{
             {{"fp8_e4m3", {}}, dim},
             {{"fp8_e5m2", {}}, dim},
             {{"fp8_e4m3", {{"scale", "head"}}}, dim + 2},
             {{"q8", {}}, dim + (dim + 31) / 32 * 2},
             {{"q4", {}}, dim / 2 + (dim + 31) / 32 * 2}})
      for (const uint32_t side : {TURBO_KV_SIDE_K, TURBO_KV_SIDE_V}) {
        Codec codec(variant);
        Block block(codec, shape_of(side, 8, dim), 0);
        EXPECT_EQ(block.layout.packed_block_bytes, uint64_t{64} * 8 * row_bytes) << variant.text() << " dim " << dim;
        EXPECT_FLOAT_EQ(block.layout.bits_per_element, static_cast<float>(row_bytes * 8) / static_cast<float>(dim));
        EXPECT_EQ(block.layout.flags, TURBO_KV_OPEN_IS_PACKED);
        EXPECT_EQ(block.layout.open_block_bytes, 0u);
        EXPECT_EQ(block.layout.sinks, 0u);
        EXPECT_EQ(block.layout.truncate_granularity, 1u);
        EXPECT_GE(block.layout.query_floats, dim);
      }
}

TEST(KvNarrow, OptionsThatDoNotExistAreRefusedWithTheKnownOnes) {
  for (const auto& [variant, known] : std::vector<std::pair<Variant, std::string>>{
           {{"fp8_e4m3", {{"scale", "row"}}}, "none, head"},
           {{"fp8_e5m2", {{"rotate", "yes"}}}, "none, hadamard"},
           {{"q8", {{"rotate", "givens"}}}, "none, hadamard"},
           {{"q4", {{"rotate", ""}}}, "hadamard, none"}}) {
    OptionHost host(variant.options);
    CodecInstance codec(library().component(variant.name), TURBO_KV_CODEC_DRAFT, host.host());
    EXPECT_EQ(codec.status(), TURBO_INVALID_ARGUMENT) << variant.text();
    EXPECT_NE(codec.message().find(known), std::string::npos) << codec.message();
  }
}

TEST(KvNarrow, FingerprintsTellModesAndOptionsApart) {
  std::vector<uint64_t> seen;
  std::vector<Variant> variants = all_variants();
  variants.push_back({"fp8_e5m2", {{"scale", "head"}}});
  variants.push_back({"fp8_e4m3", {{"scale", "head"}, {"rotate", "hadamard"}}});
  for (const Variant& variant : variants) {
    Codec codec(variant);
    const uint64_t print = codec->fingerprint(codec.self());
    EXPECT_EQ(std::count(seen.begin(), seen.end(), print), 0) << variant.text();
    seen.push_back(print);
  }
}

}  // namespace
}  // namespace turbo::test
