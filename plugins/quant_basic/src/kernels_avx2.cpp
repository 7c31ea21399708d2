// AVX2 + FMA + F16C. The 16 virtual lanes are two registers of eight.
#include <immintrin.h>

#include "kernels.h"

namespace turbo::basic {
namespace {

static inline float quantize_group(const float* x, int8_t* q, int32_t* sum) {
  __m256i largest = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) {
    const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + 8 * i));
    largest = _mm256_max_epu32(largest, _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)));
  }
  __m128i m = _mm_max_epu32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
  const float scale = group_scale((uint32_t)_mm_cvtsi128_si32(m));
  *sum = 0;
  memset(q, 0, kGroup);
  if (!(scale > 0.0f)) return scale;
  const __m256 inverse = _mm256_set1_ps(1.0f / scale);
  __m256i code[4];
  for (int i = 0; i < 4; ++i) {
    code[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), inverse));
    code[i] = _mm256_min_epi32(_mm256_max_epi32(code[i], _mm256_set1_epi32(-127)), _mm256_set1_epi32(127));
  }
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(code[0], code[1]), 0xd8);
  const __m256i more = _mm256_permute4x64_epi64(_mm256_packs_epi32(code[2], code[3]), 0xd8);
  _mm256_storeu_si256((__m256i*)q, _mm256_permute4x64_epi64(_mm256_packs_epi16(words, more), 0xd8));
  const __m256i t = _mm256_add_epi32(_mm256_add_epi32(code[0], code[1]), _mm256_add_epi32(code[2], code[3]));
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(t), _mm256_extracti128_si256(t, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
  *sum = _mm_cvtsi128_si32(s);
  return scale;
}

void prepare_i8(const float* x, uint64_t cols, void* dst) {
  const uint64_t part = per_group_bytes(cols);
  float* scale = (float*)dst;
  int32_t* sum = (int32_t*)((uint8_t*)dst + part);
  int8_t* q = (int8_t*)dst + 2 * part;
  for (uint64_t g = 0; g < cols / kGroup; ++g) scale[g] = quantize_group(x + g * kGroup, q + g * kGroup, sum + g);
}

static inline __m256i four_inputs(const int8_t* q) {
  int32_t four;
  memcpy(&four, q, 4);
  return _mm256_set1_epi32(four);
}

static inline __m256i load_codes(const uint8_t* p) { return _mm256_loadu_si256((const __m256i*)p); }

// Exact integer dots of eight rows (one half of a tile) over a group. Q8_0: |w| * (q with the sign of w), where a pair
// sums to at most 2 * 128 * 127 < 2^15. Q4_0: plain nibbles, eight pairs sum to at most 8 * 2 * 15 * 127 < 2^15, and
// 8 * (sum of q) taken out at the end.
template <uint32_t Type, int R>
static inline __attribute__((always_inline)) void group_dots(const uint8_t* codes, const Activation (&x)[R], uint64_t g,
                                                             __m256i (&sum)[R]) {
  const __m256i ones = _mm256_set1_epi16(1);
  for (int r = 0; r < R; ++r) sum[r] = _mm256_setzero_si256();
  if (Type == TURBO_TYPE_Q8_0) {
    for (int i = 0; i < 8; ++i) {
      const __m256i w = load_codes(codes + 64 * i), magnitude = _mm256_abs_epi8(w);
      for (int r = 0; r < R; ++r) {
        const __m256i q = _mm256_sign_epi8(four_inputs(x[r].q + g * kGroup + 4 * i), w);
        sum[r] = _mm256_add_epi32(sum[r], _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, q), ones));
      }
    }
    return;
  }
  const __m256i nibble = _mm256_set1_epi8(15);
  for (int i = 0; i < 4; ++i) {
    const __m256i w = load_codes(codes + 64 * i);
    const __m256i low = _mm256_and_si256(w, nibble), high = _mm256_and_si256(_mm256_srli_epi16(w, 4), nibble);
    for (int r = 0; r < R; ++r) {
      const int8_t* q = x[r].q + g * kGroup + 4 * i;
      const __m256i pairs =
          _mm256_add_epi16(_mm256_maddubs_epi16(low, four_inputs(q)), _mm256_maddubs_epi16(high, four_inputs(q + 16)));
      sum[r] = _mm256_add_epi16(sum[r], pairs);
    }
  }
  for (int r = 0; r < R; ++r)
    sum[r] = _mm256_sub_epi32(_mm256_madd_epi16(sum[r], ones), _mm256_set1_epi32(8 * x[r].sum[g]));
}

template <uint32_t Type, int R>
void tile_i8(const turbo_matmul* a, uint64_t row, uint64_t tile, float* acc, uint64_t acc_stride) {
  const Group first = tile_group(a->matrix, tile, 0);
  Activation x[R];
  for (int r = 0; r < R; ++r) x[r] = activation_row(a, row + r);
  for (int half = 0; half < 2; ++half) {
    __m256 total[R];
    for (int r = 0; r < R; ++r) total[r] = _mm256_setzero_ps();
    for (uint64_t g = 0; g < a->matrix->cols / kGroup; ++g) {
      __m256i sum[R];
      group_dots<Type, R>(first.codes + g * group_code_bytes(Type) + 32 * half, x, g, sum);
      const __m256 s =
          _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(first.scales + g * kGroupScaleBytes + 16 * half)));
      for (int r = 0; r < R; ++r) {
        const __m256 scale = _mm256_mul_ps(s, _mm256_set1_ps(x[r].scale[g]));
        total[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r]), scale, total[r]);
      }
    }
    for (int r = 0; r < R; ++r) _mm256_storeu_ps(acc + r * acc_stride + 8 * half, total[r]);
  }
}

template <uint32_t Type>
void rows_i8(const turbo_matmul* a, uint64_t row, uint64_t n, uint64_t tile, float* acc, uint64_t acc_stride) {
  static void (*const table[4])(const turbo_matmul*, uint64_t, uint64_t, float*, uint64_t) = {
      tile_i8<Type, 1>, tile_i8<Type, 2>, tile_i8<Type, 3>, tile_i8<Type, 4>};
  table[n - 1](a, row, tile, acc, acc_stride);
}

void matmul_i8(const turbo_matmul* a) {
  for (uint64_t o = a->out_begin; o < a->out_end; o += kTile) {
    const uint64_t n_outputs = smaller(kTile, a->out_end - o);
    for (uint64_t row = 0; row < a->n_rows; row += 4) {
      const uint64_t n = smaller(4, a->n_rows - row);
      float buffer[4 * kTile];  // a ragged last tile goes through it, so nothing past the row is written
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

struct Sixteen {
  __m256 low, high;
};

// Weights of one output row: 16 inputs from column j, all of them present.
template <uint32_t Type>
struct Row {
  const uint8_t* p;
  Row(const turbo_matrix* m, uint64_t row) : p(float_row(m, row)) {}
  Sixteen at(uint64_t j) const { return convert(p + j * (Type == TURBO_TYPE_F32 ? 4 : 2)); }
  // The last n < 16 inputs, zeros after them.
  Sixteen tail(uint64_t j, uint64_t n) const {
    uint8_t bytes[64] = {0};
    const uint64_t size = Type == TURBO_TYPE_F32 ? 4 : 2;
    memcpy(bytes, p + j * size, n * size);
    return convert(bytes);
  }
  static Sixteen convert(const uint8_t* p) {
    if (Type == TURBO_TYPE_F32) return {_mm256_loadu_ps((const float*)p), _mm256_loadu_ps((const float*)(p + 32))};
    const __m128i low = _mm_loadu_si128((const __m128i*)p), high = _mm_loadu_si128((const __m128i*)(p + 16));
    if (Type == TURBO_TYPE_F16) return {_mm256_cvtph_ps(low), _mm256_cvtph_ps(high)};
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(low), 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(high), 16))};
  }
};

template <uint32_t Type>
struct RowPacked {
  Group first;
  uint64_t r;
  RowPacked(const turbo_matrix* m, uint64_t row) : first(tile_group(m, row / kTile, 0)), r(row % kTile) {}
  Sixteen at(uint64_t j) const {
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
    const __m256 s = _mm256_set1_ps(load_scale(g, r));
    return {_mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)), s),
            _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))), s)};
  }
  Sixteen tail(uint64_t j, uint64_t) const { return at(j); }  // rows are whole groups
};

// Sum of the 16 lanes by the fixed tree.
static inline float lane_sum(Sixteen v) {
  const __m256 s8 = _mm256_add_ps(v.low, v.high);
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

// R activation rows against one output.
template <typename Weights, int R>
void block_f32(const turbo_matmul* a, uint64_t row, uint64_t output) {
  const uint64_t cols = a->matrix->cols;
  const Weights weights(a->matrix, output);
  const float* x[R];
  Sixteen lane[R];
  for (int r = 0; r < R; ++r) {
    x[r] = activation_f32(a, row + r);
    lane[r] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  }
  uint64_t j = 0;
  for (; j + 16 <= cols; j += 16) {
    const Sixteen w = weights.at(j);
    for (int r = 0; r < R; ++r) {
      lane[r].low = _mm256_fmadd_ps(w.low, _mm256_loadu_ps(x[r] + j), lane[r].low);
      lane[r].high = _mm256_fmadd_ps(w.high, _mm256_loadu_ps(x[r] + j + 8), lane[r].high);
    }
  }
  if (j < cols) {  // lanes without an input keep their bits
    const Sixteen w = weights.tail(j, cols - j);
    float present[16];
    for (uint64_t i = 0; i < 16; ++i) present[i] = j + i < cols ? -1.0f : 0.0f;
    const __m256 low = _mm256_loadu_ps(present), high = _mm256_loadu_ps(present + 8);
    for (int r = 0; r < R; ++r) {  // the activation row is filled up to 16 floats
      const __m256 sum_low = _mm256_fmadd_ps(w.low, _mm256_loadu_ps(x[r] + j), lane[r].low);
      const __m256 sum_high = _mm256_fmadd_ps(w.high, _mm256_loadu_ps(x[r] + j + 8), lane[r].high);
      lane[r].low = _mm256_blendv_ps(lane[r].low, sum_low, low);
      lane[r].high = _mm256_blendv_ps(lane[r].high, sum_high, high);
    }
  }
  for (int r = 0; r < R; ++r) a->out[(row + r) * a->out_stride + output] = lane_sum(lane[r]);
}

template <typename Weights>
void matmul_rows(const turbo_matmul* a) {
  for (uint64_t o = a->out_begin; o < a->out_end; ++o) {
    uint64_t row = 0;
    for (; row + 4 <= a->n_rows; row += 4) block_f32<Weights, 4>(a, row, o);
    for (; row < a->n_rows; ++row) block_f32<Weights, 1>(a, row, o);
  }
}

void matmul_f32(const turbo_matmul* a) {
  switch (a->matrix->type) {
    case TURBO_TYPE_F32: return matmul_rows<Row<TURBO_TYPE_F32>>(a);
    case TURBO_TYPE_F16: return matmul_rows<Row<TURBO_TYPE_F16>>(a);
    case TURBO_TYPE_BF16: return matmul_rows<Row<TURBO_TYPE_BF16>>(a);
    case TURBO_TYPE_Q8_0: return matmul_rows<RowPacked<TURBO_TYPE_Q8_0>>(a);
    case TURBO_TYPE_Q4_0: return matmul_rows<RowPacked<TURBO_TYPE_Q4_0>>(a);
  }
}

}  // namespace

const Kernels* avx2_kernels() {
  static const Kernels kernels = {prepare_i8, matmul_i8, matmul_f32};
  return &kernels;
}

}  // namespace turbo::basic
