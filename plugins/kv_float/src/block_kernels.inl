// Kernels of the block codecs, included once per ISA file (which names the table function).
#include "block_kernels.h"

#include <turbo/kernel/fetch.hpp>
#include <turbo/kernel/vec16.hpp>

#if defined(__clang__)
#define TURBO_BLOCK_UNROLL _Pragma("unroll")
#else
#define TURBO_BLOCK_UNROLL _Pragma("GCC unroll 16")
#endif

namespace turbo::kv_float {
namespace {

using namespace turbo::kernel;

// ---- Sixteen keys at a time: one unit of each in Keys, one integer sum of each in Sums.

#if TURBO_VEC_WIDTH == 512

struct Sums { __m512i v; };
inline Sums start(int32_t x) { return {_mm512_set1_epi32(x)}; }
inline Vec16 to_float(Sums s) { return {_mm512_cvtepi32_ps(s.v)}; }
inline __m512i quad(const int8_t* p) {
  int32_t four;
  memcpy(&four, p, 4);
  return _mm512_set1_epi32(four);
}
struct Keys8 {
  __m512i v;
  explicit Keys8(const uint8_t* p) : v(_mm512_xor_si512(_mm512_loadu_si512(p), _mm512_set1_epi8(static_cast<char>(0x80)))) {}
  Sums dot(Sums s, const int8_t* query) const { return {_mm512_dpbusd_epi32(s.v, v, quad(query))}; }
};
struct Keys4 {
  __m512i low, high;
  explicit Keys4(const uint8_t* p) {
    const __m512i both = _mm512_loadu_si512(p), mask = _mm512_set1_epi8(15);
    low = _mm512_and_si512(both, mask);
    high = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
  }
  Sums dot(Sums s, const int8_t* query) const {
    return {_mm512_dpbusd_epi32(_mm512_dpbusd_epi32(s.v, low, quad(query)), high, quad(query + 4))};
  }
};

#elif TURBO_VEC_WIDTH == 256

struct Sums { __m256i lo, hi; };
inline Sums start(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline Vec16 to_float(Sums s) { return {_mm256_cvtepi32_ps(s.lo), _mm256_cvtepi32_ps(s.hi)}; }
inline __m256i quad(const int8_t* p) {
  int32_t four;
  memcpy(&four, p, 4);
  return _mm256_set1_epi32(four);
}
inline __m256i half_of(const uint8_t* p, int i) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p) + i); }
inline __m256i add_pairs(__m256i sum, __m256i products) { return _mm256_add_epi32(sum, _mm256_madd_epi16(products, _mm256_set1_epi16(1))); }
// Signed codes: magnitudes times the query under the key's sign, so that two products fit 16 bits.
struct Keys8 {
  __m256i key[2], magnitude[2];
  explicit Keys8(const uint8_t* p) : key{half_of(p, 0), half_of(p, 1)}, magnitude{_mm256_abs_epi8(key[0]), _mm256_abs_epi8(key[1])} {}
  Sums dot(Sums s, const int8_t* query) const {
    const __m256i q = quad(query);
    return {add_pairs(s.lo, _mm256_maddubs_epi16(magnitude[0], _mm256_sign_epi8(q, key[0]))),
            add_pairs(s.hi, _mm256_maddubs_epi16(magnitude[1], _mm256_sign_epi8(q, key[1])))};
  }
};
struct Keys4 {
  __m256i low[2], high[2];
  explicit Keys4(const uint8_t* p) {
    const __m256i mask = _mm256_set1_epi8(15);
    for (int i = 0; i < 2; ++i) {
      const __m256i both = half_of(p, i);
      low[i] = _mm256_and_si256(both, mask);
      high[i] = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
    }
  }
  Sums dot(Sums s, const int8_t* query) const {
    const __m256i a = quad(query), b = quad(query + 4);  // four products of at most 15 * 127 fit 16 bits
    return {add_pairs(s.lo, _mm256_add_epi16(_mm256_maddubs_epi16(low[0], a), _mm256_maddubs_epi16(high[0], b))),
            add_pairs(s.hi, _mm256_add_epi16(_mm256_maddubs_epi16(low[1], a), _mm256_maddubs_epi16(high[1], b)))};
  }
};

#else

struct Sums { int32_t lane[16]; };
inline Sums start(int32_t x) {
  Sums s;
  for (int32_t& lane : s.lane) lane = x;
  return s;
}
inline Vec16 to_float(Sums s) {
  Vec16 out;
  for (int i = 0; i < 16; ++i) out.lane[i] = static_cast<float>(s.lane[i]);
  return out;
}
struct Keys8 {
  const uint8_t* p;
  explicit Keys8(const uint8_t* keys) : p(keys) {}
  Sums dot(Sums s, const int8_t* query) const {
    for (int i = 0; i < 64; ++i) s.lane[i / 4] += static_cast<int8_t>(p[i]) * query[i % 4];
    return s;
  }
};
struct Keys4 {
  const uint8_t* p;
  explicit Keys4(const uint8_t* keys) : p(keys) {}
  Sums dot(Sums s, const int8_t* query) const {
    for (int i = 0; i < 64; ++i) s.lane[i / 4] += (p[i] & 15) * query[i % 4] + (p[i] >> 4) * query[4 + i % 4];
    return s;
  }
};

#endif

// ---- Values: sixteen codes as floats.

#if TURBO_VEC_WIDTH == 512

inline Vec16 widen_i8(const uint8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
// The two chunks of a whole row block of nibbles.
inline void widen_nibbles(const uint8_t* p, Vec16* chunk) {
  const __m512i both = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m512 levels = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  chunk[0] = {_mm512_permutexvar_ps(both, levels)};  // looks at the low four bits alone
  chunk[1] = {_mm512_permutexvar_ps(_mm512_srli_epi32(both, 4), levels)};
}

#elif TURBO_VEC_WIDTH == 256

inline Vec16 widen_i8(__m128i bytes) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}
inline Vec16 widen_i8(const uint8_t* p) { return widen_i8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
inline void widen_nibbles(const uint8_t* p, Vec16* chunk) {
  const __m128i both = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)), mask = _mm_set1_epi8(15), middle = _mm_set1_epi8(8);
  chunk[0] = widen_i8(_mm_sub_epi8(_mm_and_si128(both, mask), middle));
  chunk[1] = widen_i8(_mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(both, 4), mask), middle));
}

#else

inline Vec16 widen_i8(const uint8_t* p) {
  Vec16 out;
  for (int i = 0; i < 16; ++i) out.lane[i] = static_cast<float>(static_cast<int8_t>(p[i]));
  return out;
}
inline void widen_nibbles(const uint8_t* p, Vec16* chunk) {
  for (int i = 0; i < 16; ++i) {
    chunk[0].lane[i] = static_cast<float>((p[i] & 15) - 8);
    chunk[1].lane[i] = static_cast<float>((p[i] >> 4) - 8);
  }
}

#endif

struct Q8 {
  using Keys = Keys8;
  static constexpr uint32_t kUnit = 4;  // elements of one key in a load
#if TURBO_VEC_WIDTH == 512
  static constexpr bool kUnsigned = true;  // the query's offset makes up for it
#else
  static constexpr bool kUnsigned = false;
#endif
  static constexpr uint64_t bytes(uint64_t elements) { return elements; }
  static void widen(const uint8_t* p, Vec16* chunk) {
    chunk[0] = widen_i8(p);
    chunk[1] = widen_i8(p + 16);
  }
  static void widen_short(const uint8_t* p, uint64_t n, Vec16* chunk) {
    uint8_t codes[32] = {0};
    memcpy(codes, p, n);
    widen(codes, chunk);
  }
};

struct Q4 {
  using Keys = Keys4;
  static constexpr uint32_t kUnit = 8;
  static constexpr bool kUnsigned = true;
  static constexpr uint64_t bytes(uint64_t elements) { return elements / 2; }
  static void widen(const uint8_t* p, Vec16* chunk) { widen_nibbles(p, chunk); }
  static void widen_short(const uint8_t* p, uint64_t n, Vec16* chunk) {
    uint8_t codes[32] = {0};
    for (uint64_t i = 0; i < n / 2; ++i) {
      codes[i] = static_cast<uint8_t>((p[i] & 15) - 8);
      codes[n / 2 + i] = static_cast<uint8_t>((p[i] >> 4) - 8);
    }
    chunk[0] = widen_i8(codes);
    chunk[1] = widen_i8(codes + 16);
  }
};

#if TURBO_VEC_WIDTH == 512
constexpr int kKeyQueries = 8, kValueQueries = 4, kValueBlocks = 8;  // kValueBlocks: row blocks times queries in registers
#elif TURBO_VEC_WIDTH == 256
constexpr int kKeyQueries = 4, kValueQueries = 2, kValueBlocks = 2;
#else
constexpr int kKeyQueries = 1, kValueQueries = 1, kValueBlocks = 1;
#endif

// ---- Scores

// NQ queries and the keys of one group of 16 rows; total[a] has the scores.
template <class B, int NQ, bool kFetch>
void score_group(const BlockRun& run, uint64_t group, const float* queries, uint64_t query_stride, Vec16* total) {
  const uint64_t d = run.head_dim, units = d / B::kUnit, n_blocks = row_blocks(d);
  const uint64_t at = group * units * 64;
  const uint8_t *codes = run.head + at, *ahead = kFetch ? run.ahead + at : nullptr;
  const uint16_t* scales = reinterpret_cast<const uint16_t*>(run.head + run.scales) + group * 16;
  TURBO_BLOCK_UNROLL
  for (int a = 0; a < NQ; ++a) total[a] = zero();
  uint64_t unit = 0;
  for (uint64_t b = 0; b < n_blocks; ++b) {
    const uint64_t end = (b + 1) * (kRowBlock / B::kUnit) < units ? (b + 1) * (kRowBlock / B::kUnit) : units;
    Sums sums[NQ];
    TURBO_BLOCK_UNROLL
    for (int a = 0; a < NQ; ++a) {
      int32_t offset = 0;
      if constexpr (B::kUnsigned) memcpy(&offset, queries + a * query_stride + n_blocks + b, 4);
      sums[a] = start(offset);
    }
    for (; unit < end; ++unit) {
      if constexpr (kFetch) fetch_line(ahead + unit * 64);
      const typename B::Keys keys(codes + unit * 64);
      TURBO_BLOCK_UNROLL
      for (int a = 0; a < NQ; ++a)
        sums[a] = keys.dot(sums[a], reinterpret_cast<const int8_t*>(queries + a * query_stride + 2 * n_blocks) + unit * B::kUnit);
    }
    const Vec16 scale = load_f16(scales + b * 64);
    TURBO_BLOCK_UNROLL
    for (int a = 0; a < NQ; ++a) total[a] = fma(to_float(sums[a]), mul(scale, set1(queries[a * query_stride + b])), total[a]);
  }
}

template <class B, int NQ, bool kFetch>
void block_score_queries(const BlockRun& run, const float* queries, uint64_t query_stride, float* scores, uint64_t score_stride) {
  const uint64_t begin = run.row_begin, end = begin + run.n_rows;
  for (uint64_t group = begin / 16; group * 16 < end; ++group) {
    Vec16 total[NQ];
    score_group<B, NQ, kFetch>(run, group, queries, query_stride, total);
    const uint64_t first = group * 16 > begin ? group * 16 : begin, last = group * 16 + 16 < end ? group * 16 + 16 : end;
    for (int a = 0; a < NQ; ++a) {
      float* to = scores + a * score_stride + (first - begin);
      if (last - first == 16) {
        store(to, total[a]);
        continue;
      }
      float all[16];
      store(all, total[a]);
      memcpy(to, all + (first - group * 16), (last - first) * sizeof(float));
    }
  }
}

template <class B, int NQ>
uint64_t block_scores_by(const BlockRun& run, uint64_t q, const float* queries, uint64_t query_stride, float* out, uint64_t score_stride) {
  for (; q + NQ <= run.n_queries; q += NQ)
    (q == 0 && run.ahead ? &block_score_queries<B, NQ, true> : &block_score_queries<B, NQ, false>)(run, queries + q * query_stride, query_stride,
                                                                                       out + q * score_stride, score_stride);
  return q;
}

template <class B>
void block_scores(const BlockRun& run, const float* queries, uint64_t query_stride, float* out, uint64_t score_stride) {
  uint64_t q = 0;
  if constexpr (kKeyQueries >= 8) q = block_scores_by<B, 8>(run, q, queries, query_stride, out, score_stride);
  if constexpr (kKeyQueries >= 4) q = block_scores_by<B, 4>(run, q, queries, query_stride, out, score_stride);
  if constexpr (kKeyQueries >= 2) q = block_scores_by<B, 2>(run, q, queries, query_stride, out, score_stride);
  block_scores_by<B, 1>(run, q, queries, query_stride, out, score_stride);
}

// ---- Values

// weight * scale of the run's rows: [row block of the tile][query][64].
template <int NQ, int NB, bool kFetch>
void weigh(const BlockRun& run, uint64_t first_block, const float* weights, uint64_t weight_stride, float (*out)[NQ][64]) {
  for (int b = 0; b < NB; ++b) {
    const uint64_t at = run.scales + (first_block + b) * 128 + run.row_begin * 2;
    const uint16_t* scales = reinterpret_cast<const uint16_t*>(run.head + at);
    for (uint64_t i = 0; i < run.n_rows; i += 16) {
      if (kFetch && i % 32 == 0) fetch_line(run.ahead + at + i * 2);
      const uint64_t n = run.n_rows - i < 16 ? run.n_rows - i : 16;
      const Vec16 scale = load_f16_n(scales + i, n);
      for (int a = 0; a < NQ; ++a) store_n(out[b][a] + i, mul(load_n(weights + a * weight_stride + i, n), scale), n);
    }
  }
}

// NQ queries, NB row blocks from first_block; `rest`: the one block is short and has that many elements.
template <class B, int NQ, int NB, bool kFetch>
void block_value_tile(const BlockRun& run, uint64_t first_block, uint64_t rest, const float* weights, uint64_t weight_stride, float* out,
                      uint64_t out_stride) {
  const uint64_t pitch = B::bytes(run.head_dim), at = B::bytes(first_block * kRowBlock);
  const bool second = rest == 0 || rest > 16;
  out += first_block * kRowBlock;
  float weighted[NB][NQ][64];
  weigh<NQ, NB, kFetch>(run, first_block, weights, weight_stride, weighted);
  Vec16 acc[NQ][NB * 2];
  TURBO_BLOCK_UNROLL
  for (int a = 0; a < NQ; ++a)
    TURBO_BLOCK_UNROLL
    for (int c = 0; c < NB * 2; ++c) acc[a][c] = c == 0 || second ? load(out + a * out_stride + c * 16) : zero();
  for (uint64_t i = 0; i < run.n_rows; ++i) {
    const uint64_t offset = (run.row_begin + i) * pitch + at;
    if constexpr (kFetch) {
      constexpr uint64_t kBytes = B::bytes(NB * kRowBlock);
      for (uint64_t line = 0; line < kBytes; line += 64)
        if ((offset + line) % 64 < kBytes) fetch_line(run.ahead + offset + line);
    }
    TURBO_BLOCK_UNROLL
    for (int b = 0; b < NB; ++b) {
      const uint8_t* codes = run.head + offset + B::bytes(b * kRowBlock);
      Vec16 x[2];
      if (rest) B::widen_short(codes, rest, x);
      else B::widen(codes, x);
      TURBO_BLOCK_UNROLL
      for (int a = 0; a < NQ; ++a) {
        const Vec16 w = set1(weighted[b][a][i]);
        acc[a][b * 2] = fma(w, x[0], acc[a][b * 2]);
        acc[a][b * 2 + 1] = fma(w, x[1], acc[a][b * 2 + 1]);
      }
    }
  }
  TURBO_BLOCK_UNROLL
  for (int a = 0; a < NQ; ++a)
    TURBO_BLOCK_UNROLL
    for (int c = 0; c < NB * 2; ++c)
      if (c == 0 || second) store(out + a * out_stride + c * 16, acc[a][c]);
}

template <class B, int NQ, bool kFetch>
void accumulate_blocks(const BlockRun& run, const float* weights, uint64_t weight_stride, float* out, uint64_t out_stride) {
  constexpr int kBlocks = kValueBlocks / NQ < 4 ? kValueBlocks / NQ : 4;
  const uint64_t whole = run.head_dim / kRowBlock, rest = run.head_dim % kRowBlock;
  uint64_t b = 0;
  for (; b + kBlocks <= whole; b += kBlocks) block_value_tile<B, NQ, kBlocks, kFetch>(run, b, 0, weights, weight_stride, out, out_stride);
  for (; b < whole; ++b) block_value_tile<B, NQ, 1, kFetch>(run, b, 0, weights, weight_stride, out, out_stride);
  if (rest) block_value_tile<B, NQ, 1, kFetch>(run, b, rest, weights, weight_stride, out, out_stride);
}

template <class B, int NQ>
uint64_t accumulate_blocks_by(const BlockRun& run, uint64_t q, const float* weights, uint64_t weight_stride, float* out, uint64_t out_stride) {
  for (; q + NQ <= run.n_queries; q += NQ)
    (q == 0 && run.ahead ? &accumulate_blocks<B, NQ, true> : &accumulate_blocks<B, NQ, false>)(
        run, weights + q * weight_stride, weight_stride, out + q * out_stride, out_stride);
  return q;
}

template <class B>
void block_accumulate(const BlockRun& run, const float* weights, uint64_t weight_stride, float* out, uint64_t out_stride) {
  uint64_t q = 0;
  if constexpr (kValueQueries >= 4) q = accumulate_blocks_by<B, 4>(run, q, weights, weight_stride, out, out_stride);
  if constexpr (kValueQueries >= 2) q = accumulate_blocks_by<B, 2>(run, q, weights, weight_stride, out, out_stride);
  accumulate_blocks_by<B, 1>(run, q, weights, weight_stride, out, out_stride);
}

template <class B>
constexpr BlockKernels block_table = {&block_scores<B>, &block_accumulate<B>};

const BlockKernels& pick_block(uint32_t bits) { return bits == 8 ? block_table<Q8> : block_table<Q4>; }

}  // namespace
}  // namespace turbo::kv_float
