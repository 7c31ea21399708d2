// AVX-512 (F, BW, VL, DQ, VNNI).
#include <immintrin.h>

#include "kernels.h"

namespace turbo::basic {
namespace {

static inline float quantize_group(const float* x, int8_t* q, int32_t* sum) {
  const __m512 v[2] = {_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16)};
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  const __m512i largest = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(v[0]), magnitude),
                                           _mm512_and_si512(_mm512_castps_si512(v[1]), magnitude));
  const float scale = group_scale(_mm512_reduce_max_epu32(largest));
  const __m512 inverse = _mm512_set1_ps(scale > 0.0f ? 1.0f / scale : 0.0f);
  __m512i total = _mm512_setzero_si512();
  for (int h = 0; h < 2; ++h) {
    __m512i code = _mm512_cvtps_epi32(_mm512_mul_ps(v[h], inverse));
    code = _mm512_min_epi32(_mm512_max_epi32(code, _mm512_set1_epi32(-127)), _mm512_set1_epi32(127));
    if (!(scale > 0.0f)) code = _mm512_setzero_si512();
    total = _mm512_add_epi32(total, code);
    _mm_storeu_si128((__m128i*)(q + 16 * h), _mm512_cvtepi32_epi8(code));
  }
  *sum = _mm512_reduce_add_epi32(total);
  return scale;
}

void prepare_i8(const float* x, uint64_t cols, void* dst) {
  const uint64_t part = per_group_bytes(cols);
  float* scale = (float*)dst;
  int32_t* sum = (int32_t*)((uint8_t*)dst + part);
  int8_t* q = (int8_t*)dst + 2 * part;
  for (uint64_t g = 0; g < cols / kGroup; ++g) scale[g] = quantize_group(x + g * kGroup, q + g * kGroup, sum + g);
}

static inline __m512i four_inputs(const int8_t* q) {
  int32_t four;
  memcpy(&four, q, 4);
  return _mm512_set1_epi32(four);
}

// R activation rows against one tile: vector lane = output row. The unsigned operand of the dot product is the weight
// plus 128 (Q8_0) or the plain nibble (Q4_0, weight plus 8); the sum of the group's q takes the offset out again.
template <uint32_t Type, int R>
void tile_i8(const turbo_matmul* a, uint64_t row, uint64_t tile, float* acc, uint64_t acc_stride) {
  const uint64_t n_groups = a->matrix->cols / kGroup;
  const Group first = tile_group(a->matrix, tile, 0);
  Activation x[R];
  __m512 total[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    x[r] = activation_row(a, row + r);
    total[r] = _mm512_setzero_ps();
  }
  const uint8_t* codes = first.codes;
  for (uint64_t g = 0; g < n_groups; ++g) {
    __m512i sum[R];
    const int8_t* q[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      sum[r] = _mm512_set1_epi32(x[r].sum[g] * (Type == TURBO_TYPE_Q8_0 ? -128 : -8));
      q[r] = x[r].q + g * kGroup;
    }
    if (Type == TURBO_TYPE_Q8_0) {
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i, codes += 64) {
        const __m512i w = _mm512_xor_si512(_mm512_load_si512(codes), _mm512_set1_epi8((char)0x80));
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) sum[r] = _mm512_dpbusd_epi32(sum[r], w, four_inputs(q[r] + 4 * i));
      }
    } else {
      const __m512i nibble = _mm512_set1_epi8(15);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i, codes += 64) {
        const __m512i w = _mm512_load_si512(codes);
        const __m512i low = _mm512_and_si512(w, nibble), high = _mm512_and_si512(_mm512_srli_epi16(w, 4), nibble);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          sum[r] = _mm512_dpbusd_epi32(sum[r], low, four_inputs(q[r] + 4 * i));
          sum[r] = _mm512_dpbusd_epi32(sum[r], high, four_inputs(q[r] + 4 * i + 16));
        }
      }
    }
    const __m512 s = _mm512_cvtph_ps(_mm256_load_si256((const __m256i*)(first.scales + g * kGroupScaleBytes)));
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m512 scale = _mm512_mul_ps(s, _mm512_set1_ps(x[r].scale[g]));
      total[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r]), scale, total[r]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) _mm512_storeu_ps(acc + r * acc_stride, total[r]);
}

template <uint32_t Type>
void rows_i8(const turbo_matmul* a, uint64_t row, uint64_t n, uint64_t tile, float* acc, uint64_t acc_stride) {
  static void (*const table[8])(const turbo_matmul*, uint64_t, uint64_t, float*, uint64_t) = {
      tile_i8<Type, 1>, tile_i8<Type, 2>, tile_i8<Type, 3>, tile_i8<Type, 4>,
      tile_i8<Type, 5>, tile_i8<Type, 6>, tile_i8<Type, 7>, tile_i8<Type, 8>};
  table[n - 1](a, row, tile, acc, acc_stride);
}

void matmul_i8(const turbo_matmul* a) {
  for (uint64_t o = a->out_begin; o < a->out_end; o += kTile) {
    const uint64_t n_outputs = smaller(kTile, a->out_end - o);
    for (uint64_t row = 0; row < a->n_rows; row += 8) {
      const uint64_t n = smaller(8, a->n_rows - row);
      float buffer[8 * kTile];  // a ragged last tile goes through it, so nothing past the row is written
      float* out = a->out + row * a->out_stride + o;
      float* acc = n_outputs == kTile ? out : buffer;
      const uint64_t stride = n_outputs == kTile ? a->out_stride : kTile;
      if (a->matrix->type == TURBO_TYPE_Q8_0)
        rows_i8<TURBO_TYPE_Q8_0>(a, row, n, o / kTile, acc, stride);
      else
        rows_i8<TURBO_TYPE_Q4_0>(a, row, n, o / kTile, acc, stride);
      if (acc == buffer)
        for (uint64_t r = 0; r < n; ++r) memcpy(out + r * a->out_stride, buffer + r * kTile, n_outputs * sizeof(float));
    }
  }
}

// Weights of one output row, 16 inputs at a time; inputs whose mask bit is 0 are not read.
struct RowF32 {
  const uint8_t* p;
  RowF32(const turbo_matrix* m, uint64_t row) : p(float_row(m, row)) {}
  __m512 at(uint64_t j, __mmask16 mask) const { return _mm512_maskz_loadu_ps(mask, p + 4 * j); }
};
struct RowF16 {
  const uint8_t* p;
  RowF16(const turbo_matrix* m, uint64_t row) : p(float_row(m, row)) {}
  __m512 at(uint64_t j, __mmask16 mask) const { return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p + 2 * j)); }
};
struct RowBf16 {
  const uint8_t* p;
  RowBf16(const turbo_matrix* m, uint64_t row) : p(float_row(m, row)) {}
  __m512 at(uint64_t j, __mmask16 mask) const {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, p + 2 * j));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
};
template <uint32_t Type>
struct RowPacked {
  Group first;
  uint64_t r;
  RowPacked(const turbo_matrix* m, uint64_t row) : first(tile_group(m, row / kTile, 0)), r(row % kTile) {}
  __m512 at(uint64_t j, __mmask16) const {
    Group g;
    g.codes = first.codes + j / kGroup * group_code_bytes(Type);
    g.scales = first.scales + j / kGroup * kGroupScaleBytes;
    const uint64_t half = j % kGroup / 16;
    const uint8_t* codes = g.codes + 4 * r + (Type == TURBO_TYPE_Q8_0 ? half * 256 : 0);
    int32_t four[4];
    for (int i = 0; i < 4; ++i) memcpy(four + i, codes + 64 * i, 4);
    __m128i bytes = _mm_setr_epi32(four[0], four[1], four[2], four[3]);
    if (Type == TURBO_TYPE_Q4_0) {
      const __m128i nibbles = _mm_and_si128(half ? _mm_srli_epi16(bytes, 4) : bytes, _mm_set1_epi8(15));
      bytes = _mm_sub_epi8(nibbles, _mm_set1_epi8(8));
    }
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)), _mm512_set1_ps(load_scale(g, r)));
  }
};

// Sum of the 16 lanes by the fixed tree.
static inline float lane_sum(__m512 v) {
  const __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

// R activation rows against O outputs; each pair has its own 16 lanes.
template <typename Row, int R, int O>
static inline __attribute__((always_inline)) void block_f32(const turbo_matmul* a, uint64_t row, uint64_t output) {
  const uint64_t cols = a->matrix->cols;
  const float* x[R];
  __m512 lane[R][O];
  for (int r = 0; r < R; ++r) {
    x[r] = activation_f32(a, row + r);
    for (int o = 0; o < O; ++o) lane[r][o] = _mm512_setzero_ps();
  }
  auto step = [&](uint64_t j, __mmask16 mask, const Row& weights, int o) __attribute__((always_inline)) {
    const __m512 w = weights.at(j, mask);
    for (int r = 0; r < R; ++r)
      lane[r][o] = _mm512_mask3_fmadd_ps(w, _mm512_maskz_loadu_ps(mask, x[r] + j), lane[r][o], mask);
  };
  if constexpr (O == 4) {
    const Row w0(a->matrix, output), w1(a->matrix, output + 1), w2(a->matrix, output + 2), w3(a->matrix, output + 3);
    uint64_t j = 0;
    for (; j + 16 <= cols; j += 16) {
      step(j, 0xffff, w0, 0);
      step(j, 0xffff, w1, 1);
      step(j, 0xffff, w2, 2);
      step(j, 0xffff, w3, 3);
    }
    if (j < cols) {
      const __mmask16 mask = (__mmask16)((1u << (cols - j)) - 1);
      step(j, mask, w0, 0);
      step(j, mask, w1, 1);
      step(j, mask, w2, 2);
      step(j, mask, w3, 3);
    }
  } else {
    const Row w0(a->matrix, output);
    uint64_t j = 0;
    for (; j + 16 <= cols; j += 16) step(j, 0xffff, w0, 0);
    if (j < cols) step(j, (__mmask16)((1u << (cols - j)) - 1), w0, 0);
  }
  for (int r = 0; r < R; ++r)
    for (int o = 0; o < O; ++o) a->out[(row + r) * a->out_stride + output + o] = lane_sum(lane[r][o]);
}

template <typename Row, int O>
void outputs_f32(const turbo_matmul* a, uint64_t output) {
  uint64_t row = 0;
  for (; row + 4 <= a->n_rows; row += 4) block_f32<Row, 4, O>(a, row, output);
  for (; row + 2 <= a->n_rows; row += 2) block_f32<Row, 2, O>(a, row, output);
  if (row < a->n_rows) block_f32<Row, 1, O>(a, row, output);
}

template <typename Row>
void matmul_rows(const turbo_matmul* a) {
  uint64_t o = a->out_begin;
  for (; o + 4 <= a->out_end; o += 4) outputs_f32<Row, 4>(a, o);
  for (; o < a->out_end; ++o) outputs_f32<Row, 1>(a, o);
}

void matmul_f32(const turbo_matmul* a) {
  switch (a->matrix->type) {
    case TURBO_TYPE_F32: return matmul_rows<RowF32>(a);
    case TURBO_TYPE_F16: return matmul_rows<RowF16>(a);
    case TURBO_TYPE_BF16: return matmul_rows<RowBf16>(a);
    case TURBO_TYPE_Q8_0: return matmul_rows<RowPacked<TURBO_TYPE_Q8_0>>(a);
    case TURBO_TYPE_Q4_0: return matmul_rows<RowPacked<TURBO_TYPE_Q4_0>>(a);
  }
}

}  // namespace

const Kernels* avx512_kernels() {
  static const Kernels kernels = {prepare_i8, matmul_i8, matmul_f32};
  return &kernels;
}

}  // namespace turbo::basic
