// The weight formats of the hip tier through their ABI, on the fiber platform: packed forms, every choice of kernel, fusions
// against the same product taken apart, and what is refused.
#include <turbo/kernel/half.h>

#include <limits>
#include <random>

#include "support/fiber_device.h"

namespace turbo::testing {
namespace {

constexpr uint32_t kQ1 = TURBO_TYPE_Q1_0;

struct Type {
  uint32_t type, block, bytes;
};
constexpr Type kQ1Type = {kQ1, 128, 18};
constexpr Type kBasicTypes[] = {{TURBO_TYPE_F32, 1, 4}, {TURBO_TYPE_F16, 1, 2}, {TURBO_TYPE_BF16, 1, 2}, {TURBO_TYPE_Q8_0, 32, 34}, {TURBO_TYPE_Q4_0, 32, 18}};

std::vector<float> normal_values(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> v(n);
  for (float& x : v) x = normal(random);
  return v;
}

// A matrix as it stands in a file.
std::vector<uint8_t> source_of(const Type& t, uint64_t rows, uint64_t cols, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<uint8_t> bytes(rows * (cols / t.block) * t.bytes);
  for (uint64_t i = 0; i < bytes.size(); i += t.bytes) {
    const float v = normal(random) * 0.1f;
    if (t.type == TURBO_TYPE_F32) {
      std::memcpy(&bytes[i], &v, 4);
      continue;
    }
    uint32_t word;
    std::memcpy(&word, &v, 4);
    const uint16_t half = t.type == TURBO_TYPE_BF16 ? static_cast<uint16_t>(word >> 16) : turbo_f32_to_f16(v);
    std::memcpy(&bytes[i], &half, 2);
    for (uint32_t k = 2; k < t.bytes; ++k) bytes[i + k] = static_cast<uint8_t>(random());
  }
  return bytes;
}

std::vector<float> decode(const Type& t, const std::vector<uint8_t>& source, uint64_t cols, uint64_t row) {
  std::vector<float> out;
  for (uint64_t b = row * (cols / t.block); b < (row + 1) * (cols / t.block); ++b) {
    const uint8_t* const block = &source[b * t.bytes];
    uint16_t half;
    std::memcpy(&half, block, 2);
    const float s = turbo_f16_to_f32(half);
    if (t.type == TURBO_TYPE_F32) {
      float v;
      std::memcpy(&v, block, 4);
      out.push_back(v);
    } else if (t.type == TURBO_TYPE_F16) {
      out.push_back(s);
    } else if (t.type == TURBO_TYPE_BF16) {
      out.push_back(turbo_bf16_to_f32(half));
    } else if (t.type == kQ1) {
      for (uint32_t i = 0; i < 128; ++i) out.push_back(block[2 + i / 8] >> (i % 8) & 1 ? s : -s);
    } else if (t.type == TURBO_TYPE_Q8_0) {
      for (uint32_t i = 0; i < 32; ++i) out.push_back(static_cast<float>(static_cast<int8_t>(block[2 + i])) * s);
    } else {
      for (uint32_t i = 0; i < 32; ++i) out.push_back(static_cast<float>((i < 16 ? block[2 + i] & 15 : block[2 + i - 16] >> 4) - 8) * s);
    }
  }
  return out;
}

bool same(float a, float b) { return std::memcmp(&a, &b, 4) == 0 || (std::isnan(a) && std::isnan(b)); }

// A product of one matrix over rows of normal values.
struct Call {
  std::vector<float> x, out, norm, bias, residual;
  uint32_t live;
  turbo_device_matmul args{};

  Call(const turbo_matrix& matrix, uint32_t rows, uint32_t seed = 3) : x(normal_values(rows * matrix.cols, seed)), out(rows * matrix.rows, -7.f), live(rows) {
    args.struct_size = sizeof args;
    args.max_rows = rows;
    args.x_stride = args.cols = matrix.cols;
    args.eps = 1e-5f;
    args.n_matrices = 1;
    args.matrices[0] = &matrix;
    args.out_stride[0] = matrix.rows;
  }
  turbo_status run(DeviceFormat& format) {
    args.n_rows = &live;
    args.x = x.data();
    args.norm = norm.empty() ? nullptr : norm.data();
    args.bias[0] = bias.empty() ? nullptr : bias.data();
    args.out[0] = out.data();
    if (!residual.empty()) {
      args.fuse = TURBO_FUSE_ADD;
      args.residual = residual.data();
      args.residual_stride = args.matrices[0]->rows;
    }
    return format.matmul(args);
  }
};

void expect_decodes(DeviceFormat& format, const Type& t, uint64_t rows, uint64_t cols) {
  const auto source = source_of(t, rows, cols, static_cast<uint32_t>(cols));
  const auto packed = format.pack(t.type, rows, cols, source);
  std::vector<float> got(rows * cols);
  format.host->decode_rows(format.self, &packed.matrix, 0, rows, got.data());
  const std::vector<int32_t> ids = {static_cast<int32_t>(rows - 1), 0, -5, static_cast<int32_t>(rows)};
  std::vector<float> gathered(ids.size() * cols);
  const uint32_t live = static_cast<uint32_t>(ids.size());
  const turbo_device_gather args{sizeof args, live, &packed.matrix, ids.data(), &live, gathered.data(), cols, {}, nullptr};
  ASSERT_EQ(format.table->gather(format.self, nullptr, &args, &format.error), TURBO_OK);
  for (uint64_t row = 0; row < rows; ++row) {
    const auto want = decode(t, source, cols, row);
    for (uint64_t i = 0; i < cols; ++i) ASSERT_TRUE(same(got[row * cols + i], want[i])) << t.type << " row " << row << " " << i;
  }
  for (uint32_t r = 0; r < live; ++r) {
    const uint64_t row = ids[r] < 0 || static_cast<uint64_t>(ids[r]) >= rows ? 0 : static_cast<uint64_t>(ids[r]);
    for (uint64_t i = 0; i < cols; ++i) ASSERT_TRUE(same(gathered[r * cols + i], got[row * cols + i])) << t.type << " id " << ids[r];
  }
}

TEST(HipFormats, PackedFormsDecodeToTheFile) {
  FiberDevice device;
  {
    DeviceFormat q1("quant_q1g128", device), basic("quant_basic", device);
    for (const uint64_t rows : {1u, 16u, 33u})
      for (const uint64_t blocks : {1u, 3u}) {
        expect_decodes(q1, kQ1Type, rows, blocks * 128);
        for (const Type& t : kBasicTypes) expect_decodes(basic, t, rows, t.block == 1 ? 77 * blocks : t.block * blocks);
      }
    EXPECT_GT(device.modules, 0);
  }
  EXPECT_EQ(device.modules, 0);
}

// Every row count gives each row the bits that it has alone; close to doubles.
void expect_rows_alone(DeviceFormat& format, const Type& t, uint64_t rows, uint64_t cols, double tolerance, bool fused = true) {
  const auto source = source_of(t, rows, cols, 5);
  const auto packed = format.pack(t.type, rows, cols, source);
  Call all(packed.matrix, 20);
  if (fused) {
    all.norm = normal_values(cols, 6);
    all.residual = normal_values(20 * rows, 7);
  }
  all.bias = normal_values(rows, 8);
  ASSERT_EQ(all.run(format), TURBO_OK) << format.error.message;
  double error = 0, size = 0;
  for (uint32_t r = 0; r < 20; ++r) {
    double squares = 0;
    for (uint64_t i = 0; i < cols; ++i) squares += double{all.x[r * cols + i]} * all.x[r * cols + i];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(cols) + 1e-5);
    for (uint64_t o = 0; o < rows; ++o) {
      const auto w = decode(t, source, cols, o);
      double y = 0;
      for (uint64_t i = 0; i < cols; ++i) y += w[i] * (fused ? all.x[r * cols + i] * scale * all.norm[i] : double{all.x[r * cols + i]});
      double got = double{all.out[r * rows + o]} - all.bias[o];
      if (fused) got -= all.residual[r * rows + o];
      error += (got - y) * (got - y);
      size += y * y;
    }
  }
  EXPECT_LT(std::sqrt(error / size), tolerance) << "type " << t.type;
  for (const uint32_t n : {1u, 2u, 3u, 7u, 8u, 9u}) {
    Call some(packed.matrix, n);
    some.x.assign(all.x.begin() + static_cast<ptrdiff_t>(5 * cols), all.x.begin() + static_cast<ptrdiff_t>((5 + n) * cols));
    some.norm = all.norm;
    some.bias = all.bias;
    if (fused) some.residual.assign(all.residual.begin() + static_cast<ptrdiff_t>(5 * rows), all.residual.begin() + static_cast<ptrdiff_t>((5 + n) * rows));
    ASSERT_EQ(some.run(format), TURBO_OK) << format.error.message;
    for (uint64_t i = 0; i < n * rows; ++i) ASSERT_TRUE(same(some.out[i], all.out[5 * rows + i])) << "type " << t.type << ", " << n << " rows: " << i;
  }
}

TEST(HipFormats, RowsKeepTheirBitsAndAreClose) {
  FiberDevice device;
  DeviceFormat q1("quant_q1g128", device), basic("quant_basic", device);
  expect_rows_alone(q1, kQ1Type, 50, 640, 0.012);
  for (const Type& t : kBasicTypes) expect_rows_alone(basic, t, 21, t.block == 1 ? 203 : 1088, t.block == 1 ? 1e-6 : 0.012);
}

TEST(HipFormats, ExactActivations) {
  FiberDevice device;
  DeviceFormat q1("quant_q1g128", device, "f32"), basic("quant_basic", device, "f32");
  expect_rows_alone(q1, kQ1Type, 20, 256, 1e-6, false);
  for (const Type& t : {kBasicTypes[3], kBasicTypes[4]}) expect_rows_alone(basic, t, 20, 1088, 1e-6);
  const auto source = source_of(kQ1Type, 16, 128, 1);
  const auto packed = q1.pack(kQ1, 16, 128, source);
  Call call(packed.matrix, 1);
  call.norm = normal_values(128, 1);
  EXPECT_EQ(call.run(q1), TURBO_UNSUPPORTED);
}

TEST(HipFormats, Q1FollowsTheFormulaThroughEveryChoice) {
  // A few compute units make matrix products pay early, small shared memory narrows the matvec.
  std::vector<float> first;
  const uint64_t rows = 70, cols = 512;
  const auto source = source_of(kQ1Type, rows, cols, 9);
  std::vector<std::string> used;
  for (const uint32_t shared : {64u * 1024, 16u * 1024, 10u * 1024})
    for (const uint32_t units : {1u, 3u, 5u, 40u}) {
      FiberDevice device(units, shared);
      DeviceFormat format("quant_q1g128", device);
      const auto packed = format.pack(kQ1, rows, cols, source);
      for (const uint32_t n : {70u, 1u, 2u, 4u, 5u, 16u}) {
        Call call(packed.matrix, n);
        ASSERT_EQ(call.run(format), TURBO_OK) << format.error.message;
        if (first.empty()) first = call.out;
        Call whole(packed.matrix, 70);  // the same seed: its rows begin with the same values
        ASSERT_TRUE(std::equal(call.x.begin(), call.x.end(), whole.x.begin()));
        for (size_t i = 0; i < call.out.size(); ++i) ASSERT_TRUE(same(call.out[i], first[i])) << shared << " " << units << " " << n << " " << i;
      }
      for (const auto& launched : device.launched) used.push_back(launched.kernel);
    }
  for (const char* kernel : {"q1_matvec_1", "q1_matvec_2", "q1_matvec_4", "q1_gemm_2", "q1_gemm_4", "q1_prepare"})
    EXPECT_NE(std::find(used.begin(), used.end(), kernel), used.end()) << kernel;
}

TEST(HipFormats, Q1FusionsAreTheProductTakenApart) {
  FiberDevice device;
  DeviceFormat format("quant_q1g128", device);
  const uint64_t cols = 384;
  const auto gate = format.pack(kQ1, 40, cols, source_of(kQ1Type, 40, cols, 1)), up = format.pack(kQ1, 40, cols, source_of(kQ1Type, 40, cols, 2)),
             other = format.pack(kQ1, 17, cols, source_of(kQ1Type, 17, cols, 3));
  for (const uint32_t n : {1u, 4u, 40u, 130u}) {
    std::vector<Call> apart;
    for (const auto* m : {&gate, &up, &other}) {
      apart.emplace_back(m->matrix, n);
      apart.back().norm = normal_values(cols, 4);
      ASSERT_EQ(apart.back().run(format), TURBO_OK);
    }
    Call together(gate.matrix, n);
    together.norm = apart[0].norm;
    together.args.n_matrices = 3;
    together.args.matrices[1] = &up.matrix;
    together.args.matrices[2] = &other.matrix;
    std::vector<float> second(n * 40), third(n * 20);
    together.args.out[1] = second.data();
    together.args.out[2] = third.data();
    together.args.out_stride[1] = 40;
    together.args.out_stride[2] = 20;
    ASSERT_EQ(together.run(format), TURBO_OK) << format.error.message;
    for (uint32_t r = 0; r < n; ++r) {
      for (uint32_t o = 0; o < 40; ++o) ASSERT_TRUE(same(together.out[r * 40 + o], apart[0].out[r * 40 + o]) && same(second[r * 40 + o], apart[1].out[r * 40 + o]));
      for (uint32_t o = 0; o < 17; ++o) ASSERT_TRUE(same(third[r * 20 + o], apart[2].out[r * 17 + o]));
    }
    for (const uint32_t fuse : {TURBO_FUSE_SILU, TURBO_FUSE_GELU}) {
      Call gated(gate.matrix, n);
      gated.norm = apart[0].norm;
      gated.args.n_matrices = 2;
      gated.args.matrices[1] = &up.matrix;
      gated.args.fuse = fuse;
      ASSERT_EQ(gated.run(format), TURBO_OK) << format.error.message;
      for (size_t i = 0; i < gated.out.size(); ++i) {
        const float g = apart[0].out[i], u = apart[1].out[i];
        const float two_u = 1.5957691216057308f * (g * std::fmaf(0.044715f, g * g, 1.f));
        const float want = (g / (1.f + std::exp(-(fuse == TURBO_FUSE_SILU ? g : two_u)))) * u;
        ASSERT_TRUE(same(gated.out[i], want)) << gated.out[i] << " " << want;
      }
    }
  }
}

TEST(HipFormats, RefusesWhatItCannotServe) {
  FiberDevice device;
  DeviceFormat q1("quant_q1g128", device), basic("quant_basic", device);
  uint64_t bytes, alignment;
  uint32_t tile;
  const auto size = [&](DeviceFormat& f, uint32_t type, uint64_t rows, uint64_t cols) {
    return f.host->packed_size(f.self, type, rows, cols, &bytes, &alignment, &tile, &f.error);
  };
  EXPECT_EQ(size(q1, kQ1, 4, 100), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(size(q1, kQ1, 0, 128), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(size(q1, kQ1, uint64_t{1} << 60, 128), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(size(q1, kQ1, 128, uint64_t{1} << 60), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(size(q1, TURBO_TYPE_Q8_0, 4, 128), TURBO_UNSUPPORTED);
  EXPECT_EQ(size(basic, TURBO_TYPE_Q4_0, 4, 33), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(size(basic, TURBO_TYPE_F32, uint64_t{1} << 62, 4), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(size(basic, TURBO_TYPE_F32, uint64_t{1} << 31, uint64_t{1} << 31), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(size(basic, kQ1, 4, 128), TURBO_UNSUPPORTED);

  const auto source = source_of(kQ1Type, 16, 128, 1);
  std::vector<uint8_t> packed(16 * 18);
  EXPECT_EQ(q1.host->repack(q1.self, kQ1, 16, 128, source.data(), source.size() - 1, packed.data(), 0, 16, &q1.error), TURBO_CORRUPT_INPUT);
  EXPECT_EQ(q1.host->repack(q1.self, kQ1, 16, 128, source.data(), source.size(), packed.data(), 1, 16, &q1.error), TURBO_INVALID_ARGUMENT);
  const std::vector<uint8_t> floats(15);
  EXPECT_EQ(basic.host->repack(basic.self, TURBO_TYPE_F32, 2, 2, floats.data(), floats.size(), packed.data(), 0, 2, &basic.error), TURBO_CORRUPT_INPUT);

  const auto a = q1.pack(kQ1, 16, 128, source), b = q1.pack(kQ1, 32, 128, source_of(kQ1Type, 32, 128, 2)),
             wide = q1.pack(kQ1, 16, 256, source_of(kQ1Type, 16, 256, 2));
  const auto check = [&](auto change) {
    Call call(a.matrix, 2);
    change(call.args);
    return q1.table->check(q1.self, &call.args, &q1.error);
  };
  EXPECT_EQ(check([](auto&) {}), TURBO_OK);
  EXPECT_EQ(check([](auto& args) { args.max_rows = 0; }), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(check([](auto& args) { args.n_matrices = 5; }), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(check([](auto& args) { args.n_matrices = 2; }), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(check([](auto& args) { args.x_stride = 100; }), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(check([](auto& args) { args.fuse = 9; }), TURBO_UNSUPPORTED);
  EXPECT_EQ(check([](auto& args) { args.fuse = TURBO_FUSE_SILU; }), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(check([&](auto& args) { args.matrices[0] = &wide.matrix; }), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(check([&](auto& args) {
              args.n_matrices = 2;
              args.matrices[1] = &b.matrix;
              args.fuse = TURBO_FUSE_SILU;
            }),
            TURBO_INVALID_ARGUMENT);
  const auto plain_source = source_of(kBasicTypes[0], 4, 4, 1);
  const auto plain = basic.pack(TURBO_TYPE_F32, 4, 4, plain_source);
  Call two(plain.matrix, 1);
  two.args.n_matrices = 2;
  two.args.matrices[1] = &plain.matrix;
  EXPECT_EQ(basic.table->check(basic.self, &two.args, &basic.error), TURBO_UNSUPPORTED);

  EXPECT_NE(DeviceFormat("quant_q1g128", device, "f16").status, TURBO_OK);
}

TEST(HipFormats, BrokenInputsFaultNothing) {
  FiberDevice device;
  DeviceFormat q1("quant_q1g128", device), basic("quant_basic", device);
  for (const Type& t : {kQ1Type, kBasicTypes[0], kBasicTypes[1], kBasicTypes[3], kBasicTypes[4]}) {
    DeviceFormat& format = t.type == kQ1 ? q1 : basic;
    const uint64_t cols = 256;
    const auto packed = format.pack(t.type, 20, cols, source_of(t, 20, cols, 1));
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      Call call(packed.matrix, 3);
      call.x[cols + 7] = bad;
      call.x[2 * cols] = 0;
      ASSERT_EQ(call.run(format), TURBO_OK) << format.error.message;
      for (uint64_t o = 0; o < 20; ++o) {
        EXPECT_TRUE(std::isfinite(call.out[o]) && std::isfinite(call.out[40 + o]));
        EXPECT_FALSE(std::isfinite(call.out[20 + o])) << t.type;
      }
    }
  }
}

// A plugin's halves are one format: the same options and types, and the same shapes and values refused in the same words.
TEST(HipFormats, BothHalvesOfAPluginSayTheSame) {
  FiberDevice device;
  for (const char* folder : {"quant_basic", "quant_q1g128"}) {
    DeviceFormat hip(folder, device);
    Format cpu(folder, "scalar");
    EXPECT_STREQ(hip.option_schema(), load_plugin(folder)->components[0].option_schema) << folder;
    const turbo_type_info *of_hip = nullptr, *of_cpu = nullptr;
    uint32_t n_hip = 0, n_cpu = 0;
    ASSERT_EQ(hip.host->types(hip.self, &of_hip, &n_hip), TURBO_OK);
    ASSERT_EQ(cpu.table->types(cpu.self, &of_cpu, &n_cpu), TURBO_OK);
    ASSERT_EQ(n_hip, n_cpu);
    for (uint32_t i = 0; i < n_hip; ++i) {
      EXPECT_EQ(of_hip[i].type, of_cpu[i].type);
      EXPECT_STREQ(of_hip[i].name, of_cpu[i].name);
      EXPECT_EQ(of_hip[i].block_weights, of_cpu[i].block_weights);
      EXPECT_EQ(of_hip[i].block_bytes, of_cpu[i].block_bytes);
    }
    const uint32_t grouped = of_hip[n_hip - 1].type;
    for (const auto& [type, rows, cols] : {std::tuple{999u, 4ul, 256ul}, std::tuple{grouped, 0ul, 256ul}, std::tuple{grouped, 4ul, 0ul}, std::tuple{grouped, 4ul, 65ul}}) {
      uint64_t bytes = 0, alignment = 0;
      uint32_t tile = 0;
      EXPECT_NE(hip.host->packed_size(hip.self, type, rows, cols, &bytes, &alignment, &tile, &hip.error), TURBO_OK);
      EXPECT_NE(cpu.packed_size(type, rows, cols), TURBO_OK);
      EXPECT_STREQ(hip.error.message, cpu.error.message);
    }
    const std::vector<uint8_t> source(64 * 1024);
    for (const auto& [bytes, begin, end] : {std::tuple{10ul, 0ul, 32ul}, std::tuple{source.size(), 8ul, 4ul}, std::tuple{source.size(), 0ul, 33ul}}) {
      std::vector<uint8_t> packed(128 * 1024);
      EXPECT_NE(hip.host->repack(hip.self, grouped, 32, 256, source.data(), bytes, packed.data(), begin, end, &hip.error), TURBO_OK);
      EXPECT_NE(cpu.table->repack(cpu.self, grouped, 32, 256, source.data(), bytes, packed.data(), begin, end, &cpu.error), TURBO_OK);
      if (std::string(folder) == "quant_basic") { EXPECT_STREQ(hip.error.message, cpu.error.message); }
    }
    DeviceFormat no_hip(folder, device, "int4");
    Format no_cpu(folder, "scalar", "int4");
    EXPECT_NE(no_hip.status, TURBO_OK);
    EXPECT_STREQ(no_hip.error.message, no_cpu.error.message);
    EXPECT_STREQ(no_hip.error.hint, no_cpu.error.hint);
  }
}

}  // namespace
}  // namespace turbo::testing
