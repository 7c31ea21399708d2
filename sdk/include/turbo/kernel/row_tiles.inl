// Attention on rows of stored elements, one behind the other: what codecs of plain elements and the open rows of packing
// codecs share. Include inside the anonymous namespace of a kernel file, behind vec16.hpp, fetch.hpp and row_run.hpp, with
// turbo::kernel in scope.
//
// An element type E says how it is stored and loaded 16 at a time; kScaled: every row has a binary16 scale beside it.
// scores: tiles of up to 16 dot products (1 query x 16 keys, or 2 queries x 8 keys that share the key's
// conversion), each in its own 16 virtual lanes, summed by the fixed tree. accumulate: output chunks stay in
// registers while the rows of the run pass by once per pair of queries.

struct F16 {
  using Stored = uint16_t;
  static constexpr bool kFinite = false, kScaled = false;
  static Vec16 load(const uint16_t* p) { return load_f16(p); }
  static Vec16 load_n(const uint16_t* p, uint64_t n) { return load_f16_n(p, n); }
  static void store_n(uint16_t* p, Vec16 a, uint64_t n) {
    store_f16_n(p, max_gt(min_lt(a, set1(65504.0f)), set1(-65504.0f)), n);
  }
};

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
void fetch(const RowRun& run, uint64_t row, uint64_t byte) {
  if constexpr (kFetch)
    if (byte % 64 == 0) fetch_line(run.ahead + row * run.pitch + byte);
}

// NQ x NK dot products. A short tile repeats the run's last key and drops the copies.
template <class E, int NQ, int NK, bool kFetch>
void score_tile(const RowRun& run, uint64_t first, const float* queries, uint64_t query_stride, float* scores, uint64_t score_stride) {
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
void score_queries(const RowRun& run, const float* queries, uint64_t query_stride, float* out, uint64_t score_stride) {
  constexpr int kKeys = kScoreTile / NQ;
  for (uint64_t i = 0; i < run.n_rows; i += kKeys) score_tile<E, NQ, kKeys, kFetch>(run, i, queries, query_stride, out, score_stride);
}

// Queries from q on, NQ at a time while they last; returns the first left over. Fetches: the run may have rows ahead.
template <class E, int NQ, bool kFetches>
uint64_t scores_by(const RowRun& run, uint64_t q, const float* queries, uint64_t query_stride, float* out, uint64_t score_stride) {
  for (; q + NQ <= run.n_queries; q += NQ)
    (kFetches && q == 0 && run.ahead ? &score_queries<E, NQ, kFetches> : &score_queries<E, NQ, false>)(
        run, queries + q * query_stride, query_stride, out + q * score_stride, score_stride);
  return q;
}

template <class E, bool kFetches = true>
void scores(const RowRun& run, const float* queries, uint64_t query_stride, float* out, uint64_t score_stride) {
  uint64_t q = 0;
  if constexpr (kMostQueries >= 4) q = scores_by<E, 4, kFetches>(run, q, queries, query_stride, out, score_stride);
  if constexpr (kMostQueries >= 2) q = scores_by<E, 2, kFetches>(run, q, queries, query_stride, out, score_stride);
  scores_by<E, 1, kFetches>(run, q, queries, query_stride, out, score_stride);
}

// NQ queries, NC whole chunks from element `first`; with `rest`, the one chunk has only that many elements.
template <class E, int NQ, int NC, bool kFetch>
void value_tile(const RowRun& run, uint64_t first, uint64_t rest, const float* weights, uint64_t weight_stride, float* out,
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
void accumulate_queries(const RowRun& run, const float* weights, uint64_t weight_stride, float* out, uint64_t out_stride) {
  constexpr int kChunks = kValueTile / NQ;
  uint64_t e = 0;
  for (; e + kChunks * 16 <= run.head_dim; e += kChunks * 16)
    value_tile<E, NQ, kChunks, kFetch>(run, e, 0, weights, weight_stride, out, out_stride);
  for (; e < run.head_dim; e += 16)
    value_tile<E, NQ, 1, kFetch>(run, e, run.head_dim - e < 16 ? run.head_dim - e : 0, weights, weight_stride, out, out_stride);
}

template <class E, int NQ, bool kFetches>
uint64_t accumulate_by(const RowRun& run, uint64_t q, const float* weights, uint64_t weight_stride, float* out, uint64_t out_stride) {
  for (; q + NQ <= run.n_queries; q += NQ)
    (kFetches && q == 0 && run.ahead ? &accumulate_queries<E, NQ, kFetches> : &accumulate_queries<E, NQ, false>)(
        run, weights + q * weight_stride, weight_stride, out + q * out_stride, out_stride);
  return q;
}

template <class E, bool kFetches = true>
void accumulate(const RowRun& run, const float* weights, uint64_t weight_stride, float* out, uint64_t out_stride) {
  uint64_t q = 0;
  if constexpr (kMostQueries >= 4) q = accumulate_by<E, 4, kFetches>(run, q, weights, weight_stride, out, out_stride);
  if constexpr (kMostQueries >= 2) q = accumulate_by<E, 2, kFetches>(run, q, weights, weight_stride, out, out_stride);
  accumulate_by<E, 1, kFetches>(run, q, weights, weight_stride, out, out_stride);
}
