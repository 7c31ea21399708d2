// Codecs through the ABI: attention on packed rows against plain decode, and the bits that must not depend on how runs
// are cut.
#include "plugins.h"

#include <gtest/gtest.h>
#include <turbo/kernel/random.h>
#include <turbo/kv_codec.hpp>

#include <cmath>

using namespace turbo;

namespace {

constexpr uint32_t kHeads = 2, kDim = 64;

struct CodecCase {
  const char* plugin;
  const char* name;
  bool is_template;
};
void PrintTo(const CodecCase& c, std::ostream* out) { *out << c.name; }

class CodecTest : public testing::TestWithParam<CodecCase> {
 protected:
  fake::Host host;
  fake::Component component{GetParam().is_template ? open_template(GetParam().plugin) : open_fixture(GetParam().plugin), "kv_codec", GetParam().name,
                            TURBO_TIER_CPU, host};
  const turbo_kv_codec* codec = component.interface<turbo_kv_codec>(TURBO_KV_CODEC_DRAFT);
  void* self = component.self();
  turbo_kv_shape k = {sizeof(turbo_kv_shape), TURBO_KV_SIDE_K, 0, 1, kHeads, kDim}, v = {sizeof(turbo_kv_shape), TURBO_KV_SIDE_V, 0, 1, kHeads, kDim};
  turbo_kv_layout layout{};
  std::vector<float> source;
  std::vector<std::byte> open, packed;

  void SetUp() override {
    ASSERT_NE(codec, nullptr);
    layout.struct_size = sizeof layout;
    Error error;
    ASSERT_EQ(codec->layout(self, &k, &layout, &error), TURBO_OK) << error.message;
    ASSERT_NE(codec->pack, nullptr);
    open.resize(layout.open_block_bytes + 8, std::byte{0xaa});
    packed.resize(layout.packed_block_bytes + 8, std::byte{0xaa});
    source.resize(TURBO_KV_BLOCK * kHeads * kDim);
    for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<float>(turbo_uniform(3, i) * 2 - 1);
    for (uint32_t row = 0; row < TURBO_KV_BLOCK; ++row)
      for (uint32_t head = 0; head < kHeads; ++head)  // as two threads of a team would
        ASSERT_EQ(codec->append(self, &k, open.data(), row, &source[row * kHeads * kDim], head, head + 1), TURBO_OK);
    ASSERT_EQ(codec->pack(self, &k, open.data(), packed.data()), TURBO_OK);
  }
  const void* block(uint32_t form) const { return form == TURBO_KV_FORM_OPEN ? open.data() : packed.data(); }

  // One head's attention over rows [0, n), cut into runs of `run` rows, for `n_queries` queries at once.
  std::vector<float> attend(uint32_t form, uint32_t head, uint32_t n, uint32_t cut, const std::vector<float>& queries) {
    const auto n_queries = static_cast<uint32_t>(queries.size() / kDim);
    std::vector<float> prepared(n_queries * layout.query_floats), scores(n_queries * 64), sums(n_queries * layout.query_floats), out(queries.size());
    for (uint32_t q = 0; q < n_queries; ++q) codec->prepare_query(self, &k, form, &queries[q * kDim], &prepared[q * layout.query_floats]);
    const auto runs = [&](auto&& body) {
      for (uint32_t begin = 0; begin < n; begin += cut) {
        const turbo_kv_run run = {sizeof run, form, block(form), begin, std::min(cut, n - begin), head, n_queries};
        body(run);
      }
    };
    runs([&](const turbo_kv_run& run) {
      codec->qk_scores(self, &k, &run, prepared.data(), layout.query_floats, &scores[run.row_begin], 64);
    });
    for (uint32_t q = 0; q < n_queries; ++q) {
      double sum = 0;
      for (uint32_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(scores[q * 64 + i]));
      for (uint32_t i = 0; i < n; ++i) scores[q * 64 + i] = static_cast<float>(std::exp(static_cast<double>(scores[q * 64 + i])) / sum);
    }
    runs([&](const turbo_kv_run& run) {
      codec->pv_accumulate(self, &v, &run, &scores[run.row_begin], 64, sums.data(), layout.query_floats);
    });
    for (uint32_t q = 0; q < n_queries; ++q) codec->finish_output(self, &v, form, &sums[q * layout.query_floats], &out[q * kDim]);
    return out;
  }

  std::vector<double> reference(uint32_t form, uint32_t head, uint32_t n, const float* query) {
    std::vector<double> out(kDim), weight(n);
    std::vector<float> row(kHeads * kDim);
    double sum = 0;
    for (uint32_t i = 0; i < n; ++i) {
      codec->decode_row(self, &k, form, block(form), i, row.data());
      double score = 0;
      for (uint32_t e = 0; e < kDim; ++e) score += static_cast<double>(query[e]) * static_cast<double>(row[head * kDim + e]);
      sum += weight[i] = std::exp(score);
    }
    for (uint32_t i = 0; i < n; ++i) {
      codec->decode_row(self, &v, form, block(form), i, row.data());
      for (uint32_t e = 0; e < kDim; ++e) out[e] += weight[i] / sum * static_cast<double>(row[head * kDim + e]);
    }
    return out;
  }
  std::vector<float> some_queries(uint32_t n) {
    std::vector<float> queries(n * kDim);
    for (size_t i = 0; i < queries.size(); ++i) queries[i] = static_cast<float>(turbo_uniform(8, i) - 0.5);
    return queries;
  }
};

}  // namespace

TEST_P(CodecTest, AttentionOnEitherFormEqualsAttentionOnDecodedRows) {
  const auto queries = some_queries(3);
  for (const uint32_t form : {TURBO_KV_FORM_OPEN, TURBO_KV_FORM_PACKED})
    for (uint32_t head = 0; head < kHeads; ++head)
      for (const uint32_t n : {1u, 5u, 64u}) {
        const auto got = attend(form, head, n, 64, queries);
        for (uint32_t q = 0; q < 3; ++q) {
          const auto expected = reference(form, head, n, &queries[q * kDim]);
          for (uint32_t e = 0; e < kDim; ++e) ASSERT_NEAR(got[q * kDim + e], expected[e], 2e-5) << form << " " << head << " " << n << " " << e;
        }
      }
}

TEST_P(CodecTest, BitsDoNotDependOnCutsOrNeighbours) {
  const auto queries = some_queries(4);
  for (const uint32_t form : {TURBO_KV_FORM_OPEN, TURBO_KV_FORM_PACKED}) {
    const auto whole = attend(form, 1, 61, 64, queries);
    for (const uint32_t cut : {1u, 7u, 32u}) EXPECT_EQ(attend(form, 1, 61, cut, queries), whole);
    for (uint32_t q = 0; q < 4; ++q) {
      const std::vector<float> one(queries.begin() + q * kDim, queries.begin() + (q + 1) * kDim);
      EXPECT_EQ(attend(form, 1, 61, 64, one), std::vector<float>(whole.begin() + q * kDim, whole.begin() + (q + 1) * kDim));
    }
  }
}

TEST_P(CodecTest, DecodeStaysWithinTheStatedBound) {
  std::vector<float> row(kHeads * kDim);
  for (uint32_t r = 0; r < TURBO_KV_BLOCK; ++r) {
    codec->decode_row(self, &k, TURBO_KV_FORM_PACKED, packed.data(), r, row.data());
    for (uint32_t head = 0; head < kHeads; ++head) {
      double error = 0, norm = 0;
      for (uint32_t e = 0; e < kDim; ++e) {
        const double x = static_cast<double>(source[(r * kHeads + head) * kDim + e]);
        const double d = static_cast<double>(row[head * kDim + e]) - x;
        error += d * d;
        norm += x * x;
      }
      EXPECT_LE(std::sqrt(error / norm), layout.error_bound);
    }
  }
}

TEST_P(CodecTest, PackingIsPureAndStaysInItsBlock) {
  std::vector<std::byte> again(packed.size(), std::byte{0xaa});
  ASSERT_EQ(codec->pack(self, &k, open.data(), again.data()), TURBO_OK);
  EXPECT_EQ(again, packed);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(open[layout.open_block_bytes + i], std::byte{0xaa});
    EXPECT_EQ(packed[layout.packed_block_bytes + i], std::byte{0xaa});
  }
  EXPECT_NE(codec->fingerprint(self), 0u);
}

TEST_P(CodecTest, MovedRowsReadTheSame) {
  std::vector<float> before(kHeads * kDim), after(kHeads * kDim);
  codec->decode_row(self, &k, TURBO_KV_FORM_OPEN, open.data(), 40, before.data());
  codec->move_row(self, &k, open.data(), 40, open.data(), 3);
  codec->decode_row(self, &k, TURBO_KV_FORM_OPEN, open.data(), 3, after.data());
  EXPECT_EQ(before, after);
}

TEST_P(CodecTest, BadShapesRowsAndValuesAreRefused) {
  turbo_kv_shape odd = k;
  odd.head_dim = 63;
  Error error;
  EXPECT_EQ(codec->layout(self, &odd, &layout, &error), TURBO_UNSUPPORTED);
  EXPECT_NE(std::string(error.message), "");
  EXPECT_EQ(codec->append(self, &k, open.data(), 64, source.data(), 0, kHeads), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(codec->append(self, &k, open.data(), 0, source.data(), 0, kHeads + 1), TURBO_INVALID_ARGUMENT);
  source[5] = INFINITY;
  const turbo_status appended = codec->append(self, &k, open.data(), 0, source.data(), 0, kHeads);
  EXPECT_TRUE(appended == TURBO_CORRUPT_INPUT || codec->pack(self, &k, open.data(), packed.data()) == TURBO_CORRUPT_INPUT);
}

INSTANTIATE_TEST_SUITE_P(Codecs, CodecTest, testing::Values(CodecCase{"kv_codec", "toy_q8", true}, CodecCase{"abi_nibble_codec", "abi_nibble", false}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ToyQ8, ZeroRowsDecodeToZero) {
  fake::Host host;
  fake::Component component(open_template("kv_codec"), "kv_codec", "toy_q8", TURBO_TIER_CPU, host);
  const auto* codec = component.interface<turbo_kv_codec>(TURBO_KV_CODEC_DRAFT);
  const turbo_kv_shape shape = {sizeof(turbo_kv_shape), TURBO_KV_SIDE_V, 0, 1, 1, 8};
  turbo_kv_layout layout{};
  layout.struct_size = sizeof layout;
  ASSERT_EQ(codec->layout(component.self(), &shape, &layout, nullptr), TURBO_OK);
  std::vector<std::byte> open(layout.open_block_bytes), packed(layout.packed_block_bytes, std::byte{0x55});
  ASSERT_EQ(codec->pack(component.self(), &shape, open.data(), packed.data()), TURBO_OK);
  float row[8];
  codec->decode_row(component.self(), &shape, TURBO_KV_FORM_PACKED, packed.data(), 63, row);
  for (const float x : row) EXPECT_EQ(x, 0.0f);
}
