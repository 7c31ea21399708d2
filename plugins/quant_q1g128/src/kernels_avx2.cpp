// AVX2 + FMA + F16C. Layout::bytes, one 8-bit lane per output row.
//
// As in the AVX-512 kernels, sums are looked up: a sign byte is two nibbles, and for each nibble the activation row
// holds the 16 sums of its four inputs, low bytes and high bytes apart, for a byte shuffle to pick from. Unpacking the
// two gives 16-bit sums, which a block of 128 inputs cannot overflow.
#include <immintrin.h>

#include "driver.h"

namespace turbo::q1 {
namespace {

constexpr uint64_t kNibbleTables = 32;  // 16 low bytes, 16 high bytes
constexpr uint64_t kBlockTables = 32 * kNibbleTables;

uint64_t activation_bytes(uint64_t cols) { return scale_bytes(cols) + cols / kBlock * kBlockTables; }

// Signs of the four inputs for the 16 table entries, as byte pairs for maddubs, and the share of the bias of 128.
struct SignPattern {
  alignas(32) int8_t pair[2][32];
  alignas(32) int16_t bias[16];
};

constexpr SignPattern make_pattern() {
  SignPattern p{};
  for (int e = 0; e < 16; ++e) {
    int sum = 0;
    for (int k = 0; k < 4; ++k) {
      const int sign = e >> k & 1 ? 1 : -1;
      p.pair[k / 2][2 * e + k % 2] = (int8_t)sign;
      sum += sign;
    }
    p.bias[e] = (int16_t)(128 * sum);
  }
  return p;
}

constexpr SignPattern kFour = make_pattern();

static inline __m256i pair_at(const uint8_t* biased) {
  int16_t pair;
  memcpy(&pair, biased, 2);
  return _mm256_set1_epi16(pair);
}

static inline void write_nibble_tables(const uint8_t* biased, uint8_t* out) {
  const __m256i a = _mm256_maddubs_epi16(pair_at(biased), _mm256_load_si256((const __m256i*)kFour.pair[0]));
  const __m256i b = _mm256_maddubs_epi16(pair_at(biased + 2), _mm256_load_si256((const __m256i*)kFour.pair[1]));
  const __m256i entry = _mm256_sub_epi16(_mm256_add_epi16(a, b), _mm256_load_si256((const __m256i*)kFour.bias));
  const __m256i low = _mm256_and_si256(entry, _mm256_set1_epi16(0xff)), high = _mm256_srli_epi16(entry, 8);
  // Packing works inside 128-bit lanes: low 0..7, high 0..7, low 8..15, high 8..15.
  _mm256_storeu_si256((__m256i*)out, _mm256_permute4x64_epi64(_mm256_packus_epi16(low, high), 0xd8));
}

// Writes q + 128; returns the scale. Same values as quantize_group of the reference.
static inline float quantize_group(const float* x, uint8_t* biased) {
  __m256i largest = _mm256_setzero_si256();
  for (int i = 0; i < 16; ++i) {
    const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + 8 * i));
    largest = _mm256_max_epu32(largest, _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)));
  }
  __m128i m = _mm_max_epu32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
  const float scale = group_scale((uint32_t)_mm_cvtsi128_si32(m));
  if (!(scale > 0.0f)) {
    memset(biased, 128, kBlock);
    return scale;
  }
  const __m256 inverse = _mm256_set1_ps(1.0f / scale);
  for (int i = 0; i < 8; ++i) {
    __m256i q[2];
    for (int h = 0; h < 2; ++h) {
      q[h] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 16 * i + 8 * h), inverse));
      q[h] = _mm256_min_epi32(_mm256_max_epi32(q[h], _mm256_set1_epi32(-127)), _mm256_set1_epi32(127));
      q[h] = _mm256_add_epi32(q[h], _mm256_set1_epi32(128));
    }
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(q[0], q[1]), 0xd8);
    const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128((__m128i*)(biased + 16 * i), bytes);
  }
  return scale;
}

void prepare_i8(const float* x, uint64_t cols, void* dst) {
  float* scale = (float*)dst;
  uint8_t* tables = (uint8_t*)dst + scale_bytes(cols);
  uint8_t biased[kBlock];
  for (uint64_t b = 0; b < cols / kBlock; ++b) {
    scale[b] = quantize_group(x + b * kBlock, biased);
    for (uint64_t i = 0; i < kBlock; i += 4, tables += kNibbleTables) write_nibble_tables(biased + i, tables);
  }
}

static inline __m256i table_at(const uint8_t* p) {
  return _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i*)p));
}

// sum[0] (rows 0..15) and sum[1] (rows 16..31) += table[nibble].
static inline __attribute__((always_inline)) void look_up(__m256i (&sum)[2], __m256i nibble, const uint8_t* tables) {
  const __m256i low = _mm256_shuffle_epi8(table_at(tables), nibble);
  const __m256i high = _mm256_shuffle_epi8(table_at(tables + 16), nibble);
  sum[0] = _mm256_add_epi16(sum[0], _mm256_unpacklo_epi8(low, high));
  sum[1] = _mm256_add_epi16(sum[1], _mm256_unpackhi_epi8(low, high));
}

// acc[0..7] += (float)sum * (s * d) for eight rows.
static inline void accumulate(__m128i sum, const uint8_t* scales, __m256 d, float* acc, bool first) {
  const __m256 s = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)scales));
  const __m256 value = _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(sum));
  const __m256 before = first ? _mm256_setzero_ps() : _mm256_loadu_ps(acc);
  _mm256_storeu_ps(acc, _mm256_fmadd_ps(value, _mm256_mul_ps(s, d), before));
}

template <int R>
void run_pass(const Pass& p) {
  const __m256i nibble_mask = _mm256_set1_epi8(15);
  for (uint64_t block = 0; block < p.n_blocks; ++block) {
    const uint8_t* weights = p.weights + block * kTileBlockBytes;
    const uint8_t* tables = p.tables + block * kBlockTables;
    __m256i sum[R][2];
    for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = _mm256_setzero_si256();
    for (int i = 0; i < 16; ++i, tables += 2 * kNibbleTables) {
      const __m256i bits = _mm256_load_si256((const __m256i*)(weights + 32 * i));
      const __m256i low = _mm256_and_si256(bits, nibble_mask);
      const __m256i high = _mm256_and_si256(_mm256_srli_epi16(bits, 4), nibble_mask);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        look_up(sum[r], low, tables + r * p.row_bytes);
        look_up(sum[r], high, tables + r * p.row_bytes + kNibbleTables);
      }
    }
    const uint8_t* scales = weights + kTileSignBytes;
    const bool first = p.first && block == 0;
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m256 d = _mm256_set1_ps(*(const float*)((const uint8_t*)(p.scales + block) + r * p.row_bytes));
      float* acc = p.acc + r * p.acc_stride;
      for (int h = 0; h < 2; ++h) {
        accumulate(_mm256_castsi256_si128(sum[r][h]), scales + 32 * h, d, acc + 16 * h, first);
        accumulate(_mm256_extracti128_si256(sum[r][h], 1), scales + 32 * h + 16, d, acc + 16 * h + 8, first);
      }
    }
  }
}

void run_rows(const Pass& p, uint64_t n_rows, uint64_t) {
  static void (*const table[4])(const Pass&) = {run_pass<1>, run_pass<2>, run_pass<3>, run_pass<4>};
  table[n_rows - 1](p);
}

constexpr DriverShape kShape = {kBlockTables, 6, 1, run_rows};

void matmul_i8(const turbo_matmul* args) { drive(args, kShape); }

// Sum of the 16 lanes (low = lanes 0..7) by the fixed tree.
static inline float lane_sum(__m256 low, __m256 high) {
  const __m256 s8 = _mm256_add_ps(low, high);
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

// One output of R activation rows: sign byte 2k drives lanes 0..7, byte 2k + 1 lanes 8..15.
template <int R>
void dots_f32(const turbo_matmul* a, uint64_t row, uint64_t output) {
  const turbo_matrix* m = a->matrix;
  const uint64_t slot = byte_slot(output % kTile);
  const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const float* x[R];
  __m256 lane[R][2];
  for (int r = 0; r < R; ++r) {
    x[r] = (const float*)((const uint8_t*)a->activations + (row + r) * a->activation_stride);
    lane[r][0] = lane[r][1] = _mm256_setzero_ps();
  }
  for (uint64_t b = 0; b < m->cols / kBlock; ++b) {
    const uint8_t* block = tile_block(m, output / kTile, b);
    const float s = load_scale(block, output % kTile);
    const __m256 plus = _mm256_set1_ps(s), minus = _mm256_set1_ps(-s);
    for (int i = 0; i < 16; i += 2) {
      for (int h = 0; h < 2; ++h) {
        const __m256i signs = _mm256_set1_epi32(block[32 * (i + h) + slot]);
        const __m256i set = _mm256_cmpeq_epi32(_mm256_and_si256(signs, bit), bit);
        const __m256 weight = _mm256_blendv_ps(minus, plus, _mm256_castsi256_ps(set));
        for (int r = 0; r < R; ++r) {
          lane[r][h] = _mm256_fmadd_ps(weight, _mm256_loadu_ps(x[r]), lane[r][h]);
          x[r] += 8;
        }
      }
    }
  }
  for (int r = 0; r < R; ++r) a->out[(row + r) * a->out_stride + output] = lane_sum(lane[r][0], lane[r][1]);
}

void matmul_f32(const turbo_matmul* args) {
  for (uint64_t output = args->out_begin; output < args->out_end; ++output) {
    uint64_t row = 0;
    for (; row + 4 <= args->n_rows; row += 4) dots_f32<4>(args, row, output);
    for (; row < args->n_rows; ++row) dots_f32<1>(args, row, output);
  }
}

}  // namespace

const Kernels* avx2_kernels() {
  static const Kernels kernels = {Layout::bytes, activation_bytes, prepare_i8, matmul_i8, matmul_f32};
  return &kernels;
}

}  // namespace turbo::q1
