// The components of both plugins through the ABI: forms and their bytes, centers, moved rows, vectors at the edges,
// options, and attention with shared heads.
#include "support.h"

#include "loader/options.h"

#include <turbo/kernel/lanes.h>

#include <limits>

namespace turbo::test {
namespace {

void append_all(const Codec& codec, const turbo_kv_shape& shape, uint8_t* open, const std::vector<float>& rows) {
  const uint64_t width = uint64_t{shape.n_kv_heads} * shape.head_dim;
  for (uint32_t r = 0; r < 64; ++r) ASSERT_EQ(codec->append(codec.self(), &shape, open, r, &rows[r * width], 0, shape.n_kv_heads), TURBO_OK);
}

float stored_half(float x) { return turbo_f16_to_f32(turbo_f32_to_f16(std::fmin(std::fmax(x, -65504.0f), 65504.0f))); }

TEST(Codec, LayoutsEqualTheFormula) {
  for (const Mode& mode : modes())
    for (const auto& [options, scales, scale_bytes] :
         {std::tuple{OptionMap{}, 1u, 2u}, std::tuple{OptionMap{{"scale", std::string("f32")}}, 1u, 4u}, std::tuple{OptionMap{{"group", int64_t{32}}}, 32u, 2u}}) {
      const Codec codec(mode.name, options);
      ASSERT_TRUE(codec.instance.ok()) << codec.instance.message();
      for (uint32_t d = 64; d <= 256; d += 16)
        for (const uint32_t side : {0u, 1u}) {
          if (hadamard_shape(d).seed == 0 && mode.bits > 2) continue;  // dense tables take their time
          const turbo_kv_shape shape = shape_of(side, 3, d);
          turbo_kv_layout layout{sizeof(turbo_kv_layout)};
          ASSERT_EQ(codec->layout(codec.self(), &shape, &layout, nullptr), TURBO_OK);
          const uint64_t pitch = ((d * mode.bits + 7) / 8 + 3) / 4 * 4, per_row = scales == 1 ? 1 : (d + 31) / 32;
          EXPECT_EQ(layout.packed_block_bytes, 3 * (64 * pitch + 64 * per_row * scale_bytes));
          EXPECT_EQ(layout.open_block_bytes, 3u * 64 * d * 2);
          EXPECT_EQ(layout.flags, 0u);
          EXPECT_EQ(layout.alignment, 64u);
          EXPECT_EQ(layout.sinks, 4u);
          EXPECT_EQ(layout.truncate_granularity, 1u);
          EXPECT_GE(layout.query_floats, d);
          EXPECT_FLOAT_EQ(layout.bits_per_element, static_cast<float>(pitch + per_row * scale_bytes) * 8 / static_cast<float>(d));
        }
    }
  const Codec codec("tq3", {{"sinks", int64_t{0}}});
  const turbo_kv_shape shape = shape_of(0, 1, 128);
  turbo_kv_layout layout{sizeof(turbo_kv_layout)};
  ASSERT_EQ(codec->layout(codec.self(), &shape, &layout, nullptr), TURBO_OK);
  EXPECT_EQ(layout.sinks, 0u);
  EXPECT_FLOAT_EQ(layout.bits_per_element, 3.125f);
}

TEST(Codec, ImpossibleShapesAreRefused) {
  const Codec codec("rq4_iso");
  turbo_kv_layout layout{sizeof(turbo_kv_layout)};
  turbo_error error{sizeof(turbo_error)};
  for (const auto& [heads, d] : {std::pair{1u, 8u}, std::pair{1u, 72u}, std::pair{1u, 528u}, std::pair{1u, 0xfffffff0u}, std::pair{0xffffffffu, 64u}}) {
    const turbo_kv_shape shape = shape_of(0, heads, d);
    EXPECT_EQ(codec->layout(codec.self(), &shape, &layout, &error), TURBO_UNSUPPORTED) << heads << " " << d;
  }
  EXPECT_NE(std::string(error.message).find("rq4_iso"), std::string::npos);
}

TEST(Codec, CallsBeforeLayoutAreRefused) {
  const Codec codec("tq4");
  const turbo_kv_shape shape = shape_of(0, 1, 64);
  std::vector<uint8_t> open(64 * 128), packed(64 * 34);
  const std::vector<float> row(64, 1.0f);
  EXPECT_EQ(codec->append(codec.self(), &shape, open.data(), 0, row.data(), 0, 1), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(codec->pack(codec.self(), &shape, open.data(), packed.data()), TURBO_INVALID_ARGUMENT);
}

TEST(Codec, OpenRowsAreHalvesAndPackedRowsAreTheirCodes) {
  for (const Mode& mode : modes())
    for (const std::string& isa : usable_isas(library_of(mode.name).component(mode.name)))
      for (const uint32_t d : {64u, 80u, 128u}) {
        const Codec codec(mode.name, {}, isa);
        const turbo_kv_shape shape = shape_of(TURBO_KV_SIDE_V, 2, d);
        Blocks block(codec, shape);
        std::vector<float> rows = normals(d, 64 * 2 * d), back(2 * d);
        rows[3] = 1e30f;
        rows[2 * d] = -7e4f;
        append_all(codec, shape, block.open, rows);
        ASSERT_EQ(codec->pack(codec.self(), &shape, block.open, block.packed), TURBO_OK);
        block.expect_guards();
        const SchemeTables tables(mode, {}, TURBO_KV_SIDE_V, d);
        const Page& page = tables.scheme().page;
        for (uint32_t r = 0; r < 64; ++r) {
          codec->decode_row(codec.self(), &shape, TURBO_KV_FORM_OPEN, block.open, r, back.data());
          for (uint32_t i = 0; i < 2 * d; ++i) ASSERT_EQ(back[i], stored_half(rows[r * 2 * d + i])) << mode.name << " " << isa;
          const std::vector<float> halves = back;
          codec->decode_row(codec.self(), &shape, TURBO_KV_FORM_PACKED, block.packed, r, back.data());
          for (uint32_t head = 0; head < 2; ++head) {
            Row row(tables.scheme());
            ASSERT_NE(row.encode(scalar_kernels(), &halves[head * d]), kNotFinite);
            ASSERT_EQ(std::memcmp(row.codes(), block.packed + head * page.bytes + code_offset(page, r), page.code_bytes), 0) << mode.name << " " << isa;
            ASSERT_TRUE(same_bits(row.decode(scalar_kernels()).data(), &back[head * d], d));
          }
        }
      }
}

TEST(Codec, DecodeStaysWithinTheStatedBound) {
  for (const Mode& mode : modes()) {
    const Codec codec(mode.name);
    const turbo_kv_shape shape = shape_of(0, 1, 64);
    Blocks block(codec, shape);
    const std::vector<float> rows = normals(9, 64 * 64);
    append_all(codec, shape, block.open, rows);
    ASSERT_EQ(codec->pack(codec.self(), &shape, block.open, block.packed), TURBO_OK);
    for (uint32_t r = 0; r < 64; ++r) {
      std::vector<float> back(64);
      codec->decode_row(codec.self(), &shape, TURBO_KV_FORM_PACKED, block.packed, r, back.data());
      double error = 0, square = 0;
      for (uint32_t i = 0; i < 64; ++i) error += std::pow(back[i] - rows[r * 64 + i], 2), square += std::pow(rows[r * 64 + i], 2);
      EXPECT_LE(std::sqrt(error / square), block.layout.error_bound) << mode.name;
    }
  }
}

TEST(Codec, WhatIsNotFiniteIsRefusedOnAppendAndOnPack) {
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    const Codec codec("rq3_planar");
    const turbo_kv_shape shape = shape_of(0, 1, 80);
    Blocks block(codec, shape, 0);
    std::vector<float> row(80, 1.0f);
    row[79] = bad;
    const auto before = block.open_raw;
    EXPECT_EQ(codec->append(codec.self(), &shape, block.open, 5, row.data(), 0, 1), TURBO_CORRUPT_INPUT);
    EXPECT_EQ(block.open_raw, before);
    const uint16_t half = turbo_f32_to_f16(bad);
    std::memcpy(block.open + (63 * 80 + 79) * 2, &half, 2);  // memory that went bad
    EXPECT_EQ(codec->pack(codec.self(), &shape, block.open, block.packed), TURBO_CORRUPT_INPUT);
  }
}

TEST(Codec, ZeroTinyAndHugeRows) {
  double saturated = 0;
  for (const Mode& mode : modes()) {
    const Codec codec(mode.name);
    const turbo_kv_shape shape = shape_of(0, 1, 128);
    Blocks block(codec, shape);
    std::vector<float> rows(64 * 128, 0.0f), back(128);
    rows[1 * 128 + 5] = 1e-7f;                                      // row 1: one subnormal half
    rows[2 * 128 + 5] = 1e-9f;                                      // row 2: rounds to zero
    const std::vector<float> huge = normals(4, 128, 1e36f);
    std::copy(huge.begin(), huge.end(), &rows[3 * 128]);            // row 3: far beyond the largest half
    std::fill(&rows[4 * 128], &rows[5 * 128], 1.0f);                // row 4: a vector like any
    append_all(codec, shape, block.open, rows);
    ASSERT_EQ(codec->pack(codec.self(), &shape, block.open, block.packed), TURBO_OK);
    const auto decoded = [&](uint32_t r) {
      codec->decode_row(codec.self(), &shape, TURBO_KV_FORM_PACKED, block.packed, r, back.data());
      return back;
    };
    for (const float x : decoded(0)) EXPECT_EQ(x, 0.0f);
    double size = 0;
    for (const float x : decoded(1)) size += std::fabs(x);
    EXPECT_GT(size, 0.0) << mode.name;
    for (const float x : decoded(2)) EXPECT_EQ(x, 0.0f);
    for (const float x : decoded(3)) EXPECT_TRUE(std::isfinite(x));
    EXPECT_NEAR(decoded(4)[7], 1.0f, 1.0f) << mode.name;
    Options wide;
    wide.wide_scale = true;
    const SchemeTables tables(mode, wide, 0, 128);
    Row row(tables.scheme());
    codec->decode_row(codec.self(), &shape, TURBO_KV_FORM_OPEN, block.open, 3, back.data());
    row.encode(scalar_kernels(), back.data());
    const double beyond = row.scale() >= 65520.0;  // the one row whose scale is near the end of the halves
    EXPECT_EQ(codec.host.counter("kv_scale_saturations"), beyond) << mode.name;
    saturated += beyond;
  }
  EXPECT_GE(saturated, 1.0);
}

TEST(Codec, MovedRowsReadTheSame) {
  const Codec codec("tq3");
  const turbo_kv_shape shape = shape_of(0, 2, 80);
  Blocks a(codec, shape), b(codec, shape);
  const std::vector<float> row = normals(2, 160);
  std::vector<float> first(160), second(160);
  ASSERT_EQ(codec->append(codec.self(), &shape, a.open, 63, row.data(), 0, 2), TURBO_OK);
  codec->move_row(codec.self(), &shape, a.open, 63, b.open, 0);
  codec->decode_row(codec.self(), &shape, TURBO_KV_FORM_OPEN, a.open, 63, first.data());
  codec->decode_row(codec.self(), &shape, TURBO_KV_FORM_OPEN, b.open, 0, second.data());
  EXPECT_EQ(first, second);
  a.expect_guards();
  b.expect_guards();
}

// One run of attention through the ABI: softmax in double over both forms' scores.
std::vector<double> scores_of(const Codec& codec, const turbo_kv_shape& shape, const Blocks& block, uint32_t form, uint32_t head, const float* query) {
  std::vector<float> prepared(block.layout.query_floats), scores(64);
  codec->prepare_query(codec.self(), &shape, form, query, prepared.data());
  const turbo_kv_run run{sizeof(turbo_kv_run), form, form == TURBO_KV_FORM_OPEN ? block.open : block.packed, 0, 64, head, 1, nullptr};
  codec->qk_scores(codec.self(), &shape, &run, prepared.data(), block.layout.query_floats, scores.data(), 64);
  return {scores.begin(), scores.end()};
}

TEST(Codec, CentersComeOffKeysAndShiftScoresAlike) {
  const uint32_t d = 128;
  for (const char* name : {"tq4", "rq4_planar"}) {
    Codec codec(name);
    const turbo_kv_shape keys = shape_of(TURBO_KV_SIDE_K, 2, d, 3), other_layer = shape_of(TURBO_KV_SIDE_K, 2, d, 1), values = shape_of(TURBO_KV_SIDE_V, 2, d, 3);
    Blocks plain(codec, other_layer), centered(codec, keys), v_block(codec, values);
    std::vector<float> center = normals(1, 2 * d, 20.0f), rows = normals(2, 64 * 2 * d), back(2 * d);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] += center[i % (2 * d)];
    turbo_error error{sizeof(turbo_error)};
    ASSERT_NE(codec->set_center, nullptr);
    ASSERT_EQ(codec->set_center(codec.self(), &keys, center.data(), &error), TURBO_OK) << error.message;
    EXPECT_EQ(codec->set_center(codec.self(), &values, center.data(), &error), TURBO_INVALID_ARGUMENT);
    append_all(codec, keys, centered.open, rows);
    append_all(codec, other_layer, plain.open, rows);
    append_all(codec, values, v_block.open, rows);
    ASSERT_EQ(codec->pack(codec.self(), &keys, centered.open, centered.packed), TURBO_OK);
    ASSERT_EQ(codec->pack(codec.self(), &other_layer, plain.open, plain.packed), TURBO_OK);
    for (const uint32_t form : {TURBO_KV_FORM_OPEN, TURBO_KV_FORM_PACKED}) {
      codec->decode_row(codec.self(), &keys, form, form == TURBO_KV_FORM_OPEN ? centered.open : centered.packed, 9, back.data());
      for (uint32_t i = 0; i < 2 * d; ++i) EXPECT_NEAR(back[i], rows[9 * 2 * d + i], form == TURBO_KV_FORM_OPEN ? 2e-3 : 0.5);
    }
    codec->decode_row(codec.self(), &values, TURBO_KV_FORM_OPEN, v_block.open, 9, back.data());
    for (uint32_t i = 0; i < 2 * d; ++i) EXPECT_EQ(back[i], stored_half(rows[9 * 2 * d + i]));
    const std::vector<float> query = normals(3, d);
    const std::vector<double> with = scores_of(codec, keys, centered, TURBO_KV_FORM_OPEN, 1, query.data()),
                              without = scores_of(codec, other_layer, plain, TURBO_KV_FORM_OPEN, 1, query.data());
    double shift = 0;
    for (uint32_t i = 0; i < d; ++i) shift += static_cast<double>(query[i]) * static_cast<double>(center[d + i]);
    for (uint32_t r = 0; r < 64; ++r) EXPECT_NEAR(without[r] - with[r], shift, 0.2);
    turbo_kv_shape narrower = keys;  // another shape than the centers are for
    narrower.n_kv_heads = 1;
    EXPECT_EQ(codec->append(codec.self(), &narrower, centered.open, 0, rows.data(), 0, 1), TURBO_INVALID_ARGUMENT);
    center[5] = INFINITY;
    EXPECT_EQ(codec->set_center(codec.self(), &keys, center.data(), &error), TURBO_INVALID_ARGUMENT);
  }
}

// Keys with a constant in front of the rotary embedding, as a bias of the projection gives. It lies in the planes that
// turn slowly, so most of it is in the mean, and swamps the codes unless that is taken off.
TEST(Codec, CentersRescueBiasedKeys) {
  const uint32_t d = 128, n_blocks = 8;
  for (const auto& [name, limit] : {std::pair{"tq3", 0.15}, std::pair{"rq3_iso", 0.15}, std::pair{"tq4", 0.05}}) {
    const std::vector<float> noise = normals(21, n_blocks * 64 * d), raw = normals(22, d), queries = normals(23, 8 * d);
    std::vector<double> keys(noise.size());
    double square = 0;
    for (uint32_t i = d / 4; i < d / 2; ++i) square += std::pow(raw[i], 2) + std::pow(raw[i + d / 2], 2);
    for (uint32_t p = 0; p < n_blocks * 64; ++p)
      for (uint32_t i = 0; i < d / 2; ++i) {
        const double angle = p * std::pow(1e6, -2.0 * i / d), c = std::cos(angle), s = std::sin(angle);
        const double size = i < d / 4 ? 0 : 200 / std::sqrt(square);
        const double a = noise[p * d + i] + raw[i] * size, b = noise[p * d + i + d / 2] + raw[i + d / 2] * size;
        keys[p * d + i] = c * a - s * b;
        keys[p * d + i + d / 2] = s * a + c * b;
      }
    std::vector<float> rows(keys.begin(), keys.end()), mean(d, 0.0f);
    for (size_t i = 0; i < keys.size(); ++i) mean[i % d] += static_cast<float>(keys[i] / (n_blocks * 64));
    double kl[2] = {0, 0};
    for (const bool centers : {false, true}) {
      Codec codec(name);
      const turbo_kv_shape shape = shape_of(TURBO_KV_SIDE_K, 1, d);
      std::vector<std::unique_ptr<Blocks>> blocks;
      for (uint32_t b = 0; b < n_blocks; ++b) {
        blocks.push_back(std::make_unique<Blocks>(codec, shape));
        if (centers) {
          ASSERT_EQ(codec->set_center(codec.self(), &shape, mean.data(), nullptr), TURBO_OK);
        }
        append_all(codec, shape, blocks[b]->open, std::vector<float>(rows.begin() + b * 64 * d, rows.begin() + (b + 1) * 64 * d));
        ASSERT_EQ(codec->pack(codec.self(), &shape, blocks[b]->open, blocks[b]->packed), TURBO_OK);
      }
      for (uint32_t q = 0; q < 8; ++q) {
        std::vector<double> p, packed;
        for (uint32_t r = 0; r < n_blocks * 64; ++r) {
          double dot = 0;
          for (uint32_t i = 0; i < d; ++i) dot += static_cast<double>(queries[q * d + i]) * keys[r * d + i];
          p.push_back(dot / std::sqrt(d));
        }
        for (const auto& block : blocks)
          for (const double s : scores_of(codec, shape, *block, TURBO_KV_FORM_PACKED, 0, &queries[q * d])) packed.push_back(s / std::sqrt(d));
        for (std::vector<double>* list : {&p, &packed}) {
          double top = -INFINITY, sum = 0;
          for (const double s : *list) top = std::max(top, s);
          for (double& s : *list) sum += s = std::exp(s - top);
          for (double& s : *list) s /= sum;
        }
        for (size_t i = 0; i < p.size(); ++i) kl[centers] += p[i] > 0 ? p[i] * std::log(p[i] / std::max(packed[i], 1e-300)) / 8 : 0;
      }
    }
    EXPECT_LT(kl[1], limit) << name << ": without centers " << kl[0];
    EXPECT_GT(kl[0], 3 * kl[1]) << name << ": with centers " << kl[1];
  }
}

// Heads of a group and rows of a draft share a run; what each gets does not depend on its company. Both forms.
TEST(Codec, QueriesOfOneRunDoNotTouchEachOther) {
  for (const char* name : {"tq2", "tq3", "rq4_planar"})
    for (const std::string& isa : usable_isas(library_of(name).component(name)))
      for (const uint32_t d : {64u, 80u, 128u}) {
        const Codec codec(name, {}, isa);
        const turbo_kv_shape shape = shape_of(TURBO_KV_SIDE_K, 2, d);
        Blocks block(codec, shape);
        append_all(codec, shape, block.open, normals(d, 64 * 2 * d));
        ASSERT_EQ(codec->pack(codec.self(), &shape, block.open, block.packed), TURBO_OK);
        const uint32_t qf = block.layout.query_floats, most = 16;
        const std::vector<float> query = normals(d + 1, most * d), weights = normals(d + 2, most * 64);
        for (const uint32_t form : {TURBO_KV_FORM_OPEN, TURBO_KV_FORM_PACKED}) {
          std::vector<float> prepared(most * qf);
          for (uint32_t q = 0; q < most; ++q) codec->prepare_query(codec.self(), &shape, form, &query[q * d], &prepared[q * qf]);
          const auto attend = [&](uint32_t q, uint32_t n_queries, float* scores, float* out) {
            const turbo_kv_run run{sizeof(turbo_kv_run), form, form == TURBO_KV_FORM_OPEN ? block.open : block.packed, 3, 58, 1, n_queries, nullptr};
            codec->qk_scores(codec.self(), &shape, &run, &prepared[q * qf], qf, scores, 64);
            codec->pv_accumulate(codec.self(), &shape, &run, &weights[q * 64], 64, out, qf);
          };
          std::vector<float> scores(most * 64, -1.0f), out(most * qf, 0.0f);
          for (uint32_t q = 0; q < most; ++q) attend(q, 1, &scores[q * 64], &out[q * qf]);
          for (const uint32_t ratio : {2u, 3u, 7u, 8u, 16u}) {
            std::vector<float> shared(most * 64, -1.0f), shared_out(most * qf, 0.0f);
            attend(0, ratio, shared.data(), shared_out.data());
            ASSERT_TRUE(same_bits(shared.data(), scores.data(), ratio * 64)) << name << " " << isa << " d " << d << " ratio " << ratio;
            ASSERT_TRUE(same_bits(shared_out.data(), out.data(), ratio * qf)) << name << " " << isa << " d " << d << " ratio " << ratio;
          }
        }
      }
}

// A page is read by the run that is asked for: rows before and behind it may hold anything, in both forms. So may rows of a
// closed block that a sequence cut back to its middle does not have.
TEST(Codec, RowsOutsideTheRunMayHoldAnything) {
  for (const Mode& mode : modes())
    for (const std::string& isa : usable_isas(library_of(mode.name).component(mode.name)))
      for (const uint32_t d : {64u, 80u, 128u})
        for (const OptionMap& options : {OptionMap{}, OptionMap{{"group", int64_t{32}}}}) {
          const Codec codec(mode.name, options, isa);
          const turbo_kv_shape shape = shape_of(TURBO_KV_SIDE_K, 2, d);
          Blocks whole(codec, shape), ragged(codec, shape);
          append_all(codec, shape, whole.open, normals(d, 64 * 2 * d));
          ASSERT_EQ(codec->pack(codec.self(), &shape, whole.open, whole.packed), TURBO_OK);
          const Page page = page_of(d, mode.bits, options.empty() ? 0 : 32, false);
          ASSERT_EQ(2 * page.bytes, whole.layout.packed_block_bytes);
          const uint64_t scale_bytes = page.bytes / 64 - page.code_pitch;
          const uint32_t qf = whole.layout.query_floats, n_queries = 5;
          const std::vector<float> query = normals(d + 1, n_queries * d), weights = normals(d + 2, n_queries * 64);
          for (const auto& [begin, n] : {std::pair{0u, 1u}, {0u, 22u}, {3u, 58u}, {17u, 32u}, {63u, 1u}}) {
            // Halves and scales of 0xff are no numbers.
            std::memset(ragged.open, 0xff, ragged.layout.open_block_bytes);
            std::memset(ragged.packed, 0xff, ragged.layout.packed_block_bytes);
            for (uint32_t head = 0; head < 2; ++head)
              for (uint32_t r = begin; r < begin + n; ++r) {
                const uint64_t row = (head * 64 + r) * d * 2, codes = head * page.bytes + code_offset(page, r), scales = head * page.bytes + scale_offset(page, r);
                std::memcpy(ragged.open + row, whole.open + row, d * 2);
                std::memcpy(ragged.packed + codes, whole.packed + codes, page.code_bytes);
                std::memcpy(ragged.packed + scales, whole.packed + scales, scale_bytes);
              }
            for (const uint32_t form : {TURBO_KV_FORM_OPEN, TURBO_KV_FORM_PACKED}) {
              std::vector<float> prepared(n_queries * qf), scores[2], out[2];
              for (uint32_t q = 0; q < n_queries; ++q) codec->prepare_query(codec.self(), &shape, form, &query[q * d], &prepared[q * qf]);
              for (const int which : {0, 1}) {
                const Blocks& from = which ? ragged : whole;
                scores[which].assign(n_queries * 64, -1.0f);
                out[which].assign(n_queries * qf, 0.0f);
                const turbo_kv_run run{sizeof(turbo_kv_run), form, form == TURBO_KV_FORM_OPEN ? from.open : from.packed, begin, n, 1, n_queries, nullptr};
                codec->qk_scores(codec.self(), &shape, &run, prepared.data(), qf, scores[which].data(), 64);
                codec->pv_accumulate(codec.self(), &shape, &run, weights.data(), 64, out[which].data(), qf);
              }
              const std::string where = std::string(mode.name) + " " + isa + " d " + std::to_string(d) + " form " + std::to_string(form) + " rows " + std::to_string(begin);
              ASSERT_TRUE(same_bits(scores[0].data(), scores[1].data(), scores[0].size())) << where;
              ASSERT_TRUE(same_bits(out[0].data(), out[1].data(), out[0].size())) << where;
            }
          }
        }
}

TEST(Codec, OpenAttentionEqualsThePlainLoop) {
  for (const std::string& isa : usable_isas(library_of("tq4").component("tq4")))
    for (const uint32_t d : {64u, 80u, 128u, 256u}) {
      const Codec codec("tq4", {}, isa);
      const turbo_kv_shape shape = shape_of(TURBO_KV_SIDE_K, 1, d);
      Blocks block(codec, shape);
      const std::vector<float> rows = normals(d, 64 * d), query = normals(1, 5 * d), weights = normals(2, 5 * 64);
      append_all(codec, shape, block.open, rows);
      const turbo_kv_run run{sizeof(turbo_kv_run), TURBO_KV_FORM_OPEN, block.open, 2, 61, 0, 5, nullptr};
      std::vector<float> scores(5 * 64), out(5 * d, 0.0f);
      codec->qk_scores(codec.self(), &shape, &run, query.data(), d, scores.data(), 64);
      codec->pv_accumulate(codec.self(), &shape, &run, weights.data(), 64, out.data(), d);
      for (uint32_t q = 0; q < 5; ++q) {
        std::vector<float> want(d, 0.0f), key(d);
        for (uint32_t r = 0; r < 61; ++r) {
          for (uint32_t i = 0; i < d; ++i) key[i] = stored_half(rows[(r + 2) * d + i]), want[i] = std::fma(weights[q * 64 + r], key[i], want[i]);
          const float dot = turbo_dot_f32(&query[q * d], key.data(), d);
          ASSERT_TRUE(same_bits(&scores[q * 64 + r], &dot, 1)) << isa << " " << d;
        }
        ASSERT_TRUE(same_bits(&out[q * d], want.data(), d)) << isa << " " << d;
      }
    }
}

TEST(Codec, FingerprintsFollowEverythingThatDecidesStoredBits) {
  std::map<uint64_t, std::string> seen;
  const auto add = [&](const std::string& name, const OptionMap& options, const std::string& what) {
    const Codec codec(name, options);
    ASSERT_TRUE(codec.instance.ok()) << what << ": " << codec.instance.message();
    const auto [at, fresh] = seen.emplace(codec->fingerprint(codec.self()), name + " " + what);
    EXPECT_TRUE(fresh) << name << " " << what << " equals " << at->second;
  };
  for (const Mode& mode : modes()) {
    add(mode.name, {}, "default");
    add(mode.name, {{"seed", int64_t{43}}}, "seed");
    add(mode.name, {{"scale", std::string("lsq")}}, "lsq");
    add(mode.name, {{"scale", std::string("f32")}}, "f32");
    add(mode.name, {{"group", int64_t{32}}}, "group");
    add(mode.name, {{"rot", std::string("dense")}}, "dense");
    if (mode.turn != Turn::signs) add(mode.name, {{"mix", std::string("none")}}, "mix");
    if (mode.turn == Turn::quaternion) add(mode.name, {{"iso", std::string("left")}}, "left");
  }
  const Codec with("tq4", {{"sinks", int64_t{8}}}), without("tq4");  // which rows are read open is no stored bit
  EXPECT_EQ(with->fingerprint(with.self()), without->fingerprint(without.self()));
}

TEST(Options, SchemasListTheirKeysAndRefuseTheRest) {
  for (const Mode& mode : modes()) {
    const auto schema = loader::OptionSchema::parse(library_of(mode.name).component(mode.name)->option_schema, mode.name);
    ASSERT_TRUE(schema) << schema.status().message();
    std::vector<std::string> keys = {"group", "mix", "rot", "scale", "seed", "sinks"};
    if (mode.turn == Turn::quaternion) keys.insert(keys.begin() + 1, "iso");
    EXPECT_EQ(schema->keys(), keys) << mode.name;
    const auto unknown = schema->bind({{"bits", "3"}}, mode.name);
    ASSERT_FALSE(unknown);
    EXPECT_NE(unknown.status().message().find("known: group"), std::string::npos) << unknown.status().message();
    for (const auto& [key, value] : {std::pair{"scale", "best"}, std::pair{"group", "16"}, std::pair{"seed", "-1"}, std::pair{"sinks", "65"}, std::pair{"mix", "dct"}})
      EXPECT_FALSE(schema->bind({{key, value}}, mode.name)) << key;
    EXPECT_EQ(static_cast<bool>(schema->bind({{"mix", "none"}}, mode.name)), mode.turn != Turn::signs);
  }
}

TEST(Options, BadValuesAreRefusedByTheComponentToo) {
  const OptionMap bad = {{"scale", std::string("best")}, {"group", int64_t{16}}, {"seed", int64_t{-1}},
                         {"sinks", int64_t{65}}, {"mix", std::string("none")}, {"rot", std::string("slow")}};
  for (const auto& [key, value] : bad) {
    const Codec codec("tq3", {{key, value}});
    EXPECT_EQ(codec.instance.status(), TURBO_INVALID_ARGUMENT) << key;
    EXPECT_NE(codec.instance.message().find("tq3: option '" + key + "'"), std::string::npos) << codec.instance.message();
  }
  EXPECT_EQ(Codec("tq3", {}, "sse9").instance.status(), TURBO_UNSUPPORTED);
}

TEST(Options, RareChoicesAreSaidInTheLog) {
  const Codec two("tq2"), three("tq3");
  for (const uint32_t d : {112u, 128u})
    for (const Codec* codec : {&two, &three}) {
      const turbo_kv_shape shape = shape_of(TURBO_KV_SIDE_K, 1, d);
      turbo_kv_layout layout{sizeof(turbo_kv_layout)};
      ASSERT_EQ((*codec)->layout(codec->self(), &shape, &layout, nullptr), TURBO_OK);
    }
  EXPECT_TRUE(two.host.logged("keys of 2 bits"));
  EXPECT_FALSE(three.host.logged("keys of 2 bits"));
  EXPECT_TRUE(three.host.logged("head size 112 has no fast transform"));
  EXPECT_FALSE(three.host.logged("head size 128"));
}

}  // namespace
}  // namespace turbo::test
