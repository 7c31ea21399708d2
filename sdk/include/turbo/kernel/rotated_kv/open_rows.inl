// Rows of halves: the open form. Part of kernels.inl. Same arithmetic as any plain dot of turbo/kernel/lanes.h.

static bool store_open(const float* src, const float* center, uint64_t d, uint16_t* row) {
  for (uint64_t i = 0; i < d; i += 16) {
    const Vec16 x = load(src + i);
    if (any_nan(sub(x, x))) return false;
  }
  for (uint64_t i = 0; i < d; i += 16) {
    const Vec16 x = center ? sub(load(src + i), load(center + i)) : load(src + i);
    store_f16_n(row + i, max_gt(min_lt(x, set1(65504.0f)), set1(-65504.0f)), 16);
  }
  return true;
}

static void load_open(const uint16_t* row, uint64_t d, float* dst) {
  for (uint64_t i = 0; i < d; i += 16) store(dst + i, load_f16(row + i));
}

#if TURBO_VEC_WIDTH == 512
constexpr int kOpenQueries = 4, kOpenTile = 16, kOpenChunks = 8;
#elif TURBO_VEC_WIDTH == 256
constexpr int kOpenQueries = 2, kOpenTile = 4, kOpenChunks = 4;
#else
constexpr int kOpenQueries = 1, kOpenTile = 1, kOpenChunks = 1;
#endif

// NQ x NK dot products. A short tile repeats the run's last key and drops the copies.
template <int NQ, int NK>
static void open_score_tile(const OpenRun& run, uint64_t first, const float* queries, uint64_t query_stride, float* scores, uint64_t score_stride) {
  const uint16_t* key[NK];
  TURBO_UNROLL
  for (int k = 0; k < NK; ++k) key[k] = run.rows + (first + k < run.n_rows ? first + k : run.n_rows - 1) * run.d;
  Vec16 acc[NQ * NK];
  TURBO_UNROLL
  for (int i = 0; i < NQ * NK; ++i) acc[i] = zero();
  for (uint64_t j = 0; j < run.d; j += 16) {
    Vec16 q[NQ];
    TURBO_UNROLL
    for (int a = 0; a < NQ; ++a) q[a] = load(queries + a * query_stride + j);
    TURBO_UNROLL
    for (int k = 0; k < NK; ++k) {
      const Vec16 x = load_f16(key[k] + j);
      TURBO_UNROLL
      for (int a = 0; a < NQ; ++a) acc[a * NK + k] = fma(q[a], x, acc[a * NK + k]);
    }
  }
  float sums[NQ * NK];
  if constexpr (NQ * NK == 16) store(sums, sum_lanes_x16(acc));
  else
    for (int i = 0; i < NQ * NK; ++i) sums[i] = sum_lanes(acc[i]);
  const uint64_t left = run.n_rows - first, n = left < NK ? left : NK;
  for (uint64_t a = 0; a < NQ; ++a)
    for (uint64_t k = 0; k < n; ++k) scores[a * score_stride + first + k] = sums[a * NK + k];
}

template <int NQ>
static uint64_t open_scores_by(const OpenRun& run, uint64_t q, const float* queries, uint64_t query_stride, float* scores, uint64_t score_stride) {
  constexpr int NK = kOpenTile / NQ;
  for (; q + NQ <= run.n_queries; q += NQ)
    for (uint64_t i = 0; i < run.n_rows; i += NK)
      open_score_tile<NQ, NK>(run, i, queries + q * query_stride, query_stride, scores + q * score_stride, score_stride);
  return q;
}

static void open_scores(const OpenRun& run, const float* queries, uint64_t query_stride, float* scores, uint64_t score_stride) {
  uint64_t q = 0;
  if constexpr (kOpenQueries >= 4) q = open_scores_by<4>(run, q, queries, query_stride, scores, score_stride);
  if constexpr (kOpenQueries >= 2) q = open_scores_by<2>(run, q, queries, query_stride, scores, score_stride);
  open_scores_by<1>(run, q, queries, query_stride, scores, score_stride);
}

template <int NQ, int NC>
static void open_value_tile(const OpenRun& run, uint64_t e, const float* weights, uint64_t weight_stride, float* out, uint64_t out_stride) {
  Vec16 acc[NQ * NC];
  TURBO_UNROLL
  for (int a = 0; a < NQ; ++a)
    TURBO_UNROLL
    for (int c = 0; c < NC; ++c) acc[a * NC + c] = load(out + a * out_stride + e + c * 16);
  for (uint64_t i = 0; i < run.n_rows; ++i)
    TURBO_UNROLL
    for (int c = 0; c < NC; ++c) {
      const Vec16 x = load_f16(run.rows + i * run.d + e + c * 16);
      TURBO_UNROLL
      for (int a = 0; a < NQ; ++a) acc[a * NC + c] = fma(set1(weights[a * weight_stride + i]), x, acc[a * NC + c]);
    }
  TURBO_UNROLL
  for (int a = 0; a < NQ; ++a)
    TURBO_UNROLL
    for (int c = 0; c < NC; ++c) store(out + a * out_stride + e + c * 16, acc[a * NC + c]);
}

template <int NQ>
static uint64_t open_values_by(const OpenRun& run, uint64_t q, const float* weights, uint64_t weight_stride, float* out, uint64_t out_stride) {
  constexpr uint64_t NC = kOpenChunks / NQ;
  for (; q + NQ <= run.n_queries; q += NQ) {
    uint64_t e = 0;
    for (; e + NC * 16 <= run.d; e += NC * 16)
      open_value_tile<NQ, NC>(run, e, weights + q * weight_stride, weight_stride, out + q * out_stride, out_stride);
    for (; e < run.d; e += 16) open_value_tile<NQ, 1>(run, e, weights + q * weight_stride, weight_stride, out + q * out_stride, out_stride);
  }
  return q;
}

static void open_values(const OpenRun& run, const float* weights, uint64_t weight_stride, float* out, uint64_t out_stride) {
  uint64_t q = 0;
  if constexpr (kOpenQueries >= 4) q = open_values_by<4>(run, q, weights, weight_stride, out, out_stride);
  if constexpr (kOpenQueries >= 2) q = open_values_by<2>(run, q, weights, weight_stride, out, out_stride);
  open_values_by<1>(run, q, weights, weight_stride, out, out_stride);
}
