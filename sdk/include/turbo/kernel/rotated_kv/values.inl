// Weighted sums of packed rows. Part of kernels.inl.
//
// A chunk is 128 coordinates of a row, or what is left of it: L <= 16 lanes of 8 codes. Its sums lie in the order
// [j][lane]: coordinate 128 chunk + 8 lane + j at 128 chunk + j L + lane. One fused multiply-add per element and key,
// keys rising, so neither the tiling below nor the cut of a run decides any bit.

#if TURBO_VEC_WIDTH == 512
constexpr int kValueQueries = 4;
template <int NQ> constexpr int kValueSteps = NQ == 4 ? 4 : 8;  // codes of a lane that one pass takes
#elif TURBO_VEC_WIDTH == 256
constexpr int kValueQueries = 2;
template <int NQ> constexpr int kValueSteps = NQ == 2 ? 2 : 4;
#else
constexpr int kValueQueries = 1;
template <int NQ> constexpr int kValueSteps = 8;
#endif

// Scales of the lanes of one chunk, for groups of 32 coordinates = 4 lanes.
static void lane_scales(const Scheme& s, const PackedRun& run, uint64_t chunk, float (*g)[16]) {
  for (uint64_t i = 0; i < run.n_rows; ++i)
    for (uint64_t lane = 0; lane < 16; ++lane) {
      const uint64_t k = chunk * 4 + lane / 4;
      g[i][lane] = k < s.page.n_scales ? scale_at(s, run, i, k) : 0.0f;
    }
}

// Codes J0 .. J0 + NJ - 1 of every lane of one chunk; weights already times the scale, or times g where grouped.
template <int B, int NQ, int J0, int NJ, bool kGrouped, bool kFetch>
static void value_tile(const Scheme& s, const PackedRun& run, uint64_t chunk, const float (*weight)[64], const float (*g)[16], float* out,
                       uint64_t out_stride) {
  const uint64_t left = (s.d - chunk * 128) / 8, lanes = left < 16 ? left : 16;
  const Table16 level = load_table(s.level);
  const uint8_t* codes = run.page + code_offset(s.page, run.row_begin) + chunk * 16 * B;
  float* to = out + chunk * 128 + J0 * lanes;
  Vec16 acc[NQ * NJ];
  TURBO_UNROLL
  for (int a = 0; a < NQ; ++a)
    TURBO_UNROLL
    for (int j = 0; j < NJ; ++j) acc[a * NJ + j] = load_n(to + a * out_stride + j * lanes, lanes);
  for (uint64_t i = 0; i < run.n_rows; ++i, codes += s.page.code_pitch) {
    if constexpr (kFetch) fetch_row(s, run, i);
    Codes16 c = load_codes<B>(codes);
    if constexpr (J0 > 0) c = shift_right<J0 * B>(c);
    Vec16 w[NQ];
    TURBO_UNROLL
    for (int a = 0; a < NQ; ++a) {
      w[a] = set1(weight[a][i]);
      if constexpr (kGrouped) w[a] = mul(w[a], load(g[i]));
    }
    TURBO_UNROLL
    for (int j = 0; j < NJ; ++j) {
      const Vec16 x = look_up<B>(level, c);
      TURBO_UNROLL
      for (int a = 0; a < NQ; ++a) acc[a * NJ + j] = fma(w[a], x, acc[a * NJ + j]);
      c = shift_right<B>(c);
    }
  }
  TURBO_UNROLL
  for (int a = 0; a < NQ; ++a)
    TURBO_UNROLL
    for (int j = 0; j < NJ; ++j) store_n(to + a * out_stride + j * lanes, acc[a * NJ + j], lanes);
}

template <int B, int NQ, bool kGrouped, bool kFetch>
static void value_chunk(const Scheme& s, const PackedRun& run, uint64_t chunk, const float (*weight)[64], const float (*g)[16], float* out,
                        uint64_t out_stride) {
  constexpr int NJ = kValueSteps<NQ>;
  value_tile<B, NQ, 0, NJ, kGrouped, kFetch>(s, run, chunk, weight, g, out, out_stride);
  if constexpr (NJ <= 4) value_tile<B, NQ, NJ, NJ, kGrouped, false>(s, run, chunk, weight, g, out, out_stride);
  if constexpr (NJ <= 2) {
    value_tile<B, NQ, 2 * NJ, NJ, kGrouped, false>(s, run, chunk, weight, g, out, out_stride);
    value_tile<B, NQ, 3 * NJ, NJ, kGrouped, false>(s, run, chunk, weight, g, out, out_stride);
  }
}

// Queries from q on, NQ at a time while they last; returns the first left over.
template <int B, int NQ, bool kGrouped>
static uint64_t values_by(const Scheme& s, const PackedRun& run, uint64_t q, const float* scale, const float* weights, uint64_t weight_stride,
                          float* out, uint64_t out_stride) {
  float weight[NQ][64], g[kGrouped ? 64 : 1][16];
  if constexpr (!kGrouped) store(g[0], zero());  // unused
  for (; q + NQ <= run.n_queries; q += NQ) {
    for (uint64_t a = 0; a < NQ; ++a)
      for (uint64_t i = 0; i < run.n_rows; i += 16) {
        const Vec16 w = load_n(weights + (q + a) * weight_stride + i, run.n_rows - i < 16 ? run.n_rows - i : 16);
        store(weight[a] + i, kGrouped ? w : mul(w, load(scale + i)));
      }
    for (uint64_t chunk = 0; chunk * 128 < s.d; ++chunk) {
      if constexpr (kGrouped) lane_scales(s, run, chunk, g);
      if (q == 0 && chunk == 0 && run.ahead) value_chunk<B, NQ, kGrouped, true>(s, run, chunk, weight, g, out + q * out_stride, out_stride);
      else value_chunk<B, NQ, kGrouped, false>(s, run, chunk, weight, g, out + q * out_stride, out_stride);
    }
  }
  return q;
}

template <int B, bool kGrouped>
static void values_bits(const Scheme& s, const PackedRun& run, const float* weights, uint64_t weight_stride, float* out, uint64_t out_stride) {
  float scale[64];
  if constexpr (kGrouped) store(scale, zero());  // unused
  else load_scales(s, run, scale);
  uint64_t q = 0;
  if constexpr (kValueQueries >= 4) {
    q = values_by<B, 4, kGrouped>(s, run, q, scale, weights, weight_stride, out, out_stride);
    q = values_by<B, 3, kGrouped>(s, run, q, scale, weights, weight_stride, out, out_stride);
  }
  if constexpr (kValueQueries >= 2) q = values_by<B, 2, kGrouped>(s, run, q, scale, weights, weight_stride, out, out_stride);
  values_by<B, 1, kGrouped>(s, run, q, scale, weights, weight_stride, out, out_stride);
}

template <int B>
static void values_of(const Scheme& s, const PackedRun& run, const float* weights, uint64_t weight_stride, float* out, uint64_t out_stride) {
  (s.group ? &values_bits<B, true> : &values_bits<B, false>)(s, run, weights, weight_stride, out, out_stride);
}

static void packed_values(const Scheme& s, const PackedRun& run, const float* weights, uint64_t weight_stride, float* out, uint64_t out_stride) {
  (s.bits == 2 ? &values_of<2> : s.bits == 3 ? &values_of<3> : &values_of<4>)(s, run, weights, weight_stride, out, out_stride);
}

static void finish_output(const Scheme& s, const float* accumulated, float* output) {
  float y[kMaxDim];
  for (uint64_t base = 0; base < s.d; base += 128) {
    const uint64_t left = (s.d - base) / 8, lanes = left < 16 ? left : 16;
    for (uint64_t lane = 0; lane < lanes; ++lane)
      for (uint64_t j = 0; j < 8; ++j) y[base + 8 * lane + j] = accumulated[base + j * lanes + lane];
  }
  unrotate_scaled(s.rotation, y, 1.0f, output);
}
