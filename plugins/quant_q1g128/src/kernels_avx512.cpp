// AVX-512 (F, BW, VL, DQ). Layout::words, one 16-bit lane per output row.
//
// The int8 product looks sums up instead of multiplying. A 16-bit word of signs is three indices: inputs 0..4, 5..9 and
// 10..15 of the word. For each of them the activation row holds a table of all sums +-q (32, 32 and 64 16-bit
// entries: one or two registers), so one permute handles 32 rows x 5 or 6 inputs. A block sums to at most
// 128 * 127 < 2^15, so one 16-bit addition per look-up suffices and nothing overflows.
#include <immintrin.h>

#include "driver.h"

namespace turbo::q1 {
namespace {

constexpr uint64_t kWordTables = 256;               // bytes of the tables of one 16-input word
constexpr uint64_t kBlockTables = 8 * kWordTables;  // and of one block

// Activation row: scales, then the tables block after block, in a block word after word.
uint64_t activation_bytes(uint64_t cols) { return scale_bytes(cols) + cols / kBlock * kBlockTables; }

// Signs of up to six inputs for the 32 table entries of a register, as byte pairs for maddubs, and what the bias of
// 128 on each input adds to an entry.
struct SignPattern {
  alignas(64) int8_t pair[3][64];
  alignas(64) int16_t bias[32];
};

constexpr SignPattern make_pattern(int n_inputs, int first_entry) {
  SignPattern p{};
  for (int e = 0; e < 32; ++e) {
    int sum = 0;
    for (int k = 0; k < n_inputs; ++k) {
      const int sign = (first_entry + e) >> k & 1 ? 1 : -1;
      p.pair[k / 2][2 * e + k % 2] = (int8_t)sign;
      sum += sign;
    }
    p.bias[e] = (int16_t)(128 * sum);
  }
  return p;
}

constexpr SignPattern kFive = make_pattern(5, 0), kSixLow = make_pattern(6, 0), kSixHigh = make_pattern(6, 32);

// Two neighbouring inputs in every 16-bit lane.
static inline __m512i pair_at(const uint8_t* biased, int j) {
  int16_t pair;
  memcpy(&pair, biased + j, 2);
  return _mm512_set1_epi16(pair);
}

// Table entries for three input pairs (q + 128 as unsigned bytes).
static inline __m512i entries(const SignPattern& p, __m512i a, __m512i b, __m512i c) {
  const __m512i ab = _mm512_add_epi16(_mm512_maddubs_epi16(a, _mm512_load_si512(p.pair[0])),
                                      _mm512_maddubs_epi16(b, _mm512_load_si512(p.pair[1])));
  return _mm512_sub_epi16(_mm512_add_epi16(ab, _mm512_maddubs_epi16(c, _mm512_load_si512(p.pair[2]))),
                          _mm512_load_si512(p.bias));
}

static inline void write_word_tables(const uint8_t* biased, uint8_t* out) {
  _mm512_store_si512(out, entries(kFive, pair_at(biased, 0), pair_at(biased, 2), pair_at(biased, 4)));
  _mm512_store_si512(out + 64, entries(kFive, pair_at(biased, 5), pair_at(biased, 7), pair_at(biased, 9)));
  const __m512i a = pair_at(biased, 10), b = pair_at(biased, 12), c = pair_at(biased, 14);
  _mm512_store_si512(out + 128, entries(kSixLow, a, b, c));
  _mm512_store_si512(out + 192, entries(kSixHigh, a, b, c));
}

// Writes q + 128; returns the scale. Same values as quantize_group of the reference.
static inline float quantize_group(const float* x, uint8_t* biased) {
  __m512 v[8];
  __m512i largest = _mm512_setzero_si512();
  for (int i = 0; i < 8; ++i) {
    v[i] = _mm512_loadu_ps(x + 16 * i);
    const __m512i magnitude = _mm512_and_si512(_mm512_castps_si512(v[i]), _mm512_set1_epi32(0x7fffffff));
    largest = _mm512_max_epu32(largest, magnitude);
  }
  const float scale = group_scale(_mm512_reduce_max_epu32(largest));
  if (!(scale > 0.0f)) {
    memset(biased, 128, kBlock);
    return scale;
  }
  const __m512 inverse = _mm512_set1_ps(1.0f / scale);
  for (int i = 0; i < 8; ++i) {
    __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(v[i], inverse));
    q = _mm512_min_epi32(_mm512_max_epi32(q, _mm512_set1_epi32(-127)), _mm512_set1_epi32(127));
    _mm_storeu_si128((__m128i*)(biased + 16 * i), _mm512_cvtepi32_epi8(_mm512_add_epi32(q, _mm512_set1_epi32(128))));
  }
  return scale;
}

void prepare_i8(const float* x, uint64_t cols, void* dst) {
  float* scale = (float*)dst;
  uint8_t* tables = (uint8_t*)dst + scale_bytes(cols);
  uint8_t biased[kBlock + 2];  // the last pair of a table reads one byte on; its sign there is 0
  biased[kBlock] = biased[kBlock + 1] = 128;
  for (uint64_t b = 0; b < cols / kBlock; ++b, tables += kBlockTables) {
    scale[b] = quantize_group(x + b * kBlock, biased);
    for (uint64_t word = 0; word < 8; ++word) write_word_tables(biased + 16 * word, tables + kWordTables * word);
  }
}

// Keeps the compiler from moving work on `v` across this point: without it, it hoists every look-up of a word and
// spills.
static inline __attribute__((always_inline)) void pin(__m512i& v) { asm volatile("" : "+v"(v)); }

// sum[w] += table[index[w]] for W tiles.
template <int W>
static inline __attribute__((always_inline)) void look_up(__m512i (&sum)[W], const __m512i (&index)[W],
                                                          const uint8_t* at) {
  __m512i table = _mm512_load_si512(at);
  pin(table);
#pragma GCC unroll 4
  for (int w = 0; w < W; ++w) sum[w] = _mm512_add_epi16(sum[w], _mm512_permutexvar_epi16(index[w], table));
#pragma GCC unroll 4
  for (int w = 0; w < W; ++w) pin(sum[w]);
}

template <int W>
static inline __attribute__((always_inline)) void look_up_six(__m512i (&sum)[W], const __m512i (&index)[W],
                                                              const uint8_t* at) {
  __m512i low = _mm512_load_si512(at), high = _mm512_load_si512(at + 64);
  pin(low);
  pin(high);
#pragma GCC unroll 4
  for (int w = 0; w < W; ++w) sum[w] = _mm512_add_epi16(sum[w], _mm512_permutex2var_epi16(low, index[w], high));
#pragma GCC unroll 4
  for (int w = 0; w < W; ++w) pin(sum[w]);
}

// Each word >> n, by the high half of a product: the multipliers have time, while shifts share the permutes' units.
static inline __attribute__((always_inline)) __m512i shift_right(__m512i words, int n) {
  return _mm512_mulhi_epu16(words, _mm512_set1_epi16((short)(1 << (16 - n))));
}

template <int R, int W>
static inline __attribute__((always_inline)) void add_block(const Pass& p, uint64_t block, __m512 (&acc)[R][W][2]) {
  const uint8_t* weights = p.weights + block * kTileBlockBytes;
  const uint8_t* tables = p.tables + block * kBlockTables;
  __m512i sum[R][W];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int w = 0; w < W; ++w) sum[r][w] = _mm512_setzero_si512();
#pragma GCC unroll 1
  for (int word = 0; word < 8; ++word, tables += kWordTables) {
    __m512i signs[W], next[W];
#pragma GCC unroll 4
    for (int w = 0; w < W; ++w) {
      const uint8_t* at = weights + w * p.tile_bytes + 64 * word;
      _mm_prefetch((const char*)(at + p.prefetch_bytes), _MM_HINT_T1);
      signs[w] = _mm512_load_si512(at);
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) look_up<W>(sum[r], signs, tables + r * p.row_bytes);
#pragma GCC unroll 4
    for (int w = 0; w < W; ++w) next[w] = shift_right(signs[w], 5);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) look_up<W>(sum[r], next, tables + r * p.row_bytes + 64);
#pragma GCC unroll 4
    for (int w = 0; w < W; ++w) next[w] = shift_right(signs[w], 10);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) look_up_six<W>(sum[r], next, tables + r * p.row_bytes + 128);
  }
#pragma GCC unroll 4
  for (int w = 0; w < W; ++w) {
    const uint8_t* s = weights + w * p.tile_bytes + kTileSignBytes;
    _mm_prefetch((const char*)(s + p.prefetch_bytes), _MM_HINT_T1);
    const __m512 s0 = _mm512_cvtph_ps(_mm256_load_si256((const __m256i*)s));
    const __m512 s1 = _mm512_cvtph_ps(_mm256_load_si256((const __m256i*)(s + 32)));
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m512 d = _mm512_set1_ps(*(const float*)((const uint8_t*)(p.scales + block) + r * p.row_bytes));
      const __m512 v0 = _mm512_cvtepi32_ps(_mm512_madd_epi16(sum[r][w], _mm512_set1_epi32(1)));        // even places
      const __m512 v1 = _mm512_cvtepi32_ps(_mm512_madd_epi16(sum[r][w], _mm512_set1_epi32(1 << 16)));  // odd places
      acc[r][w][0] = _mm512_fmadd_ps(v0, _mm512_mul_ps(s0, d), acc[r][w][0]);
      acc[r][w][1] = _mm512_fmadd_ps(v1, _mm512_mul_ps(s1, d), acc[r][w][1]);
    }
  }
}

template <int R, int W>
void run_pass(const Pass& p) {
  __m512 acc[R][W][2];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int w = 0; w < W; ++w) {
      const float* from = p.acc + r * p.acc_stride + 32 * w;
      acc[r][w][0] = p.first ? _mm512_setzero_ps() : _mm512_loadu_ps(from);
      acc[r][w][1] = p.first ? _mm512_setzero_ps() : _mm512_loadu_ps(from + 16);
    }
  for (uint64_t block = 0; block < p.n_blocks; ++block) add_block<R, W>(p, block, acc);
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int w = 0; w < W; ++w) {
      float* to = p.acc + r * p.acc_stride + 32 * w;
      _mm512_storeu_ps(to, acc[r][w][0]);
      _mm512_storeu_ps(to + 16, acc[r][w][1]);
    }
}

void run_rows_tiles(const Pass& p, uint64_t n_rows, uint64_t n_tiles) {
  static void (*const table[4][3])(const Pass&) = {
      {run_pass<1, 1>, run_pass<1, 2>, run_pass<1, 4>},
      {run_pass<2, 1>, run_pass<2, 2>, run_pass<2, 4>},
      {run_pass<3, 1>, run_pass<3, 2>, run_pass<3, 4>},
      {run_pass<4, 1>, run_pass<4, 2>, run_pass<4, 4>},
  };
  table[n_rows - 1][n_tiles == 4 ? 2 : n_tiles - 1](p);
}

constexpr DriverShape kShape = {kBlockTables, 4, 4, run_rows_tiles};

void matmul_i8(const turbo_matmul* args) { drive(args, kShape); }

// Sum of the 16 lanes by the fixed tree.
static inline float lane_sum(__m512 v) {
  const __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

// One output of up to R activation rows: a sign word selects +s or -s per lane.
template <int R>
void dots_f32(const turbo_matmul* a, uint64_t row, uint64_t output) {
  const turbo_matrix* m = a->matrix;
  const float* x[R];
  __m512 lane[R];
  for (int r = 0; r < R; ++r) {
    x[r] = (const float*)((const uint8_t*)a->activations + (row + r) * a->activation_stride);
    lane[r] = _mm512_setzero_ps();
  }
  for (uint64_t b = 0; b < m->cols / kBlock; ++b) {
    const uint8_t* block = tile_block(m, output / kTile, b);
    const float s = load_scale(block, output % kTile);
    const __m512 plus = _mm512_set1_ps(s), minus = _mm512_set1_ps(-s);
    for (uint64_t word = 0; word < 8; ++word) {
      uint16_t bits;
      memcpy(&bits, block + 64 * word + 2 * word_slot(output % kTile), 2);
      const __m512 weight = _mm512_mask_blend_ps(bits, minus, plus);
      for (int r = 0; r < R; ++r) {
        lane[r] = _mm512_fmadd_ps(weight, _mm512_loadu_ps(x[r]), lane[r]);
        x[r] += 16;
      }
    }
  }
  for (int r = 0; r < R; ++r) a->out[(row + r) * a->out_stride + output] = lane_sum(lane[r]);
}

void matmul_f32(const turbo_matmul* args) {
  for (uint64_t output = args->out_begin; output < args->out_end; ++output) {
    uint64_t row = 0;
    for (; row + 4 <= args->n_rows; row += 4) dots_f32<4>(args, row, output);
    for (; row < args->n_rows; ++row) dots_f32<1>(args, row, output);
  }
}

}  // namespace

const Kernels* avx512_kernels() {
  static const Kernels kernels = {Layout::words, activation_bytes, prepare_i8, matmul_i8, matmul_f32};
  return &kernels;
}

}  // namespace turbo::q1
