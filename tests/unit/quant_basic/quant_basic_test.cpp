// The basic plugin against its definition, written out from the file's bytes, on every instruction set of the machine.
#include <turbo/kernel/half.h>
#include <turbo/kernel/lanes.h>

#include <random>

#include "support/weight_format_host.h"

namespace turbo::testing {
namespace {

constexpr const char* kFolder = "quant_basic";
constexpr uint32_t kTypes[] = {TURBO_TYPE_F32, TURBO_TYPE_F16, TURBO_TYPE_BF16, TURBO_TYPE_Q8_0, TURBO_TYPE_Q4_0};

bool quantized(uint32_t type) { return type == TURBO_TYPE_Q8_0 || type == TURBO_TYPE_Q4_0; }
uint64_t block_weights(uint32_t type) { return quantized(type) ? 32 : 1; }
uint64_t block_bytes(uint32_t type) {
  return type == TURBO_TYPE_F32 ? 4 : type == TURBO_TYPE_Q8_0 ? 34 : type == TURBO_TYPE_Q4_0 ? 18 : 2;
}

// Random matrix at an odd address: in a file, nothing keeps tensors aligned for these types.
struct Source {
  Source(uint32_t type, uint64_t rows, uint64_t cols, uint64_t seed)
      : type(type), rows(rows), cols(cols), storage(1 + rows * cols / block_weights(type) * block_bytes(type)) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    uint8_t* p = storage.data() + 1;
    for (uint64_t i = 0; i < rows * cols / block_weights(type); ++i, p += block_bytes(type)) {
      const float value = random() % 13 == 0 ? 0.0f : normal(random) * (quantized(type) ? 0.01f : 1.0f);
      const uint16_t half = type == TURBO_TYPE_BF16 ? turbo_f32_to_bf16(value) : turbo_f32_to_f16(value);
      if (type == TURBO_TYPE_F32)
        std::memcpy(p, &value, 4);
      else
        std::memcpy(p, &half, 2);
      for (uint64_t k = 2; quantized(type) && k < block_bytes(type); ++k) p[k] = static_cast<uint8_t>(random());
    }
  }
  const uint8_t* data() const { return storage.data() + 1; }
  uint64_t bytes() const { return storage.size() - 1; }
  const uint8_t* block(uint64_t row, uint64_t j) const {
    return data() + (row * cols + j) / block_weights(type) * block_bytes(type);
  }
  float scale(uint64_t row, uint64_t j) const {
    uint16_t half;
    std::memcpy(&half, block(row, j), 2);
    return turbo_f16_to_f32(half);
  }
  int integer(uint64_t row, uint64_t j) const {
    const uint8_t* codes = block(row, j) + 2;
    if (type == TURBO_TYPE_Q8_0) return static_cast<int8_t>(codes[j % 32]);
    return j % 32 < 16 ? (codes[j % 32] & 15) - 8 : (codes[j % 32 - 16] >> 4) - 8;
  }
  float weight(uint64_t row, uint64_t j) const {
    if (quantized(type)) return static_cast<float>(integer(row, j)) * scale(row, j);
    if (type == TURBO_TYPE_F32) {
      float f;
      std::memcpy(&f, block(row, j), 4);
      return f;
    }
    uint16_t half;
    std::memcpy(&half, block(row, j), 2);
    return type == TURBO_TYPE_F16 ? turbo_f16_to_f32(half) : turbo_bf16_to_f32(half);
  }
  std::vector<float> decode(uint64_t row) const {
    std::vector<float> w(cols);
    for (uint64_t j = 0; j < cols; ++j) w[j] = weight(row, j);
    return w;
  }
  uint32_t type;
  uint64_t rows, cols;
  std::vector<uint8_t> storage;
};

std::vector<float> normal_rows(uint64_t n, uint64_t cols, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n * cols);
  for (float& v : x) v = normal(random);
  return x;
}

std::vector<float> expected_i8(const Source& s, const std::vector<float>& x) {
  std::vector<float> out;
  for (uint64_t r = 0; r < x.size() / s.cols; ++r) {
    const QuantizedRow row(x.data() + r * s.cols, s.cols, 32);
    for (uint64_t o = 0; o < s.rows; ++o) {
      float acc = 0;
      for (uint64_t g = 0; g < s.cols / 32; ++g) {
        int sum = 0;
        for (uint64_t j = g * 32; j < g * 32 + 32; ++j) sum += s.integer(o, j) * row.q[j];
        acc = std::fmaf(static_cast<float>(sum), s.scale(o, g * 32) * row.scale[g], acc);
      }
      out.push_back(acc);
    }
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

struct Case {
  std::string isa, activations;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& isa : machine_isas())
    for (const char* activations : {"int8", "f32"}) all.push_back({isa, activations});
  return all;
}

class Basic : public ::testing::TestWithParam<Case> {
 protected:
  std::vector<float> expected(const Source& s, const std::vector<float>& x) const {
    return quantized(s.type) && GetParam().activations == "int8" ? expected_i8(s, x) : expected_f32(s, x);
  }
  Format format{kFolder, GetParam().isa, GetParam().activations};
};
INSTANTIATE_TEST_SUITE_P(Isa, Basic, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.isa + "_" + info.param.activations; });

TEST_P(Basic, DecodesExactly) {
  for (uint32_t type : kTypes) {
    const Source source(type, 37, 96, type);
    PackedMatrix m(format, type, source.rows, source.cols, source.data(), source.bytes());
    std::vector<float> got(2 * source.cols);
    for (uint64_t row = 0; row + 2 <= source.rows; ++row) {
      format.table->decode_rows(format.self, &m.matrix, row, row + 2, got.data());
      const std::vector<float> second(got.begin() + source.cols, got.end());
      ASSERT_TRUE(same_bits(second, source.decode(row + 1))) << "type " << type << " row " << row + 1;
    }
  }
}

TEST_P(Basic, EqualsItsDefinition) {
  const struct {
    uint64_t rows, cols;
    std::vector<uint32_t> n;
  } shapes[] = {{1, 32, {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 64}},
                {15, 64, {1, 4, 9}},
                {16, 96, {1, 8, 10}},
                {17, 2048, {1, 2, 17}},
                {50, 256, {3, 5, 6}},
                {251, 128, {1, 7}},
                {20, 6144, {1, 11}}};
  for (uint32_t type : kTypes)
    for (const auto& shape : shapes) {
      const Source source(type, shape.rows, shape.cols, shape.rows);
      PackedMatrix m(format, type, shape.rows, shape.cols, source.data(), source.bytes());
      EXPECT_EQ(m.matrix.packed_bytes,
                quantized(type) ? (shape.rows + 15) / 16 * 16 * shape.cols / 32 * block_bytes(type) : 0);
      for (uint32_t n : shape.n) {
        const std::vector<float> x = normal_rows(n, shape.cols, n);
        ASSERT_TRUE(same_bits(format.matmul(m.matrix, x), expected(source, x)))
            << "type " << type << ", " << shape.rows << " x " << shape.cols << ", n " << n;
      }
    }
}

// Row lengths of the plain types need not be multiples of anything; the lanes without an input keep even a -0.
TEST_P(Basic, RaggedColumns) {
  for (uint32_t type : {TURBO_TYPE_F32, TURBO_TYPE_F16, TURBO_TYPE_BF16})
    for (uint64_t cols = 1; cols < 70; ++cols) {
      Source source(type, 9, cols, cols);
      PackedMatrix m(format, type, 9, cols, source.data(), source.bytes());
      std::vector<float> x = normal_rows(5, cols, 2);
      for (uint64_t j = 0; j < cols; j += 3) x[j] = j % 2 ? -1e-44f : 1e-44f;
      ASSERT_TRUE(same_bits(format.matmul(m.matrix, x), expected_f32(source, x)))
          << "type " << type << " cols " << cols;
    }
}

TEST_P(Basic, RangesAndRowCountsDoNotChangeBits) {
  for (uint32_t type : kTypes) {
    const Source source(type, 53, 96, 9);
    PackedMatrix m(format, type, source.rows, source.cols, source.data(), source.bytes());
    const std::vector<float> x = normal_rows(11, source.cols, 11), whole = format.matmul(m.matrix, x);
    const Buffer all = format.prepare(type, x, source.cols);
    std::vector<uint64_t> edges;
    for (uint64_t edge = 0; edge < source.rows; edge += format.tile) edges.push_back(edge);
    edges.push_back(source.rows);
    for (uint64_t begin : edges)
      for (uint64_t end : edges)
        for (uint32_t n : {1u, 3u, 11u}) {
          const uint64_t stride = source.rows + 3;
          std::vector<float> out(n * stride, 777.0f);
          format.matmul(m.matrix, all, n, out.data(), stride, begin, end);
          for (uint64_t r = 0; r < n; ++r)
            for (uint64_t o = 0; o < stride; ++o)
              ASSERT_TRUE(same_bits(out[r * stride + o], o >= begin && o < end ? whole[r * source.rows + o] : 777.0f))
                  << "type " << type << " " << begin << ".." << end << " n " << n << " row " << r << " output " << o;
        }
    for (uint64_t r = 0; r < 11; ++r) {
      const std::vector<float> row(x.begin() + r * source.cols, x.begin() + (r + 1) * source.cols);
      ASSERT_TRUE(same_bits(format.matmul(m.matrix, row),
                            {whole.begin() + r * source.rows, whole.begin() + (r + 1) * source.rows}));
    }
  }
}

// Codes and activations at their extremes, where narrower sums would overflow.
TEST_P(Basic, ExtremeCodes) {
  for (uint32_t type : {TURBO_TYPE_Q8_0, TURBO_TYPE_Q4_0})
    for (uint8_t code : {0x80, 0x7f, 0x81, 0x00, 0xff, 0xf0, 0x0f}) {
      Source source(type, 16, 64, 1);
      for (uint64_t b = 0; b < source.bytes() / block_bytes(type); ++b)
        std::memset(source.storage.data() + 1 + b * block_bytes(type) + 2, code, block_bytes(type) - 2);
      PackedMatrix m(format, type, 16, 64, source.data(), source.bytes());
      std::vector<float> x(3 * 64, 5.0f);
      for (uint64_t j = 0; j < 64; ++j) x[64 + j] = -5.0f, x[128 + j] = j % 2 ? 5.0f : -5.0f;
      ASSERT_TRUE(same_bits(format.matmul(m.matrix, x), expected(source, x)))
          << "type " << type << " code " << int{code};
    }
}

TEST_P(Basic, UnusualNumbers) {
  const float inf = INFINITY, values[] = {0.0f, -0.0f, 1e-45f, 1.5e-36f, 3.4e38f, inf, -inf, NAN};
  for (uint32_t type : kTypes) {
    Source source(type, 18, 64, 4);
    const uint16_t odd[] = {0x7c00, 0x7e00, 0x8001};  // scales of the quantized types, weights of the plain ones
    for (uint64_t i = 0; i < 3; ++i)
      std::memcpy(source.storage.data() + 1 + i * 64 / block_weights(type) * block_bytes(type), odd + i, 2);
    PackedMatrix m(format, type, source.rows, source.cols, source.data(), source.bytes());
    std::vector<float> x;
    for (float v : values) {
      std::vector<float> row = normal_rows(1, 64, 1);
      row[40] = v;
      x.insert(x.end(), row.begin(), row.end());
      for (float& each : row) each = v;
      x.insert(x.end(), row.begin(), row.end());
    }
    EXPECT_TRUE(same_bits(format.matmul(m.matrix, x), expected(source, x))) << "type " << type;
  }
}

TEST(BasicAccuracy, Int8StaysCloseToFloat) {
  for (uint32_t type : {TURBO_TYPE_Q8_0, TURBO_TYPE_Q4_0}) {
    Format fast(kFolder, ""), exact(kFolder, "", "f32");
    EXPECT_STREQ(exact.table->activation_id(exact.self, type), "f32");
    EXPECT_STRNE(fast.table->activation_id(fast.self, type), "f32");
    EXPECT_STREQ(fast.table->activation_id(fast.self, TURBO_TYPE_F16), "f32");
    const Source source(type, 128, 2048, 16);
    PackedMatrix a(fast, type, source.rows, source.cols, source.data(), source.bytes());
    PackedMatrix b(exact, type, source.rows, source.cols, source.data(), source.bytes());
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
}

TEST(BasicPlugin, Describes) {
  const turbo_plugin* plugin = load_plugin(kFolder);
  ASSERT_NE(plugin, nullptr);
  EXPECT_STREQ(plugin->id, "dev.turbo.quant_basic");
  EXPECT_EQ(load_plugin(kFolder, TURBO_ABI_MAJOR + 1), nullptr);
  Format format(kFolder, "");
  const turbo_type_info* types;
  uint32_t n = 0;
  ASSERT_EQ(format.table->types(format.self, &types, &n), TURBO_OK);
  ASSERT_EQ(n, 5u);
  for (uint32_t i = 0; i < n; ++i) {
    EXPECT_EQ(types[i].block_weights, block_weights(types[i].type));
    EXPECT_EQ(types[i].block_bytes, block_bytes(types[i].type));
    EXPECT_EQ(format.table->activation_bytes(format.self, types[i].type, 96) % 64, 0u);
  }
  EXPECT_EQ(Format(kFolder, "neon").status, TURBO_UNSUPPORTED);
  EXPECT_EQ(Format(kFolder, "", "int4").status, TURBO_INVALID_ARGUMENT);
}

TEST(BasicPlugin, RefusesWhatItCannotHold) {
  Format format(kFolder, "");
  EXPECT_EQ(format.packed_size(TURBO_TYPE_Q1_0, 4, 128), TURBO_UNSUPPORTED);
  EXPECT_EQ(format.packed_size(TURBO_TYPE_Q8_0, 4, 33), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(format.packed_size(TURBO_TYPE_Q4_0, 4, 16), TURBO_INVALID_ARGUMENT);
  for (uint32_t type : kTypes) {
    EXPECT_EQ(format.packed_size(type, 0, 64), TURBO_INVALID_ARGUMENT);
    EXPECT_EQ(format.packed_size(type, 4, 0), TURBO_INVALID_ARGUMENT);
    EXPECT_EQ(format.packed_size(type, UINT64_MAX, 64), TURBO_INVALID_ARGUMENT);
    EXPECT_EQ(format.packed_size(type, 1ull << 40, 1ull << 40), TURBO_INVALID_ARGUMENT);
    EXPECT_EQ(format.packed_size(type, 1, 1ull << 63), TURBO_INVALID_ARGUMENT);
    const Source source(type, 32, 64, 1);
    Buffer packed(source.bytes());
    const auto repack = [&](uint64_t bytes, uint64_t begin, uint64_t end) {
      return format.table->repack(format.self, type, 32, 64, source.data(), bytes, packed.data(), begin, end,
                                  &format.error);
    };
    EXPECT_EQ(repack(source.bytes() - 1, 0, 32), TURBO_CORRUPT_INPUT);
    EXPECT_EQ(repack(source.bytes(), 2, 32), TURBO_INVALID_ARGUMENT);
    EXPECT_EQ(repack(source.bytes(), 0, 17), TURBO_INVALID_ARGUMENT);
    EXPECT_EQ(repack(source.bytes(), 16, 48), TURBO_INVALID_ARGUMENT);
    EXPECT_EQ(repack(source.bytes(), 16, 32), TURBO_OK);
  }
}

}  // namespace
}  // namespace turbo::testing
