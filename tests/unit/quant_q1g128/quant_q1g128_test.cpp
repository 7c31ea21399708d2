// The Q1_0 plugin against its definition, written out from the file's bytes, on every instruction set of the machine.
#include <turbo/kernel/half.h>
#include <turbo/kernel/lanes.h>

#include <random>

#include "support/weight_format_host.h"

namespace turbo::testing {
namespace {

constexpr const char* kFolder = "quant_q1g128";
constexpr uint32_t kQ1 = TURBO_TYPE_Q1_0;

struct Source {
  Source(uint64_t rows, uint64_t cols, uint64_t seed) : rows(rows), cols(cols), bytes(rows * cols / 128 * 18) {
    std::mt19937_64 random(seed);
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(random());
    for (uint64_t block = 0; block < bytes.size() / 18; ++block) {
      const uint64_t kind = random() % 16;  // some scales zero, some negative
      const float s =
          kind == 0 ? 0.0f : (kind < 4 ? -1.0f : 1.0f) * (0.001f + static_cast<float>(random() % 1000) * 1e-4f);
      set_scale(block, turbo_f32_to_f16(s));
    }
  }
  void set_scale(uint64_t block, uint16_t half) { std::memcpy(&bytes[block * 18], &half, 2); }
  float scale(uint64_t row, uint64_t block) const {
    uint16_t half;
    std::memcpy(&half, &bytes[(row * (cols / 128) + block) * 18], 2);
    return turbo_f16_to_f32(half);
  }
  bool plus(uint64_t row, uint64_t j) const {
    return bytes[(row * (cols / 128) + j / 128) * 18 + 2 + j % 128 / 8] >> (j % 8) & 1;
  }
  std::vector<float> decode(uint64_t row) const {
    std::vector<float> w(cols);
    for (uint64_t j = 0; j < cols; ++j) w[j] = plus(row, j) ? scale(row, j / 128) : -scale(row, j / 128);
    return w;
  }
  uint64_t rows, cols;
  std::vector<uint8_t> bytes;
};

std::vector<float> normal_rows(uint64_t n, uint64_t cols, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n * cols);
  for (float& v : x) v = normal(random);
  return x;
}

std::vector<float> expected_i8(const Source& s, const std::vector<float>& x) {
  const uint64_t n = x.size() / s.cols;
  std::vector<float> out;
  std::vector<QuantizedRow> rows;
  for (uint64_t r = 0; r < n; ++r) rows.emplace_back(x.data() + r * s.cols, s.cols, 128);
  for (uint64_t r = 0; r < n; ++r)
    for (uint64_t o = 0; o < s.rows; ++o) {
      float acc = 0;
      for (uint64_t b = 0; b < s.cols / 128; ++b) {
        int plus = 0, total = 0;
        for (uint64_t j = b * 128; j < b * 128 + 128; ++j) {
          total += rows[r].q[j];
          if (s.plus(o, j)) plus += rows[r].q[j];
        }
        acc = std::fmaf(static_cast<float>(2 * plus - total), s.scale(o, b) * rows[r].scale[b], acc);
      }
      out.push_back(acc);
    }
  return out;
}

std::vector<float> expected_f32(const Source& s, const std::vector<float>& x) {
  std::vector<float> out(x.size() / s.cols * s.rows);
  for (uint64_t o = 0; o < s.rows; ++o) {
    const std::vector<float> w = s.decode(o);
    for (uint64_t r = 0; r < x.size() / s.cols; ++r)
      out[r * s.rows + o] = turbo_dot_f32(w.data(), x.data() + r * s.cols, s.cols);
  }
  return out;
}

class Q1 : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Isa, Q1, ::testing::ValuesIn(machine_isas()), [](const auto& info) { return info.param; });

TEST_P(Q1, DecodesEveryScaleExactly) {
  Format format(kFolder, GetParam());
  Source source(70, 384, 1);
  const uint16_t odd[] = {0x0000, 0x8000, 0x0001, 0x83ff, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x7c01, 0x3c00};
  for (size_t i = 0; i < std::size(odd); ++i) source.set_scale(5 * i, odd[i]);
  PackedMatrix m(format, kQ1, source.rows, source.cols, source.bytes.data(), source.bytes.size());
  std::vector<float> got(3 * source.cols);
  for (uint64_t row = 0; row + 3 <= source.rows; ++row) {
    format.table->decode_rows(format.self, &m.matrix, row, row + 3, got.data());
    for (uint64_t i = 0; i < 3; ++i) {
      const std::vector<float> one(got.begin() + i * source.cols, got.begin() + (i + 1) * source.cols);
      ASSERT_TRUE(same_bits(one, source.decode(row + i))) << "row " << row + i;
    }
  }
}

// Every pattern of 16 signs at every place of a block: every entry of every table is picked.
TEST_P(Q1, EverySignWord) {
  Format format(kFolder, GetParam());
  Source source(65536, 128, 2);
  for (uint64_t row = 0; row < source.rows; ++row) {
    source.set_scale(row, 0x3c00);
    for (uint64_t word = 0; word < 8; ++word) {
      const uint16_t bits = static_cast<uint16_t>(row * (2 * word + 1) + word * 977);
      std::memcpy(&source.bytes[row * 18 + 2 + 2 * word], &bits, 2);
    }
  }
  PackedMatrix m(format, kQ1, source.rows, source.cols, source.bytes.data(), source.bytes.size());
  std::vector<float> x = normal_rows(1, 128, 3);
  for (uint64_t j = 64; j < 128; ++j) x[j] = 100.0f;  // saturates: the largest sums a block can have
  EXPECT_TRUE(same_bits(format.matmul(m.matrix, x), expected_i8(source, x)));
}

struct Shape {
  uint64_t rows, cols;
  std::vector<uint32_t> n;
};
const Shape kShapes[] = {
    {1, 128, {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 64}},
    {15, 256, {1, 4, 9}},
    {17, 384, {1, 3, 17}},
    {31, 640, {2, 5}},
    {32, 128, {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 64}},
    {33, 1024, {1, 8, 17}},
    {100, 768, {1, 6, 64}},
    {128, 2048, {1, 4, 17}},
    {224, 1152, {1, 2, 3, 4, 18}},
    {1003, 512, {1, 7, 19}},
    {64, 6144, {1, 4, 20}},
};

TEST_P(Q1, Int8EqualsItsDefinition) {
  Format format(kFolder, GetParam());
  for (const Shape& shape : kShapes) {
    const Source source(shape.rows, shape.cols, shape.rows + shape.cols);
    PackedMatrix m(format, kQ1, shape.rows, shape.cols, source.bytes.data(), source.bytes.size());
    EXPECT_EQ(m.matrix.packed_bytes, (shape.rows + 31) / 32 * 32 * shape.cols / 128 * 18);
    for (uint32_t n : shape.n) {
      const std::vector<float> x = normal_rows(n, shape.cols, n);
      ASSERT_TRUE(same_bits(format.matmul(m.matrix, x), expected_i8(source, x)))
          << shape.rows << " x " << shape.cols << ", n " << n;
    }
  }
}

TEST_P(Q1, FloatActivationsFollowTheLaneOrder) {
  Format format(kFolder, GetParam(), "f32");
  EXPECT_STREQ(format.table->activation_id(format.self, kQ1), "f32");
  for (const Shape& shape : kShapes) {
    const Source source(shape.rows, shape.cols, shape.rows);
    PackedMatrix m(format, kQ1, shape.rows, shape.cols, source.bytes.data(), source.bytes.size());
    const std::vector<float> x = normal_rows(shape.n.back() % 16, shape.cols, 5);
    ASSERT_TRUE(same_bits(format.matmul(m.matrix, x), expected_f32(source, x))) << shape.rows << " x " << shape.cols;
  }
}

// Whatever range of outputs a call computes and however many rows go together: same bits, and nothing else written.
TEST_P(Q1, RangesAndRowCountsDoNotChangeBits) {
  for (const char* activations : {"int8", "f32"}) {
    Format format(kFolder, GetParam(), activations);
    const Source source(301, 512, 9);
    PackedMatrix m(format, kQ1, source.rows, source.cols, source.bytes.data(), source.bytes.size());
    const std::vector<float> x = normal_rows(21, source.cols, 11);
    const std::vector<float> whole = format.matmul(m.matrix, x);
    const Buffer all = format.prepare(kQ1, x, source.cols);
    for (uint64_t begin = 0; begin < source.rows; begin += format.tile)
      for (uint64_t end = begin; end <= source.rows;
           end = end + format.tile > source.rows && end < source.rows ? source.rows : end + format.tile)
        for (uint32_t n : {1u, 3u, 18u}) {
          const uint64_t stride = source.rows + 5;
          std::vector<float> out(n * stride, 777.0f);
          format.matmul(m.matrix, all, n, out.data(), stride, begin, end);
          for (uint64_t r = 0; r < n; ++r)
            for (uint64_t o = 0; o < stride; ++o)
              ASSERT_TRUE(same_bits(out[r * stride + o], o >= begin && o < end ? whole[r * source.rows + o] : 777.0f))
                  << activations << " " << begin << ".." << end << " n " << n << " row " << r << " output " << o;
        }
    for (uint64_t r = 0; r < 21; ++r) {
      const std::vector<float> row(x.begin() + r * source.cols, x.begin() + (r + 1) * source.cols);
      const std::vector<float> alone = format.matmul(m.matrix, row);
      ASSERT_TRUE(same_bits(alone, {whole.begin() + r * source.rows, whole.begin() + (r + 1) * source.rows}));
    }
  }
}

TEST_P(Q1, RepackingInPiecesGivesTheSameBytes) {
  Format format(kFolder, GetParam());
  const Source source(150, 256, 12);
  PackedMatrix whole(format, kQ1, source.rows, source.cols, source.bytes.data(), source.bytes.size());
  Buffer pieces(format.bytes);
  for (uint64_t begin : {96, 0, 32, 64, 128})
    ASSERT_EQ(format.table->repack(format.self, kQ1, 150, 256, source.bytes.data(), source.bytes.size(), pieces.data(),
                                   begin, std::min<uint64_t>(begin + 32, 150), &format.error),
              TURBO_OK);
  EXPECT_EQ(std::memcmp(pieces.data(), whole.buffer.data(), format.bytes), 0);
}

TEST_P(Q1, UnusualActivations) {
  Format format(kFolder, GetParam());
  const Source source(40, 256, 13);
  PackedMatrix m(format, kQ1, source.rows, source.cols, source.bytes.data(), source.bytes.size());
  const float inf = INFINITY, values[] = {0.0f, -0.0f, 1e-45f, 1e-38f, 1.17549435e-38f, 1.5e-36f, 3.0e38f, -3.4e38f,
                                          inf,  -inf,  NAN,    0.5f,   127.0f,          -63.5f};
  std::vector<float> x;
  for (float v : values) {
    std::vector<float> row = normal_rows(1, 256, 1);
    row[3] = v;
    row[200] = -v;
    x.insert(x.end(), row.begin(), row.end());
    for (float& each : row) each = v;
    x.insert(x.end(), row.begin(), row.end());
  }
  std::vector<float> ties(256);  // every x * (1 / d) half way between two integers, and the largest 127
  for (int j = 0; j < 256; ++j) ties[j] = static_cast<float>(j % 128) - 63.5f;
  ties[0] = ties[128] = 127.0f;
  x.insert(x.end(), ties.begin(), ties.end());
  const std::vector<float> got = format.matmul(m.matrix, x);
  EXPECT_TRUE(same_bits(got, expected_i8(source, x)));
  for (uint64_t o = 0; o < 40; ++o) {
    EXPECT_EQ(got[40 + o], 0.0f);                  // a row of zeros
    EXPECT_TRUE(std::isnan(got[8 * 2 * 40 + o]));  // one infinity in the row
    EXPECT_TRUE(std::isnan(got[10 * 2 * 40 + o]));
  }
}

TEST_P(Q1, UnusualScalesPropagate) {
  for (const char* activations : {"int8", "f32"}) {
    Format format(kFolder, GetParam(), activations);
    Source source(33, 256, 14);
    source.set_scale(0, 0x7c00);  // row 0: infinity
    source.set_scale(3, 0x7e00);  // row 1: NaN
    source.set_scale(64, 0);      // row 32: only zeros
    source.set_scale(65, 0x8000);
    PackedMatrix m(format, kQ1, source.rows, source.cols, source.bytes.data(), source.bytes.size());
    const std::vector<float> x = normal_rows(5, 256, 15);
    const std::vector<float> got = format.matmul(m.matrix, x);
    EXPECT_TRUE(same_bits(got, std::string(activations) == "int8" ? expected_i8(source, x) : expected_f32(source, x)));
    EXPECT_FALSE(std::isfinite(got[0]));
    EXPECT_TRUE(std::isnan(got[1]));
    EXPECT_EQ(got[32], 0.0f);
    EXPECT_TRUE(std::isfinite(got[2]));
  }
}

TEST_P(Q1, Int8StaysCloseToFloat) {
  Format fast(kFolder, GetParam()), exact(kFolder, GetParam(), "f32");
  const Source source(256, 2048, 16);
  PackedMatrix a(fast, kQ1, source.rows, source.cols, source.bytes.data(), source.bytes.size());
  PackedMatrix b(exact, kQ1, source.rows, source.cols, source.bytes.data(), source.bytes.size());
  const std::vector<float> x = normal_rows(4, source.cols, 17);
  const std::vector<float> got = fast.matmul(a.matrix, x), want = exact.matmul(b.matrix, x);
  double error = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  EXPECT_LT(std::sqrt(error / norm), 0.01);
  EXPECT_GT(error, 0);
}

TEST(Q1Plugin, Describes) {
  const turbo_plugin* plugin = load_plugin(kFolder);
  ASSERT_NE(plugin, nullptr);
  EXPECT_STREQ(plugin->id, "dev.turbo.quant_q1g128");
  EXPECT_EQ(load_plugin(kFolder, TURBO_ABI_MAJOR + 1), nullptr);
  ASSERT_EQ(plugin->n_components, 1u);
  EXPECT_STREQ(plugin->components[0].name, "q1_0");
  EXPECT_EQ(plugin->components[0].query_interface("turbo.weight_format/2"), nullptr);
  Format format(kFolder, "");
  const turbo_type_info* types;
  uint32_t n = 0;
  ASSERT_EQ(format.table->types(format.self, &types, &n), TURBO_OK);
  ASSERT_EQ(n, 1u);
  EXPECT_EQ(types->type, 41u);
  EXPECT_EQ(types->block_weights, 128u);
  EXPECT_EQ(types->block_bytes, 18u);
  EXPECT_STRNE(format.table->activation_id(format.self, kQ1), "f32");
  EXPECT_EQ(format.table->activation_bytes(format.self, kQ1, 384) % 64, 0u);
}

TEST(Q1Plugin, ProbeExplainsTheInstructionSet) {
  const turbo_component& component = load_plugin(kFolder)->components[0];
  const OptionHost host("int8");
  const turbo_probe_facts facts{sizeof(turbo_probe_facts), TURBO_TIER_CPU, nullptr, nullptr};
  turbo_probe_result result{sizeof(turbo_probe_result)};
  turbo_error error{sizeof(turbo_error)};
  ASSERT_EQ(component.probe(host.get(), &facts, &result, &error), TURBO_OK);
  EXPECT_GT(result.score, 0);
  EXPECT_STREQ(result.reason, cpu_isa_name(widest_cpu_isa()));
  setenv("TURBO_CPU_ISA", "sse9", 1);
  ASSERT_EQ(component.probe(host.get(), &facts, &result, &error), TURBO_OK);
  EXPECT_EQ(result.score, 0);
  EXPECT_NE(std::string(result.reason).find("sse9"), std::string::npos);
  if (widest_cpu_isa() != CpuIsa::avx512) {
    setenv("TURBO_CPU_ISA", "avx512", 1);
    ASSERT_EQ(component.probe(host.get(), &facts, &result, &error), TURBO_OK);
    EXPECT_EQ(result.score, 0);
    EXPECT_NE(std::string(result.reason).find("only"), std::string::npos);
  }
  unsetenv("TURBO_CPU_ISA");
  EXPECT_EQ(Format(kFolder, "sse9").status, TURBO_UNSUPPORTED);
  EXPECT_EQ(Format(kFolder, "", "int4").status, TURBO_INVALID_ARGUMENT);
}

TEST(Q1Plugin, RefusesWhatItCannotHold) {
  Format format(kFolder, "");
  EXPECT_EQ(format.packed_size(kQ1, 4, 100), TURBO_INVALID_ARGUMENT);
  EXPECT_NE(std::string(format.error.message).find("4 x 100"), std::string::npos);
  EXPECT_EQ(format.packed_size(kQ1, 0, 128), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(format.packed_size(kQ1, 4, 0), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(format.packed_size(40, 4, 128), TURBO_UNSUPPORTED);
  EXPECT_EQ(format.packed_size(kQ1, UINT64_MAX, 128), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(format.packed_size(kQ1, 1ull << 62, 1ull << 20), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(format.packed_size(kQ1, 1, UINT64_MAX / 128 * 128), TURBO_INVALID_ARGUMENT);
  const Source source(64, 128, 1);
  Buffer packed(64 * 18);
  const auto repack = [&](uint64_t source_bytes, uint64_t begin, uint64_t end) {
    return format.table->repack(format.self, kQ1, 64, 128, source.bytes.data(), source_bytes, packed.data(), begin, end,
                                &format.error);
  };
  EXPECT_EQ(repack(64 * 18 - 1, 0, 64), TURBO_CORRUPT_INPUT);
  EXPECT_EQ(repack(0, 0, 64), TURBO_CORRUPT_INPUT);
  EXPECT_EQ(repack(64 * 18, 1, 64), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(repack(64 * 18, 0, 33), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(repack(64 * 18, 32, 96), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(repack(64 * 18, 64, 32), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(repack(64 * 18, 0, 64), TURBO_OK);
  EXPECT_EQ(
      format.table->repack(format.self, kQ1, 64, 129, source.bytes.data(), 64 * 18, packed.data(), 0, 64, nullptr),
      TURBO_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace turbo::testing
