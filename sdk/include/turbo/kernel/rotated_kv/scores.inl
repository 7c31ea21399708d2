// Scores of packed keys. Part of kernels.inl.
//
// score = (dot * g) * unit, dot the exact sum of int8 levels times int8 query. Integers are exact in any order, so the
// paths below differ in speed alone. A key is unpacked once for all queries of the run: straight into the products while
// they fit one tile, else into a buffer first. What lies behind a row's codes meets zeros of the query.

#if TURBO_VEC_WIDTH == 512 && defined(__AVX512VBMI__) && defined(__AVX512VNNI__)
#include <turbo/kernel/rotated_kv/scores_vbmi.inl>
#elif TURBO_VEC_WIDTH != 128
#include <turbo/kernel/rotated_kv/scores_avx2.inl>
#else

struct LevelBytes { const int8_t* level; };
constexpr int kScoreQueries = 1;

template <int B>
static LevelBytes level_bytes(const Scheme& s) { return {s.level8}; }

template <int B>
static void unpack_row(LevelBytes t, const uint8_t* codes, uint64_t d, int8_t* to) {
  for (uint64_t i = 0; i < d; i += 8, codes += B) {
    uint32_t v = 0;
    for (int k = 0; k < B; ++k) v |= static_cast<uint32_t>(codes[k]) << (8 * k);
    for (int j = 0; j < 8; ++j, v >>= B) to[i + j] = t.level[v & ((1u << B) - 1u)];
  }
}

template <int NQ>
static void row_dots(const int8_t* key, uint64_t d, const float* queries, uint64_t, int32_t* dots) {
  const int8_t* q = reinterpret_cast<const int8_t*>(queries);
  dots[0] = 0;
  for (uint64_t i = 0; i < d; ++i) dots[0] += key[i] * q[i];
}
template <int B, int NQ>
static void packed_dots(LevelBytes t, const uint8_t* codes, uint64_t d, const float* queries, uint64_t query_stride, int32_t* dots) {
  int8_t key[kMaxDim];
  unpack_row<B>(t, codes, d, key);
  row_dots<NQ>(key, d, queries, query_stride, dots);
}
#endif

#ifndef TURBO_ROTATED_KV_OWN_SCORES  // the VBMI path has its own tiles

// All queries from q on, NQ at a time while they last, against key i of the run; returns the first left over.
template <int B, int NQ>
static uint64_t key_scores_by(const Scheme& s, LevelBytes t, const uint8_t* codes, const int8_t* unpacked, float g, uint64_t i, uint64_t q,
                              uint64_t n_queries, const float* queries, uint64_t query_stride, float* scores, uint64_t score_stride) {
  for (; q + NQ <= n_queries; q += NQ) {
    int32_t dots[NQ];
    if (unpacked) row_dots<NQ>(unpacked, s.d, queries + q * query_stride, query_stride, dots);
    else packed_dots<B, NQ>(t, codes, s.d, queries + q * query_stride, query_stride, dots);
    for (uint64_t a = 0; a < NQ; ++a)
      scores[(q + a) * score_stride + i] = static_cast<float>(dots[a]) * g * tail_of(s, queries + (q + a) * query_stride).unit;
  }
  return q;
}

template <int B>
static void plain_scores(const Scheme& s, const PackedRun& run, const float* queries, uint64_t query_stride, float* scores, uint64_t score_stride) {
  const LevelBytes t = level_bytes<B>(s);
  float g[64];
  load_scales(s, run, g);
  alignas(64) int8_t buffer[kMaxDim + 64];
  for (uint64_t i = 0; i < run.n_rows; ++i) {
    if (run.ahead) fetch_row(s, run, i);
    const uint8_t* codes = run.page + code_offset(s.page, run.row_begin + i);
    const int8_t* unpacked = run.n_queries > kScoreQueries ? buffer : nullptr;
    if (unpacked) unpack_row<B>(t, codes, s.d, buffer);
    uint64_t q = 0;
    if constexpr (kScoreQueries >= 4) q = key_scores_by<B, 4>(s, t, codes, unpacked, g[i], i, q, run.n_queries, queries, query_stride, scores, score_stride);
    if constexpr (kScoreQueries >= 2) q = key_scores_by<B, 2>(s, t, codes, unpacked, g[i], i, q, run.n_queries, queries, query_stride, scores, score_stride);
    key_scores_by<B, 1>(s, t, codes, unpacked, g[i], i, q, run.n_queries, queries, query_stride, scores, score_stride);
  }
}
#endif

// A scale per 32 coordinates: one exact dot each, joined by fused multiply-adds, groups rising.
template <int B>
static void grouped_scores(const Scheme& s, const PackedRun& run, const float* queries, uint64_t query_stride, float* scores, uint64_t score_stride) {
  const LevelBytes t = level_bytes<B>(s);
  alignas(64) int8_t key[kMaxDim + 64];
  for (uint64_t i = 0; i < run.n_rows; ++i) {
    if (run.ahead) fetch_row(s, run, i);
    unpack_row<B>(t, run.page + code_offset(s.page, run.row_begin + i), s.d, key);
    float g[kMaxDim / 32];
    for (uint64_t k = 0; k < s.page.n_scales; ++k) g[k] = scale_at(s, run, i, k);
    for (uint64_t q = 0; q < run.n_queries; ++q) {
      const int8_t* query = reinterpret_cast<const int8_t*>(queries + q * query_stride);
      float sum = 0;
      for (uint64_t k = 0; k < s.page.n_scales; ++k) {
        int32_t dot = 0;
        const uint64_t end = k * 32 + 32 < s.d ? k * 32 + 32 : s.d;
        for (uint64_t e = k * 32; e < end; ++e) dot += key[e] * query[e];
        sum = fmaf(g[k], static_cast<float>(dot), sum);
      }
      scores[q * score_stride + i] = sum * tail_of(s, queries + q * query_stride).unit;
    }
  }
}

template <int B>
static void scores_of(const Scheme& s, const PackedRun& run, const float* queries, uint64_t query_stride, float* scores, uint64_t score_stride) {
  (s.group ? &grouped_scores<B> : &plain_scores<B>)(s, run, queries, query_stride, scores, score_stride);
}

static void packed_scores(const Scheme& s, const PackedRun& run, const float* queries, uint64_t query_stride, float* scores, uint64_t score_stride) {
  (s.bits == 2 ? &scores_of<2> : s.bits == 3 ? &scores_of<3> : &scores_of<4>)(s, run, queries, query_stride, scores, score_stride);
}
