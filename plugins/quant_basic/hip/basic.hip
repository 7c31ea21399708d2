// Kernels of the plain and the 4/8-bit formats.
//
// A wave computes 4 outputs for R rows of activations, so weights are decoded once for all rows and activations are loaded
// once for four outputs. Numbers, the same for every R:
//   F32, F16, BF16          lane l takes elements 64 j + 2 l and 64 j + 2 l + 1, j rising, by fmadd
//   Q8_0, Q4_0, int8        lane l takes groups l, l + 32, ...: acc = fmadd(weight scale * scale, (float)sum, acc), the sum exact
//   Q8_0, Q4_0, f32         lane l takes the elements of groups l, l + 32, ... in rising order: fmadd(code * scale, x, acc)
// then the wave's tree.
#include <turbo/kernel/gpu/norm.hpp>
#include <turbo/kernel/gpu/quantise.hpp>

#include "args.h"

using namespace turbo::gpu;
namespace basic = turbo::basic;
using basic::Gather;
using basic::Product;

namespace {

constexpr uint32_t kOutputs = basic::kWaveOutputs;

struct F32 {
  TB_DEVICE static Float2 pair(const uint8_t* row, uint32_t i) { return *reinterpret_cast<const Float2*>(row + uint64_t{i} * 4); }
};
struct F16 {
  TB_DEVICE static Float2 pair(const uint8_t* row, uint32_t i) {
    const uint32_t w = *reinterpret_cast<const uint32_t*>(row + uint64_t{i} * 2);
    return {half_to_float(static_cast<uint16_t>(w)), half_to_float(static_cast<uint16_t>(w >> 16))};
  }
};
struct BF16 {
  TB_DEVICE static Float2 pair(const uint8_t* row, uint32_t i) {
    const uint32_t w = *reinterpret_cast<const uint32_t*>(row + uint64_t{i} * 2);
    return {from_bits(w << 16), from_bits(w & 0xffff0000u)};
  }
};

/// A group as eight words of signed bytes in input order.
struct GroupBytes { uint32_t w[8]; };
struct Q8 {
  TB_DEVICE static GroupBytes group(const uint8_t* row, uint32_t g) {
    const Words4* const p = reinterpret_cast<const Words4*>(row + uint64_t{g} * 32);
    const Words4 a = p[0], b = p[1];
    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
  }
};
struct Q4 {
  // Nibbles minus 8, byte by byte without borrows: the top bit is set before and taken out after.
  TB_DEVICE static uint32_t low(uint32_t w) { return (((w & 0x0f0f0f0fu) | 0x80808080u) - 0x08080808u) ^ 0x80808080u; }
  TB_DEVICE static GroupBytes group(const uint8_t* row, uint32_t g) {
    const Words4 a = *reinterpret_cast<const Words4*>(row + uint64_t{g} * 16);
    return {{low(a.x), low(a.y), low(a.z), low(a.w), low(a.x >> 4), low(a.y >> 4), low(a.z >> 4), low(a.w >> 4)}};
  }
};

/// What a wave works on: its outputs and rows, every index a valid one.
template <uint32_t R>
struct Share {
  uint32_t first_output, first_row;
  TB_DEVICE explicit Share(const Product&)
      : first_output((block_x() * basic::kWaves + wave()) * kOutputs), first_row(block_y() * R) {}
  TB_DEVICE uint32_t output(const Product& p, uint32_t k) const { return min_of(first_output + k, p.rows - 1); }
  TB_DEVICE uint32_t row(const Product& p, uint32_t r) const { return min_of(first_row + r, p.max_rows - 1); }
  TB_DEVICE bool idle(const Product& p) const { return first_output >= p.rows || (first_row && first_row >= *p.n_rows); }
};

template <uint32_t R>
TB_DEVICE void write(const Product& p, const Share<R>& share, const float (&acc)[kOutputs][R]) {
  TB_UNROLL
  for (uint32_t k = 0; k < kOutputs; ++k) {
    TB_UNROLL
    for (uint32_t r = 0; r < R; ++r) {
      float y = wave_sum(acc[k][r]);
      const uint32_t o = share.first_output + k, row = share.first_row + r;
      if (lane() == 0 && o < p.rows && row < p.max_rows) {
        if (p.bias) y += p.bias[o];
        if (p.residual) y = p.residual[row * p.residual_stride + o] + y;
        p.out[row * p.out_stride + o] = y;
      }
    }
  }
}

template <typename Type, uint32_t R>
TB_DEVICE void float_product(const Product& p) {
  const Share<R> share(p);
  if (share.idle(p)) return;
  const uint8_t* weights[kOutputs];
  const float* x[R];
  float acc[kOutputs][R];
  TB_UNROLL
  for (uint32_t k = 0; k < kOutputs; ++k) {
    weights[k] = p.codes + share.output(p, k) * p.row_bytes;
    TB_UNROLL
    for (uint32_t r = 0; r < R; ++r) acc[k][r] = 0;
  }
  TB_UNROLL
  for (uint32_t r = 0; r < R; ++r)
    x[r] = p.prepared ? reinterpret_cast<const float*>(p.prepared + share.row(p, r) * p.prepared_stride) : p.x + share.row(p, r) * p.x_stride;
  for (uint32_t i = lane() * 2; i < p.cols; i += 2 * kWave) {
    Float2 w[kOutputs];
    TB_UNROLL
    for (uint32_t k = 0; k < kOutputs; ++k) w[k] = Type::pair(weights[k], i);
    const bool two = i + 1 < p.cols;
    TB_UNROLL
    for (uint32_t r = 0; r < R; ++r) {
      const float a = x[r][i], b = x[r][two ? i + 1 : i];
      TB_UNROLL
      for (uint32_t k = 0; k < kOutputs; ++k) {
        acc[k][r] = fmadd(w[k].x, a, acc[k][r]);
        const float next = fmadd(w[k].y, b, acc[k][r]);
        acc[k][r] = two ? next : acc[k][r];
      }
    }
  }
  write<R>(p, share, acc);
}

template <typename Type, uint32_t R>
TB_DEVICE void byte_product(const Product& p) {
  const Share<R> share(p);
  if (share.idle(p)) return;
  const uint32_t n_groups = p.cols / basic::kGroup;
  float acc[kOutputs][R];
  TB_UNROLL
  for (uint32_t k = 0; k < kOutputs; ++k) {
    TB_UNROLL
    for (uint32_t r = 0; r < R; ++r) acc[k][r] = 0;
  }
  for (uint32_t g = lane(); g < n_groups; g += kWave) {
    GroupBytes w[kOutputs];
    float d[kOutputs];
    TB_UNROLL
    for (uint32_t k = 0; k < kOutputs; ++k) {
      const uint32_t o = share.output(p, k);
      w[k] = Type::group(p.codes + o * p.row_bytes, g);
      d[k] = half_to_float(reinterpret_cast<const uint16_t*>(p.scales)[uint64_t{o} * n_groups + g]);
    }
    TB_UNROLL
    for (uint32_t r = 0; r < R; ++r) {
      const uint32_t row = share.row(p, r);
      const GroupBytes q = Q8::group(p.prepared + row * p.prepared_stride, g);
      const float s = p.prepared_scales[uint64_t{row} * n_groups + g];
      TB_UNROLL
      for (uint32_t k = 0; k < kOutputs; ++k) {
        int32_t sum = 0;
        TB_UNROLL
        for (uint32_t i = 0; i < 8; ++i) sum = dot4(w[k].w[i], q.w[i], sum);
        acc[k][r] = fmadd(d[k] * s, static_cast<float>(sum), acc[k][r]);
      }
    }
  }
  write<R>(p, share, acc);
}

template <typename Type>
TB_DEVICE void exact_product(const Product& p) {
  const Share<1> share(p);
  if (share.idle(p)) return;
  const uint32_t n_groups = p.cols / basic::kGroup, row = share.row(p, 0);
  const float* const x =
      p.prepared ? reinterpret_cast<const float*>(p.prepared + row * p.prepared_stride) : p.x + row * p.x_stride;
  float acc[kOutputs][1];
  TB_UNROLL
  for (uint32_t k = 0; k < kOutputs; ++k) acc[k][0] = 0;
  for (uint32_t g = lane(); g < n_groups; g += kWave) {
    TB_UNROLL
    for (uint32_t k = 0; k < kOutputs; ++k) {
      const uint32_t o = share.output(p, k);
      const GroupBytes w = Type::group(p.codes + o * p.row_bytes, g);
      const float d = half_to_float(reinterpret_cast<const uint16_t*>(p.scales)[uint64_t{o} * n_groups + g]);
      TB_UNROLL
      for (uint32_t i = 0; i < basic::kGroup; ++i) {
        const float code = static_cast<float>(static_cast<int8_t>(w.w[i / 4] >> (8 * (i % 4))));
        acc[k][0] = fmadd(code * d, x[g * basic::kGroup + i], acc[k][0]);
      }
    }
  }
  write<1>(p, share, acc);
}

}  // namespace

#define TURBO_BASIC_PRODUCT(name, body, type)                              \
  TB_KERNEL(name##_1, Product, basic::kThreads) { body<type, 1>(args); }   \
  TB_KERNEL(name##_2, Product, basic::kThreads) { body<type, 2>(args); }   \
  TB_KERNEL(name##_4, Product, basic::kThreads) { body<type, 4>(args); }   \
  TB_KERNEL(name##_8, Product, basic::kThreads) { body<type, 8>(args); }

TURBO_BASIC_PRODUCT(basic_f32, float_product, F32)
TURBO_BASIC_PRODUCT(basic_f16, float_product, F16)
TURBO_BASIC_PRODUCT(basic_bf16, float_product, BF16)
TURBO_BASIC_PRODUCT(basic_q8, byte_product, Q8)
TURBO_BASIC_PRODUCT(basic_q4, byte_product, Q4)
TB_KERNEL(basic_q8_exact, Product, basic::kThreads) { exact_product<Q8>(args); }
TB_KERNEL(basic_q4_exact, Product, basic::kThreads) { exact_product<Q4>(args); }

// Rows normed, as floats.
TB_KERNEL(basic_norm, Product, basic::kPrepareThreads) {
  using Slots = float[kNormWaves];
  TB_SHARED(Slots, slots);
  const uint32_t row = block_x();
  if (row >= *args.n_rows) return;
  const float* const x = args.x + row * args.x_stride;
  float* const out = reinterpret_cast<float*>(args.prepared + row * args.prepared_stride);
  const float scale = norm_scale(block_square_sum(x, args.cols, slots), args.cols, args.eps);
  for (uint32_t i = thread(); i < args.cols; i += threads()) out[i] = normed(x[i], scale, args.norm[i]);
}

// Rows, normed or not, as bytes: a wave quantises a group, a lane an element.
TB_KERNEL(basic_bytes, Product, basic::kPrepareThreads) {
  using Slots = float[kNormWaves];
  TB_SHARED(Slots, slots);
  const uint32_t row = block_x();
  if (row >= *args.n_rows) return;
  const uint32_t n_groups = args.cols / basic::kGroup;
  const float* const x = args.x + row * args.x_stride;
  float scale = 0;
  if (args.norm) scale = norm_scale(block_square_sum(x, args.cols, slots), args.cols, args.eps);
  for (uint32_t g = wave(); g < n_groups; g += threads() / kWave) {
    const uint32_t i = g * basic::kGroup + lane();
    const float v = args.norm ? normed(x[i], scale, args.norm[i]) : x[i];
    const ByteScale by = byte_scale(wave_largest(bits(v) & 0x7fffffffu));
    args.prepared[row * args.prepared_stride + i] = static_cast<uint8_t>(byte_of(v, by));
    if (lane() == 0) args.prepared_scales[uint64_t{row} * n_groups + g] = by.scale;
  }
}

namespace {
template <typename Type>
TB_DEVICE void float_gather(const Gather& args) {
  const uint32_t r = block_x();
  if (r >= *args.n_rows) return;
  const uint32_t id = static_cast<uint32_t>(args.ids[r]), row = id < args.rows ? id : 0;
  float* const dst = args.dst + r * args.dst_stride;
  for (uint32_t i = thread() * 2; i < args.cols; i += threads() * 2) {
    const Float2 w = Type::pair(args.codes + row * args.row_bytes, i);
    dst[i] = w.x;
    if (i + 1 < args.cols) dst[i + 1] = w.y;
  }
}
template <typename Type>
TB_DEVICE void group_gather(const Gather& args) {
  const uint32_t r = block_x();
  if (r >= *args.n_rows) return;
  const uint32_t id = static_cast<uint32_t>(args.ids[r]), row = id < args.rows ? id : 0, n_groups = args.cols / basic::kGroup;
  float* const dst = args.dst + r * args.dst_stride;
  for (uint32_t g = thread(); g < n_groups; g += threads()) {
    const GroupBytes w = Type::group(args.codes + row * args.row_bytes, g);
    const float d = half_to_float(reinterpret_cast<const uint16_t*>(args.scales)[uint64_t{row} * n_groups + g]);
    TB_UNROLL
    for (uint32_t i = 0; i < basic::kGroup; ++i)
      dst[g * basic::kGroup + i] = static_cast<float>(static_cast<int8_t>(w.w[i / 4] >> (8 * (i % 4)))) * d;
  }
}
}  // namespace

TB_KERNEL(basic_gather_f32, Gather, basic::kThreads) { float_gather<F32>(args); }
TB_KERNEL(basic_gather_f16, Gather, basic::kThreads) { float_gather<F16>(args); }
TB_KERNEL(basic_gather_bf16, Gather, basic::kThreads) { float_gather<BF16>(args); }
TB_KERNEL(basic_gather_q8, Gather, basic::kThreads) { group_gather<Q8>(args); }
TB_KERNEL(basic_gather_q4, Gather, basic::kThreads) { group_gather<Q4>(args); }
