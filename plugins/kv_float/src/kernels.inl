// Kernels of the float codecs on Vec16, included once per ISA file (which names the table function).
//
// scores: tiles of up to 16 dot products (1 query x 16 keys, or 2 queries x 8 keys that share the key's
// conversion), each in its own 16 virtual lanes, summed by the fixed tree. accumulate: output chunks stay in
// registers while the rows of the run pass by once per pair of queries.
#include "fp8.h"
#include "kernels.h"

#include <turbo/kernel/fetch.hpp>
#include <turbo/kernel/vec16.hpp>

namespace turbo::kv_float {
namespace {

using namespace turbo::kernel;

struct F32 {
  using Stored = float;
  static constexpr bool kFinite = false, kScaled = false;
  static Vec16 load(const float* p) { return kernel::load(p); }
  static Vec16 load_n(const float* p, uint64_t n) { return kernel::load_n(p, n); }
  static void store_n(float* p, Vec16 a, uint64_t n) { kernel::store_n(p, a, n); }
};
struct F16 {
  using Stored = uint16_t;
  static constexpr bool kFinite = false, kScaled = false;
  static Vec16 load(const uint16_t* p) { return load_f16(p); }
  static Vec16 load_n(const uint16_t* p, uint64_t n) { return load_f16_n(p, n); }
  static void store_n(uint16_t* p, Vec16 a, uint64_t n) {
    store_f16_n(p, max_gt(min_lt(a, set1(65504.0f)), set1(-65504.0f)), n);
  }
};
struct Bf16 {
  using Stored = uint16_t;
  static constexpr bool kFinite = false, kScaled = false;
  static constexpr float largest = 3.38953138925153547590470800371487866880e+38f;
  static Vec16 load(const uint16_t* p) { return load_bf16(p); }
  static Vec16 load_n(const uint16_t* p, uint64_t n) { return load_bf16_n(p, n); }
  static void store_n(uint16_t* p, Vec16 a, uint64_t n) {
    store_bf16_n(p, max_gt(min_lt(a, set1(largest)), set1(-largest)), n);
  }
};

// Sixteen bytes as binary16 numbers: e4m3 moves under the other exponent bias, e5m2 gains eight zero bits.
template <bool kE4m3>
Vec16 load_fp8(const uint8_t* p) {
#if TURBO_VEC_WIDTH == 512 || TURBO_VEC_WIDTH == 256
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  // The sign fills bits 14 and 15 after the shift; the lower copy goes.
  const __m256i half = kE4m3 ? _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7), _mm256_set1_epi16(static_cast<short>(0xbf80)))
                             : _mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 8);
#if TURBO_VEC_WIDTH == 512
  return {_mm512_cvtph_ps(half)};
#else
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(half)), _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1))};
#endif
#else
  Vec16 out;
  for (int i = 0; i < TURBO_LANES; ++i) out.lane[i] = turbo_f16_to_f32(kE4m3 ? e4m3_as_f16(p[i]) : static_cast<uint16_t>(p[i] << 8));
  return out;
#endif
}

template <bool kE4m3>
struct Fp8 {
  using Stored = uint8_t;
  static constexpr bool kFinite = true, kScaled = false;
  static Vec16 load(const uint8_t* p) { return load_fp8<kE4m3>(p); }
  static Vec16 load_n(const uint8_t* p, uint64_t n) {
    uint8_t padded[16] = {0};
    memcpy(padded, p, n);
    return load_fp8<kE4m3>(padded);
  }
  static void store_n(uint8_t* p, Vec16 a, uint64_t n) {
    float x[16];
    uint8_t codes[16];
    store(x, a);
    for (int i = 0; i < 16; ++i) codes[i] = kE4m3 ? to_e4m3(x[i]) : to_e5m2(x[i]);
    memcpy(p, codes, n);
  }
};
template <bool kE4m3>
struct ScaledFp8 : Fp8<kE4m3> {
  static constexpr bool kScaled = true;
};

// The row's scale: the largest magnitude comes to lie at 448.
inline uint16_t row_scale(const float* src, uint64_t n) {
  Vec16 largest = zero();
  for (uint64_t j = 0; j < n; j += 16) {
    const Vec16 x = load_n(src + j, n - j < 16 ? n - j : 16);
    largest = max_gt(max_gt(x, negate(x)), largest);
  }
  const float scale = max_lanes(largest) / 448.0f;
  return turbo_f32_to_f16(scale < 65504.0f ? scale : 65504.0f);
}

template <class E>
bool encode(const float* src, uint64_t n, uint8_t* row, uint16_t* scale) {
  for (uint64_t j = 0; j < n; j += 16) {
    const Vec16 x = load_n(src + j, n - j < 16 ? n - j : 16);
    if (any_nan(E::kFinite ? sub(x, x) : x)) return false;  // infinity less infinity is NaN
  }
  float divisor = 1.0f;
  if constexpr (E::kScaled) {
    *scale = row_scale(src, n);
    divisor = turbo_f16_to_f32(*scale);
    if (divisor == 0.0f) divisor = HUGE_VALF;  // too small for a scale: zeros
  }
  typename E::Stored* dst = reinterpret_cast<typename E::Stored*>(row);
  for (uint64_t j = 0; j < n; j += 16) {
    const uint64_t m = n - j < 16 ? n - j : 16;
    const Vec16 x = load_n(src + j, m);
    E::store_n(dst + j, E::kScaled ? div(x, set1(divisor)) : x, m);
  }
  return true;
}

// Tile loops must unroll so that accumulators live in registers; -O2 alone does not.
#if defined(__clang__)
#define TURBO_UNROLL _Pragma("unroll")
#else
#define TURBO_UNROLL _Pragma("GCC unroll 16")
#endif

#if TURBO_VEC_WIDTH == 512
constexpr int kMostQueries = 4, kScoreTile = 16, kValueTile = 16;
#elif TURBO_VEC_WIDTH == 256
constexpr int kMostQueries = 2, kScoreTile = 4, kValueTile = 8;
#else
constexpr int kMostQueries = 1, kScoreTile = 1, kValueTile = 1;
#endif

// The line of the row ahead that lies where the kernel reads now; only the first queries of a run ask for it.
// In step with the kernel's own loads, so that neither waits for a burst of the other.
template <bool kFetch>
void fetch(const KeyRun& run, uint64_t row, uint64_t byte) {
  if constexpr (kFetch)
    if (byte % 64 == 0) fetch_line(run.ahead + row * run.pitch + byte);
}

// NQ x NK dot products. A short tile repeats the run's last key and drops the copies.
template <class E, int NQ, int NK, bool kFetch>
void score_tile(const KeyRun& run, uint64_t first, const float* queries, uint64_t query_stride, float* scores, uint64_t score_stride) {
  using Stored = typename E::Stored;
  const Stored* key[NK];
  TURBO_UNROLL
  for (int k = 0; k < NK; ++k) {
    const uint64_t row = first + k < run.n_rows ? first + k : run.n_rows - 1;
    key[k] = reinterpret_cast<const Stored*>(run.rows + row * run.pitch);
  }
  Vec16 acc[NQ * NK];
  TURBO_UNROLL
  for (int i = 0; i < NQ * NK; ++i) acc[i] = zero();
  const uint64_t whole = run.head_dim / 16 * 16, rest = run.head_dim - whole;
  for (uint64_t j = 0; j < whole; j += 16) {
    Vec16 q[NQ];
    TURBO_UNROLL
    for (int a = 0; a < NQ; ++a) q[a] = load(queries + a * query_stride + j);
    TURBO_UNROLL
    for (int k = 0; k < NK; ++k) {
      fetch<kFetch>(run, first + k, j * sizeof(Stored));
      const Vec16 x = E::load(key[k] + j);
      TURBO_UNROLL
      for (int a = 0; a < NQ; ++a) acc[a * NK + k] = fma(q[a], x, acc[a * NK + k]);
    }
  }
  if (rest)
    TURBO_UNROLL
    for (int k = 0; k < NK; ++k) {
      const Vec16 x = E::load_n(key[k] + whole, rest);
      TURBO_UNROLL
      for (int a = 0; a < NQ; ++a)
        acc[a * NK + k] = fma_n(load_n(queries + a * query_stride + whole, rest), x, acc[a * NK + k], rest);
    }
  float sums[NQ * NK];
  if constexpr (NQ * NK == 16) store(sums, sum_lanes_x16(acc));
  else
    for (int i = 0; i < NQ * NK; ++i) sums[i] = sum_lanes(acc[i]);
  const uint64_t left = run.n_rows - first, n = left < NK ? left : NK;
  TURBO_UNROLL
  for (int a = 0; a < NQ; ++a)
    for (uint64_t k = 0; k < n; ++k)
      scores[a * score_stride + first + k] = E::kScaled ? sums[a * NK + k] * turbo_f16_to_f32(run.scales[first + k]) : sums[a * NK + k];
}

template <class E, int NQ, bool kFetch>
void score_queries(const KeyRun& run, const float* queries, uint64_t query_stride, float* out, uint64_t score_stride) {
  constexpr int kKeys = kScoreTile / NQ;
  for (uint64_t i = 0; i < run.n_rows; i += kKeys) score_tile<E, NQ, kKeys, kFetch>(run, i, queries, query_stride, out, score_stride);
}

// Queries from q on, NQ at a time while they last; returns the first left over.
template <class E, int NQ>
uint64_t scores_by(const KeyRun& run, uint64_t q, const float* queries, uint64_t query_stride, float* out, uint64_t score_stride) {
  for (; q + NQ <= run.n_queries; q += NQ)
    (q == 0 && run.ahead ? &score_queries<E, NQ, true> : &score_queries<E, NQ, false>)(run, queries + q * query_stride, query_stride,
                                                                                       out + q * score_stride, score_stride);
  return q;
}

template <class E>
void scores(const KeyRun& run, const float* queries, uint64_t query_stride, float* out, uint64_t score_stride) {
  uint64_t q = 0;
  if constexpr (kMostQueries >= 4) q = scores_by<E, 4>(run, q, queries, query_stride, out, score_stride);
  if constexpr (kMostQueries >= 2) q = scores_by<E, 2>(run, q, queries, query_stride, out, score_stride);
  scores_by<E, 1>(run, q, queries, query_stride, out, score_stride);
}

// NQ queries, NC whole chunks from element `first`; with `rest`, the one chunk has only that many elements.
template <class E, int NQ, int NC, bool kFetch>
void value_tile(const KeyRun& run, uint64_t first, uint64_t rest, const float* weights, uint64_t weight_stride, float* out,
                uint64_t out_stride) {
  Vec16 acc[NQ * NC];
  TURBO_UNROLL
  for (int a = 0; a < NQ; ++a)
    TURBO_UNROLL
    for (int c = 0; c < NC; ++c) acc[a * NC + c] = load(out + a * out_stride + first + c * 16);
  for (uint64_t i = 0; i < run.n_rows; ++i) {
    const typename E::Stored* value = reinterpret_cast<const typename E::Stored*>(run.rows + i * run.pitch) + first;
    Vec16 w[NQ];
    TURBO_UNROLL
    for (int a = 0; a < NQ; ++a) {
      const float weight = weights[a * weight_stride + i];
      w[a] = set1(E::kScaled ? weight * turbo_f16_to_f32(run.scales[i]) : weight);
    }
    TURBO_UNROLL
    for (int c = 0; c < NC; ++c) {
      fetch<kFetch>(run, i, (first + c * 16) * sizeof(typename E::Stored));
      const Vec16 x = rest ? E::load_n(value, rest) : E::load(value + c * 16);
      TURBO_UNROLL
      for (int a = 0; a < NQ; ++a) acc[a * NC + c] = fma(w[a], x, acc[a * NC + c]);
    }
  }
  TURBO_UNROLL
  for (int a = 0; a < NQ; ++a)
    TURBO_UNROLL
    for (int c = 0; c < NC; ++c) store(out + a * out_stride + first + c * 16, acc[a * NC + c]);
}

template <class E, int NQ, bool kFetch>
void accumulate_queries(const KeyRun& run, const float* weights, uint64_t weight_stride, float* out, uint64_t out_stride) {
  constexpr int kChunks = kValueTile / NQ;
  uint64_t e = 0;
  for (; e + kChunks * 16 <= run.head_dim; e += kChunks * 16)
    value_tile<E, NQ, kChunks, kFetch>(run, e, 0, weights, weight_stride, out, out_stride);
  for (; e < run.head_dim; e += 16)
    value_tile<E, NQ, 1, kFetch>(run, e, run.head_dim - e < 16 ? run.head_dim - e : 0, weights, weight_stride, out, out_stride);
}

template <class E, int NQ>
uint64_t accumulate_by(const KeyRun& run, uint64_t q, const float* weights, uint64_t weight_stride, float* out, uint64_t out_stride) {
  for (; q + NQ <= run.n_queries; q += NQ)
    (q == 0 && run.ahead ? &accumulate_queries<E, NQ, true> : &accumulate_queries<E, NQ, false>)(
        run, weights + q * weight_stride, weight_stride, out + q * out_stride, out_stride);
  return q;
}

template <class E>
void accumulate(const KeyRun& run, const float* weights, uint64_t weight_stride, float* out, uint64_t out_stride) {
  uint64_t q = 0;
  if constexpr (kMostQueries >= 4) q = accumulate_by<E, 4>(run, q, weights, weight_stride, out, out_stride);
  if constexpr (kMostQueries >= 2) q = accumulate_by<E, 2>(run, q, weights, weight_stride, out, out_stride);
  accumulate_by<E, 1>(run, q, weights, weight_stride, out, out_stride);
}

template <class E>
constexpr Kernels table = {&encode<E>, &scores<E>, &accumulate<E>};

const Kernels& pick(Element element) {
  switch (element) {
    case Element::f32: return table<F32>;
    case Element::f16: return table<F16>;
    case Element::bf16: return table<Bf16>;
    case Element::e4m3: return table<Fp8<true>>;
    case Element::e5m2: return table<Fp8<false>>;
    case Element::e4m3_scaled: return table<ScaledFp8<true>>;
    default: return table<ScaledFp8<false>>;
  }
}

}  // namespace
}  // namespace turbo::kv_float
