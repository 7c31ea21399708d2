// The kernels of Q1_0 as fibers: against the formula bit by bit, against doubles, and against each other over row counts,
// variants, grids and fusions. Every buffer is exactly as long as it must be, so a sanitizer sees any other address.
#include <gtest/gtest.h>

#include <turbo/kernel/half.h>

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "../../../plugins/quant_q1g128/hip/product.hip"
#include "../../../plugins/quant_q1g128/hip/rows.hip"

namespace {

using namespace turbo::gpu;
using q1::Matrix;

struct Weights {
  uint32_t rows, groups;
  std::vector<uint8_t> packed;
  std::vector<uint8_t> bits;     // [rows][cols]
  std::vector<float> scale;      // [rows][groups]

  Weights(uint32_t rows, uint32_t groups, uint32_t seed) : rows(rows), groups(groups) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    bits.resize(size_t{rows} * groups * 128);
    scale.resize(size_t{rows} * groups);
    packed.assign(q1::packed_bytes(rows, groups), 0);
    for (auto& b : bits) b = random() & 1;
    for (uint32_t r = 0; r < rows; ++r)
      for (uint32_t g = 0; g < groups; ++g) {
        const uint16_t half = turbo_f32_to_f16(normal(random) * 0.05f);
        scale[r * groups + g] = turbo_f16_to_f32(half);
        const uint64_t at = q1::word_of(r, g, groups);
        std::memcpy(&packed[q1::sign_bytes(rows, groups) + 2 * at], &half, 2);
        for (uint32_t i = 0; i < 128; ++i) {
          const uint32_t bit = i / 32 + (i / 16 % 2 ? 4 : 0);
          packed[at * 16 + i % 16] |= bits[(size_t{r} * groups + g) * 128 + i] << bit;
        }
      }
  }
  Matrix matrix() const { return {packed.data(), packed.data() + q1::sign_bytes(rows, groups), nullptr, nullptr, rows, rows, 0}; }
};

float tree(std::vector<float> lanes) {
  std::vector<float> next(32);
  for (uint32_t m = 16; m; m >>= 1) {
    for (uint32_t i = 0; i < 32; ++i) next[i] = lanes[i] + lanes[i ^ m];
    lanes = next;
  }
  return lanes[0];
}

// A row as bytes.
struct Bytes {
  std::vector<int> q;
  std::vector<float> scale, squares;
};
Bytes bytes_of(const float* x, const float* norm, uint32_t cols) {
  Bytes b{std::vector<int>(cols), {}, {}};
  for (uint32_t first = 0; first < cols; first += 32) {
    float largest = 0;
    bool finite = true;
    std::vector<float> y(32), squares(32);
    for (uint32_t i = 0; i < 32; ++i) {
      y[i] = x[first + i] * (norm ? norm[first + i] : 1.f);
      squares[i] = x[first + i] * x[first + i];
      finite = finite && std::isfinite(y[i]);
      largest = std::max(largest, std::fabs(y[i]));
    }
    b.squares.push_back(tree(squares));
    float scale = largest * (1 / 127.f);
    if (!finite) scale = std::numeric_limits<float>::quiet_NaN();
    if (finite && scale < std::numeric_limits<float>::min()) scale = 0;
    b.scale.push_back(scale);
    if (!(scale > 0)) continue;
    const float inverse = 127.f / largest;
    for (uint32_t i = 0; i < 32; ++i) b.q[first + i] = static_cast<int>(std::nearbyint(std::min(127.f, std::max(-127.f, y[i] * inverse))));
  }
  return b;
}
float factor_of(const Bytes& b, float eps) {
  std::vector<float> lanes(32);
  for (size_t i = 0; i < b.squares.size(); ++i) lanes[i % 32] += b.squares[i];
  return 1.f / std::sqrt(tree(lanes) / static_cast<float>(b.q.size()) + eps);
}

// The formula, for one row of activations.
std::vector<float> reference(const Weights& w, const float* x, const float* norm, float eps) {
  const uint32_t cols = w.groups * 128, length = (w.groups + 31) / 32;
  const Bytes b = bytes_of(x, norm, cols);
  std::vector<float> out(w.rows);
  for (uint32_t o = 0; o < w.rows; ++o) {
    float f = 0;
    for (uint32_t s = 0; s * length < w.groups; ++s) {
      float acc = 0;
      for (uint32_t g = s * length; g < std::min(w.groups, (s + 1) * length); ++g) {
        float base = 0;
        for (uint32_t t = 0; t < 4; ++t) {
          int sum = 0;
          for (uint32_t i = 0; i < 32; ++i) sum += b.q[g * 128 + t * 32 + i];
          base = std::fmaf(b.scale[g * 4 + t], static_cast<float>(sum), base);
        }
        float inner = -base;
        for (uint32_t t = 0; t < 4; ++t) {
          int sum = 0;  // under set bits
          for (uint32_t i = g * 128 + t * 32; i < g * 128 + t * 32 + 32; ++i) sum += w.bits[size_t{o} * cols + i] ? b.q[i] : 0;
          inner = std::fmaf(2 * b.scale[g * 4 + t], static_cast<float>(sum), inner);
        }
        acc = std::fmaf(w.scale[o * w.groups + g], inner, acc);
      }
      f += acc;
    }
    out[o] = norm ? f * factor_of(b, eps) : f;
  }
  return out;
}

const fiber::Kernel& matvec_kernel(uint32_t rows) {
  return rows == 1 ? tb_entry_q1_matvec_1 : rows == 2 ? tb_entry_q1_matvec_2 : tb_entry_q1_matvec_4;
}

const fiber::Kernel& gemm_kernel(uint32_t lane_rows) {
  return lane_rows == 2 ? tb_entry_q1_gemm_2 : tb_entry_q1_gemm_4;
}

enum class Way { matvec, gemm };
constexpr uint32_t kLaneRows[] = {2, 4};  // of the matrix products
std::vector<std::pair<Way, uint32_t>> ways(uint32_t matvec_width) {
  std::vector<std::pair<Way, uint32_t>> all = {{Way::matvec, matvec_width}};
  for (const uint32_t lane_rows : kLaneRows) all.push_back({Way::gemm, lane_rows});
  return all;
}

// Rows of bytes with memory of exactly their size, each plane by itself.
struct ByteRows {
  std::vector<int8_t> codes;
  std::vector<Q8Scale> scales;
  std::vector<float> squares;
  uint32_t tiles;

  ByteRows(uint32_t rows, uint32_t cols)
      : codes(size_t{rows} * cols, 99), scales(size_t{rows} * cols / 32, {-9.f, 0.f}), squares(size_t{rows} * cols / 32, -9.f), tiles(cols / 32) {}
  Q8Rows view() { return {codes.data(), scales.data(), squares.data(), tiles}; }
};

// A product over weights of one K; outputs in `out`, one exact-sized vector a matrix.
struct Case {
  std::vector<const Weights*> weights;
  std::vector<float> x, norm, residual;
  std::vector<std::vector<float>> bias, out;
  std::vector<int32_t> x_rows;
  std::vector<float> out_norm;
  std::unique_ptr<ByteRows> out_bytes;  // wanted when set
  uint32_t rows = 1, live = 1, fuse = 0, teams = 1;
  float eps = 1e-6f;

  uint32_t groups() const { return weights[0]->groups; }

  // width: rows that a matvec computes at once, or a lane of a matrix product.
  void run(Way way, uint32_t width, uint32_t blocks) {
    q1::Product p{};
    for (Matrix& absent : p.matrix) absent.first_unit = q1::kNoUnit;
    out.clear();
    for (size_t i = 0; i < weights.size(); ++i) {
      p.matrix[i] = weights[i]->matrix();
      p.matrix[i].first_unit = p.n_units;
      p.n_units += q1::units_of(weights[i]->rows);
      const bool has_out = i == 0 || fuse < q1::fuse_silu;
      out.emplace_back(has_out ? size_t{rows} * weights[i]->rows : 0, -7.f);
      if (!bias.empty()) p.matrix[i].bias = bias[i].data();
    }
    if (fuse >= q1::fuse_silu) p.n_units /= 2;
    for (size_t i = 0; i < weights.size(); ++i) p.matrix[i].out = out[i].data();
    if (fuse == q1::fuse_add) {
      out[0] = residual;
      p.matrix[0].out = out[0].data();
      p.residual = out[0].data();
      p.residual_stride = weights[0]->rows;
    }
    const uint32_t cols = groups() * 128, in_rows = static_cast<uint32_t>(x.size() / cols);
    ByteRows in(in_rows, cols);
    const uint32_t prepared = x_rows.empty() ? live : in_rows;
    const q1::Prepare prepare{x.data(), cols, norm.empty() ? nullptr : norm.data(), &prepared, nullptr, in.view()};
    fiber::run(tb_entry_q1_prepare, {in_rows, 1, 1}, q1::kPrepareThreads, 0, &prepare, false);
    p.codes = in.codes.data();
    p.scales = in.scales.data();
    p.squares = norm.empty() ? nullptr : in.squares.data();
    p.x_rows = x_rows.empty() ? nullptr : x_rows.data();
    p.n_rows = &live;
    p.eps = eps;
    p.n_groups = groups();
    p.n_matrices = static_cast<uint32_t>(weights.size());
    p.max_rows = rows;
    p.fuse = fuse;
    if (out_bytes) {
      *out_bytes = ByteRows(rows, weights[0]->rows);
      p.out_q8 = out_bytes->view();
      p.out_norm = out_norm.empty() ? nullptr : out_norm.data();
    }
    if (way == Way::gemm) {
      const uint32_t x_blocks = fuse >= q1::fuse_silu ? p.n_units : (p.n_units + 1) / 2;
      fiber::run(gemm_kernel(width), {x_blocks, (rows + q1::gemm_rows(width) - 1) / q1::gemm_rows(width), 1}, q1::kGemmThreads, 0, &p, false);
    } else {
      const uint32_t n_teams = std::min(teams, q1::most_teams(groups())), waves = n_teams * q1::team_waves(groups());
      // One team also with waves beyond it, as many as a block may have.
      const uint32_t spare = teams == 1 && p.squares && width < q1::team_waves(groups()) ? std::min(width, q1::kMatvecThreads / 32 - waves) : 0;
      fiber::run(matvec_kernel(width), {std::min(blocks, p.n_units), (rows + width - 1) / width, 1}, (waves + spare) * 32,
                 q1::matvec_shared_bytes(width, groups(), n_teams), &p, false);
    }
  }
};

std::vector<float> normal_values(size_t n, uint32_t seed, float size = 1.f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> v(n);
  for (auto& x : v) x = normal(random) * size;
  return v;
}

bool same(float a, float b) { return bits(a) == bits(b) || (std::isnan(a) && std::isnan(b)); }

void expect_reference(const Case& c, const char* what) {
  const uint32_t cols = c.groups() * 128;
  for (uint32_t r = 0; r < c.live; ++r) {
    std::vector<std::vector<float>> want;
    for (size_t m = 0; m < c.weights.size(); ++m) {
      want.push_back(reference(*c.weights[m], &c.x[size_t{c.x_rows.empty() ? r : static_cast<uint32_t>(c.x_rows[r])} * cols], c.norm.empty() ? nullptr : c.norm.data(), c.eps));
      if (!c.bias.empty())
        for (uint32_t o = 0; o < c.weights[m]->rows; ++o) want[m][o] += c.bias[m][o];
    }
    for (size_t m = 0; m < (c.fuse >= q1::fuse_silu ? 1 : c.weights.size()); ++m)
      for (uint32_t o = 0; o < c.weights[m]->rows; ++o) {
        float y = want[m][o];
        if (c.fuse == q1::fuse_add) y = c.residual[size_t{r} * c.weights[0]->rows + o] + y;
        if (c.fuse == q1::fuse_silu) y = silu_mul(y, want[1][o]);
        if (c.fuse == q1::fuse_gelu) y = gelu_mul(y, want[1][o]);
        ASSERT_TRUE(same(y, c.out[m][size_t{r} * c.weights[m]->rows + o]))
            << what << ": matrix " << m << " row " << r << " output " << o << ": " << c.out[m][size_t{r} * c.weights[m]->rows + o]
            << ", formula " << y;
      }
  }
}

void expect_bytes(const ByteRows& got, uint32_t row, const float* x, const float* norm) {
  const uint32_t cols = got.tiles * 32;
  const Bytes want = bytes_of(x, norm, cols);
  for (uint32_t i = 0; i < cols; ++i) ASSERT_EQ(want.q[i], got.codes[size_t{row} * cols + i]) << "row " << row << " column " << i;
  for (uint32_t t = 0; t < got.tiles; ++t) {
    int sum = 0;
    for (uint32_t i = 0; i < 32; ++i) sum += want.q[t * 32 + i];
    const size_t at = size_t{row} * got.tiles + t;
    ASSERT_TRUE(same(want.scale[t], got.scales[at].scale) && got.scales[at].sum == static_cast<float>(sum) && same(want.squares[t], got.squares[at]))
        << "row " << row << " tile " << t;
  }
}

// The bytes of the outcome are those that the outcome's floats give, whichever kernel makes them.
TEST(HipQ1, OutcomesAreWrittenAsBytesToo) {
  const uint32_t groups = 3;
  const Weights a(96, groups, 1), up(96, groups, 4);
  for (const uint32_t rows : {1u, 3u, 8u, 40u})
    for (const uint32_t fuse : {uint32_t{q1::fuse_none}, uint32_t{q1::fuse_add}, uint32_t{q1::fuse_silu}})
      for (const bool normed : {false, true}) {
        Case c;
        c.rows = rows;
        c.live = rows;
        c.x = normal_values(size_t{rows} * groups * 128, rows);
        c.norm = normed ? normal_values(groups * 128, 9) : std::vector<float>();
        c.fuse = fuse;
        c.weights = fuse == q1::fuse_silu ? std::vector{&a, &up} : std::vector{&a};
        if (fuse == q1::fuse_add) c.residual = normal_values(size_t{rows} * a.rows, 12);
        if (normed) c.out_norm = normal_values(96, 13);
        c.out_bytes = std::make_unique<ByteRows>(rows, 96);
        for (const auto& [way, width] : ways(rows == 1 ? 1 : rows == 3 ? 2 : 4)) {
          c.run(way, width, 2);
          expect_reference(c, "outcome");
          for (uint32_t r = 0; r < rows; ++r) expect_bytes(*c.out_bytes, r, &c.out[0][size_t{r} * 96], normed ? c.out_norm.data() : nullptr);
        }
      }
}

// Gate and up of one unit end in different rounds when a row has many steps.
TEST(HipQ1, GatesWaitForTheirUp) {
  for (const uint32_t groups : {16u, 33u, 65u}) {
    const Weights gate(160, groups, 1), up(160, groups, 4);
    for (const uint32_t width : {1u, 2u, 4u}) {
            Case c;
      c.rows = c.live = width;
      c.x = normal_values(size_t{width} * groups * 128, width);
      c.fuse = q1::fuse_silu;
      c.weights = {&gate, &up};
      for (c.teams = 1; c.teams <= 2; ++c.teams) {
        c.run(Way::matvec, width, 2);
        expect_reference(c, "gated");
      }
    }
  }
}

TEST(HipQ1, RowsMayBeChosen) {
  const Weights w(40, 2, 3);
  for (const auto& [way, width] : ways(2)) {
    Case c;
    c.weights = {&w};
    c.x = normal_values(7 * 256, 8);
    c.norm = normal_values(256, 9);
    c.rows = 5;
    c.live = 3;
    c.x_rows = {6, 0, 6, 123456789, -5};  // what lies beyond the live rows is not looked at
    c.run(way, width, 2);
    expect_reference(c, "chosen rows");
  }
}

TEST(HipQ1, EveryVariantFollowsTheFormula) {
  for (const uint32_t groups : {1u, 2u, 5u, 16u, 17u, 20u, 33u, 65u}) {
    const Weights w(groups > 40 ? 35 : 83, groups, groups);
    Case c;
    c.weights = {&w};
    c.rows = c.live = 9;
    c.x = normal_values(size_t{9} * groups * 128, groups + 1);
    for (const bool normed : {false, true}) {
      c.norm = normed ? normal_values(groups * 128, 5) : std::vector<float>();
      for (const uint32_t width : {1u, 2u, 4u}) {
        if (groups > 40 && width > 2) continue;
        for (c.teams = 1; c.teams <= 2; ++c.teams) {
          c.run(Way::matvec, width, 2);
          expect_reference(c, "matvec");
        }
      }
      for (const uint32_t lane_rows : kLaneRows) {
        c.run(Way::gemm, lane_rows, 0);
        expect_reference(c, "gemm");
      }
    }
  }
}

TEST(HipQ1, CloseToDoubles) {
  const uint32_t groups = 32;
  const Weights w(64, groups, 7);
  Case c;
  c.weights = {&w};
  c.x = normal_values(groups * 128, 8);
  c.run(Way::matvec, 1, 4);
  double error = 0, size = 0;
  for (uint32_t o = 0; o < w.rows; ++o) {
    double y = 0;
    for (uint32_t i = 0; i < groups * 128; ++i)
      y += (w.bits[size_t{o} * groups * 128 + i] ? 1. : -1.) * w.scale[o * groups + i / 128] * c.x[i];
    error += (y - c.out[0][o]) * (y - c.out[0][o]);
    size += y * y;
  }
  EXPECT_LT(std::sqrt(error / size), 0.012);  // 8 bits of 3 sigma and more
  EXPECT_GT(error, 0);
}

TEST(HipQ1, SeveralMatricesBiasesAndFusions) {
  const uint32_t groups = 3;
  const Weights a(40, groups, 1), b(17, groups, 2), d(90, groups, 3), up(40, groups, 4);
  for (const uint32_t rows : {1u, 3u, 8u, 70u}) {
    for (uint32_t kind = 0; kind < 5; ++kind) {
      Case c;
      c.rows = c.live = rows;
      c.x = normal_values(size_t{rows} * groups * 128, rows);
      c.norm = kind % 2 ? normal_values(groups * 128, 9) : std::vector<float>();
      c.fuse = kind == 4 ? uint32_t{q1::fuse_none} : kind;
      c.weights = c.fuse == q1::fuse_none ? std::vector{&a, &b, &d} : c.fuse == q1::fuse_add ? std::vector{&a} : std::vector{&a, &up};
      if (kind >= 3)
        for (const Weights* w : c.weights) c.bias.push_back(normal_values(w->rows, 11));
      if (c.fuse == q1::fuse_add) c.residual = normal_values(size_t{rows} * a.rows, 12);
      for (const uint32_t blocks : {1u, 64u}) {
        const uint32_t width = rows == 1 ? 1 : rows == 3 ? 2 : 4;
        c.teams = 1 + rows % 2;
        c.run(Way::matvec, width, blocks);
        expect_reference(c, "matvec");
      }
      for (const uint32_t lane_rows : kLaneRows) {
        c.run(Way::gemm, lane_rows, 0);
        expect_reference(c, "gemm");
      }
    }
  }
}

TEST(HipQ1, TheHeadsLongLoopKeepsItsSlotsApart) {
  const Weights w(16 * 45 + 3, 2, 21);  // 23 units on one block: several batches of slots
  for (const uint32_t width : {1u, 2u, 4u}) {
    Case c;
    c.weights = {&w};
    c.rows = c.live = width;
    c.x = normal_values(size_t{width} * 256, width);
    for (c.teams = 1; c.teams <= 2; ++c.teams) {
      c.run(Way::matvec, width, 1);
      expect_reference(c, "one block");
    }
  }
}

TEST(HipQ1, RowsBeyondTheLiveOnesMayHoldAnything) {
  const Weights w(48, 2, 31);
  for (const auto& [way, width] : ways(4)) {
    Case c;
    c.weights = {&w};
    c.rows = 12;
    c.live = 3;
    c.x = normal_values(12 * 256, 3);
    for (size_t i = 3 * 256; i < c.x.size(); ++i) c.x[i] = std::numeric_limits<float>::quiet_NaN();
    c.run(way, width, 2);
    expect_reference(c, "live rows");
  }
}

TEST(HipQ1, ZeroHugeTinyAndBrokenInputs) {
  const Weights w(20, 2, 41);
  std::vector<std::vector<float>> inputs;
  inputs.push_back(std::vector<float>(256, 0.f));
  inputs.push_back(normal_values(256, 1, 1e37f));
  inputs.push_back(normal_values(256, 2, 1e-38f));
  inputs.push_back(normal_values(256, 3, 1e-42f));
  inputs.push_back(normal_values(256, 4, 1e-30f));
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    inputs.push_back(normal_values(256, 5));
    inputs.back()[130] = bad;
  }
  inputs.push_back(std::vector<float>(256, -2.5f));
  for (const auto& x : inputs) {
    Case c;
    c.weights = {&w};
    c.rows = c.live = 2;
    c.x = x;
    const auto other = normal_values(256, 6);
    c.x.insert(c.x.end(), other.begin(), other.end());
    for (const bool normed : {false, true}) {
      c.norm = normed ? normal_values(256, 7) : std::vector<float>();
      for (const auto& [way, width] : ways(2)) {
        c.run(way, width, 2);
        expect_reference(c, "input");
      }
    }
  }
}

TEST(HipQ1, OddScalesActAsInFloatArithmetic) {
  Weights w(16, 2, 51);
  const uint16_t odd[] = {0x7c00, 0xfc00, 0x7e00, 0x8000, 0x0001, 0x8001};
  for (uint32_t r = 0; r < 6; ++r) {
    const uint64_t at = q1::word_of(r, 1, 2);
    std::memcpy(&w.packed[q1::sign_bytes(16, 2) + 2 * at], &odd[r], 2);
    w.scale[r * 2 + 1] = turbo_f16_to_f32(odd[r]);
  }
  Case c;
  c.weights = {&w};
  c.x = normal_values(256, 1);
  c.run(Way::matvec, 1, 1);
  expect_reference(c, "scales");
}

TEST(HipQ1, GatherGivesRowsExactlyAndBoundsIds) {
  const Weights w(37, 3, 61);
  const Matrix m = w.matrix();
  const std::vector<int32_t> ids = {36, 0, -1, 37, 2147483647, 5, 9};
  const uint32_t live = 6, cols = 384, stride = cols + 3;
  std::vector<float> dst((ids.size() - 1) * stride + cols, -3.f);
  ByteRows bytes(static_cast<uint32_t>(ids.size()), cols);
  const std::vector<float> norm = normal_values(cols, 62);
  const q1::Gather args{m.signs, m.scales, ids.data(), &live, dst.data(), stride, bytes.view(), norm.data(), 3, 37};
  fiber::run(tb_entry_q1_gather, {static_cast<uint32_t>(ids.size()), 1, 1}, q1::kGatherThreads, 0, &args, false);
  for (uint32_t r = 0; r < live; ++r) {
    const uint32_t row = ids[r] < 0 || ids[r] >= 37 ? 0 : static_cast<uint32_t>(ids[r]);
    for (uint32_t i = 0; i < cols; ++i) {
      const float s = w.scale[row * 3 + i / 128];
      ASSERT_EQ(bits(dst[r * stride + i]), bits(w.bits[row * cols + i] ? s : -s)) << r << " " << i;
    }
  }
  for (uint32_t r = 0; r < live; ++r) expect_bytes(bytes, r, &dst[r * stride], norm.data());
  EXPECT_EQ(dst[6 * stride], -3.f);
  EXPECT_EQ(bytes.codes[6 * cols], 99);
}

TEST(HipQ1, ExactProductKeepsActivationsAsTheyAre) {
  const Weights w(37, 3, 71);
  const uint32_t live = 2, cols = 384;
  const std::vector<float> x = normal_values(3 * cols, 72);
  std::vector<float> out(3 * 37, -3.f);
  q1::Exact p{w.matrix(), x.data(), cols, &live, nullptr, 3, 0};
  p.matrix.out = out.data();
  fiber::run(tb_entry_q1_exact, {(37 + 7) / 8, 3, 1}, q1::kPrepareThreads, 0, &p, false);
  for (uint32_t r = 0; r < live; ++r)
    for (uint32_t o = 0; o < 37; ++o) {
      double y = 0;
      for (uint32_t i = 0; i < cols; ++i) y += (w.bits[o * cols + i] ? 1. : -1.) * w.scale[o * 3 + i / 128] * x[r * cols + i];
      EXPECT_NEAR(out[r * 37 + o], y, 1e-5);
    }
  EXPECT_EQ(out[2 * 37], -3.f);
}

}  // namespace
