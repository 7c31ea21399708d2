// q8 and q4: bytes where they are said to lie, and attention against plain loops over those bytes on every ISA.
#include "fixture.h"

#include <turbo/kernel/half.h>
#include <turbo/kernel/lanes.h>

#include <algorithm>
#include <cmath>

namespace turbo::test {
namespace {

const uint32_t kDims[] = {8, 64, 72, 80, 88, 96, 128, 160, 192, 256};

/// Codes and scales of one row, read by the description in the plugin's README.
struct Row {
  std::vector<int> codes;
  std::vector<float> scales;  // of each element
};

Row row_of(uint32_t bits, uint32_t side, uint32_t dim, const uint8_t* head, uint32_t row) {
  Row out{std::vector<int>(dim), std::vector<float>(dim)};
  const uint32_t code_bytes = dim * bits / 8;
  for (uint32_t e = 0; e < dim; ++e) {
    if (side == TURBO_KV_SIDE_K) {
      const uint32_t unit = e / (32 / bits), units = code_bytes / 4;
      const uint8_t* at = head + ((row / 16 * units + unit) * 16 + row % 16) * 4;
      out.codes[e] = bits == 8 ? static_cast<int8_t>(at[e % 4]) : ((at[e % 4] >> (e % 8 >= 4 ? 4 : 0)) & 15) - 8;
    } else {
      const uint8_t* at = head + row * code_bytes;
      const uint32_t begin = e / 32 * 32, half = std::min(32u, dim - begin) / 2, i = e - begin;
      out.codes[e] = bits == 8 ? static_cast<int8_t>(at[e]) : ((at[begin / 2 + i % half] >> (i >= half ? 4 : 0)) & 15) - 8;
    }
    uint16_t scale;
    std::memcpy(&scale, head + 64 * code_bytes + (e / 32 * 64 + row) * 2, 2);
    out.scales[e] = turbo_f16_to_f32(scale);
  }
  return out;
}

uint32_t bits_of(const std::string& name) { return name == "q8" ? 8 : 4; }

TEST(KvBlocks, RowsAreTheNearestCodesOfTheStoredScaleAndNothingElseIsWritten) {
  for (const char* name : {"q8", "q4"})
    for (const uint32_t side : {TURBO_KV_SIDE_K, TURBO_KV_SIDE_V})
      for (const uint32_t dim : kDims) {
        const uint32_t bits = bits_of(name);
        Codec codec({name, {{"rotate", "none"}}});
        const auto shape = shape_of(side, 3, dim);
        Block block(codec, shape, 0xa5);
        const uint64_t row_bytes = dim * bits / 8 + 2 * ((dim + 31) / 32);
        ASSERT_EQ(block.layout.packed_block_bytes, row_bytes * 64 * 3);
        ASSERT_FLOAT_EQ(block.layout.bits_per_element, static_cast<float>(row_bytes * 8) / static_cast<float>(dim));
        const std::vector<float> x = gaussian(3 * dim, dim);
        ASSERT_EQ(codec->append(codec.self(), &shape, block.base, 37, x.data(), 0, 1), TURBO_OK);
        ASSERT_EQ(codec->append(codec.self(), &shape, block.base, 37, x.data(), 1, 3), TURBO_OK);
        std::vector<float> back(3 * dim);
        codec->decode_row(codec.self(), &shape, 0, block.base, 37, back.data());
        for (uint32_t head = 0; head < 3; ++head) {
          const Row row = row_of(bits, side, dim, block.base + head * row_bytes * 64, 37);
          for (uint32_t e = 0; e < dim; ++e) {
            float largest = 0;
            for (uint32_t i = e / 32 * 32; i < std::min(dim, e / 32 * 32 + 32); ++i)
              if (std::fabs(x[head * dim + i]) > std::fabs(largest)) largest = x[head * dim + i];
            const float scale = bits == 8 ? std::fabs(largest) / 127.0f : largest / -8.0f;
            ASSERT_EQ(row.scales[e], turbo_f16_to_f32(turbo_f32_to_f16(scale)));
            const float code = std::nearbyint(x[head * dim + e] / row.scales[e]);
            ASSERT_EQ(row.codes[e], static_cast<int>(std::clamp(code, bits == 8 ? -127.0f : -8.0f, bits == 8 ? 127.0f : 7.0f)));
            ASSERT_EQ(back[head * dim + e], static_cast<float>(row.codes[e]) * row.scales[e]);
          }
        }
        size_t written = 0;
        for (const uint8_t byte : block.raw) written += byte != 0xa5;
        ASSERT_LE(written, 3 * row_bytes);
        for (size_t i = block.layout.packed_block_bytes; i < block.layout.packed_block_bytes + 8; ++i) ASSERT_EQ(block.base[i], 0xa5);
      }
}

/// A query's int8 codes and scales by row block.
struct IntegerQuery {
  std::vector<int> codes;
  std::vector<float> scales;
};
IntegerQuery integer_query(const float* x, uint32_t dim) {
  IntegerQuery out;
  for (uint32_t begin = 0; begin < dim; begin += 32) {
    float largest = 0;
    const uint32_t end = std::min(dim, begin + 32);
    for (uint32_t e = begin; e < end; ++e) largest = std::fmax(largest, std::fabs(x[e]));
    out.scales.push_back(largest / 127.0f);
    for (uint32_t e = begin; e < end; ++e) out.codes.push_back(static_cast<int>(std::nearbyint(x[e] / out.scales.back())));
  }
  return out;
}

// Every cut of a run and every number of queries gives the bits of the plain loop; rows outside the run may hold
// anything, and what lies ahead is not read.
TEST(KvBlocks, ScoresAndValuesEqualThePlainLoopOnEveryIsa) {
  std::mt19937 random(4);
  for (const char* name : {"q8", "q4"})
    for (const std::string& isa : usable_isas(library().component(name)))
      for (const uint32_t dim : kDims) {
        const uint32_t bits = bits_of(name);
        Codec codec({name, {{"rotate", "none"}}}, isa);
        const auto k = shape_of(TURBO_KV_SIDE_K, 2, dim), v = shape_of(TURBO_KV_SIDE_V, 2, dim);
        Block keys(codec, k, 0xff), values(codec, v, 0xff);
        const uint64_t head_bytes = keys.layout.packed_block_bytes / 2;
        const uint32_t qf = keys.layout.query_floats, most = 11;
        const std::vector<float> rows = gaussian(64 * 2 * dim, dim);
        const uint32_t filled = dim % 16 ? 50 : 64;  // sometimes the last rows were never appended
        for (uint32_t r = 0; r < filled; ++r) {
          ASSERT_EQ(codec->append(codec.self(), &k, keys.base, r, &rows[r * 2 * dim], 0, 2), TURBO_OK);
          ASSERT_EQ(codec->append(codec.self(), &v, values.base, r, &rows[r * 2 * dim], 0, 2), TURBO_OK);
        }
        const std::vector<float> queries = gaussian(most * dim, 5), weights = gaussian(most * 64, 6);
        std::vector<float> prepared(most * qf);
        for (uint32_t q = 0; q < most; ++q) codec->prepare_query(codec.self(), &k, 0, &queries[q * dim], &prepared[q * qf]);
        void* const nowhere = reinterpret_cast<void*>(uintptr_t{4096});
        for (uint32_t nq : {1u, 2u, 3u, 4u, 5u, 8u, most}) {
          const uint32_t begin = random() % filled, n = 1 + random() % (filled - begin), cut = random() % n, head = random() % 2;
          std::vector<float> scores(most * 64, -1.0f), sums(most * qf, 0.0f), out(dim);
          for (auto [from, count] : {std::pair{0u, cut}, std::pair{cut, n - cut}}) {
            if (!count) continue;
            turbo_kv_run run{sizeof(turbo_kv_run), 1, keys.base, begin + from, count, head, nq, random() % 2 ? nowhere : nullptr};
            codec->qk_scores(codec.self(), &k, &run, prepared.data(), qf, scores.data() + from, 64);
            run.block = values.base;
            codec->pv_accumulate(codec.self(), &v, &run, weights.data() + from, 64, sums.data(), qf);
          }
          for (uint32_t q = 0; q < nq; ++q) {
            const IntegerQuery query = integer_query(&queries[q * dim], dim);
            std::vector<float> want(dim, 0.0f);
            for (uint32_t i = 0; i < n; ++i) {
              const Row key = row_of(bits, TURBO_KV_SIDE_K, dim, keys.base + head * head_bytes, begin + i);
              const Row value = row_of(bits, TURBO_KV_SIDE_V, dim, values.base + head * head_bytes, begin + i);
              float score = 0;
              for (uint32_t b = 0; b * 32 < dim; ++b) {
                int dot = 0;
                for (uint32_t e = b * 32; e < std::min(dim, b * 32 + 32); ++e) dot += key.codes[e] * query.codes[e];
                score = fmaf(static_cast<float>(dot), key.scales[b * 32] * query.scales[b], score);
              }
              ASSERT_TRUE(same_bits(&scores[q * 64 + i], &score, 1)) << name << " " << isa << " dim " << dim << " nq " << nq;
              for (uint32_t e = 0; e < dim; ++e)
                want[e] = fmaf(weights[q * 64 + i] * value.scales[e], static_cast<float>(value.codes[e]), want[e]);
            }
            codec->finish_output(codec.self(), &v, 1, &sums[q * qf], out.data());
            ASSERT_TRUE(same_bits(out.data(), want.data(), dim)) << name << " " << isa << " dim " << dim;
          }
          for (uint32_t i = n; i < 64; ++i) ASSERT_EQ(scores[i], -1.0f);
        }
      }
}

TEST(KvBlocks, SizesThatDoNotFitAreRefusedWithWhatToDo) {
  turbo_kv_layout layout{sizeof(turbo_kv_layout)};
  turbo_error error{sizeof(turbo_error)};
  Codec q8({"q8", {}}), q4({"q4", {}}), plain({"q4", {{"rotate", "none"}}});
  const auto odd = shape_of(TURBO_KV_SIDE_K, 1, 100), ragged = shape_of(TURBO_KV_SIDE_K, 1, 72);
  EXPECT_EQ(q8->layout(q8.self(), &odd, &layout, &error), TURBO_UNSUPPORTED);
  EXPECT_NE(std::string(error.hint).find("f16"), std::string::npos);
  EXPECT_EQ(q4->layout(q4.self(), &ragged, &layout, &error), TURBO_UNSUPPORTED);
  EXPECT_NE(std::string(error.hint).find("rotate"), std::string::npos);
  EXPECT_EQ(plain->layout(plain.self(), &ragged, &layout, &error), TURBO_OK);
}

TEST(KvBlocks, AQueryThatIsNotFiniteGivesNoFiniteScore) {
  for (const char* name : {"q8", "q4"}) {
    Codec codec({name, {}});
    const auto shape = shape_of(TURBO_KV_SIDE_K, 1, 64);
    Block block(codec, shape, 0);
    fill(codec, shape, block.base, gaussian(64 * 64, 1));
    std::vector<float> query(64, 1.0f), prepared(block.layout.query_floats), scores(64);
    query[40] = INFINITY;
    codec->prepare_query(codec.self(), &shape, 1, query.data(), prepared.data());
    const turbo_kv_run run{sizeof(turbo_kv_run), 1, block.base, 0, 64, 0, 1, nullptr};
    codec->qk_scores(codec.self(), &shape, &run, prepared.data(), block.layout.query_floats, scores.data(), 64);
    for (const float score : scores) EXPECT_FALSE(std::isfinite(score));
  }
}

}  // namespace
}  // namespace turbo::test
