// Packed scores with VBMI and VNNI, 64 coordinates at a time. Part of scores.inl.
//
// A qword takes the bytes of 8 codes; a multi-shift brings each code to the bottom of its byte; a table of 64 bytes
// that repeats with the period 2^B reads it whatever stands above. Levels are offset by 128 to be unsigned, which the
// sum of the query takes off again.
#define TURBO_ROTATED_KV_OWN_SCORES 1

struct LevelBytes { __m512i order, shift, level; };

template <int B>
struct ByteOrder {
  alignas(64) uint8_t order[64] = {}, shift[64] = {};
  constexpr ByteOrder() noexcept {
    for (int i = 0; i < 64; ++i) {
      order[i] = static_cast<uint8_t>(i / 8 * B + i % 8);
      shift[i] = static_cast<uint8_t>(i % 8 * B);
    }
  }
};
template <int B>
constexpr ByteOrder<B> kByteOrder;

template <int B>
static LevelBytes level_bytes(const Scheme& s) {
  const __m512i level = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(s.level8)));
  return {_mm512_load_si512(kByteOrder<B>.order), _mm512_load_si512(kByteOrder<B>.shift), _mm512_xor_si512(level, _mm512_set1_epi8(-128))};
}

template <int B>
static inline __m512i unpack_levels(const LevelBytes& t, const uint8_t* p) {
  __m512i raw;
  if constexpr (B == 2) raw = _mm512_castsi128_si512(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  else raw = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return _mm512_permutexvar_epi8(_mm512_multishift_epi64_epi8(t.shift, _mm512_permutexvar_epi8(t.order, raw)), t.level);
}

// Signed levels, for the grouped path.
template <int B>
static void unpack_row(const LevelBytes& t, const uint8_t* codes, uint64_t d, int8_t* to) {
  for (uint64_t i = 0; i < d; i += 64, codes += 8 * B)
    _mm512_storeu_si512(to + i, _mm512_xor_si512(unpack_levels<B>(t, codes), _mm512_set1_epi8(-128)));
}

// Sums of 16 vectors, in their order.
static inline __m512i sum_x16(const __m512i* acc) {
  __m512i t[8], u[4];
  TURBO_UNROLL
  for (int j = 0; j < 8; ++j)
    t[j] = _mm512_add_epi32(_mm512_unpacklo_epi32(acc[2 * j], acc[2 * j + 1]), _mm512_unpackhi_epi32(acc[2 * j], acc[2 * j + 1]));
  TURBO_UNROLL
  for (int j = 0; j < 4; ++j) u[j] = _mm512_add_epi32(_mm512_unpacklo_epi64(t[2 * j], t[2 * j + 1]), _mm512_unpackhi_epi64(t[2 * j], t[2 * j + 1]));
  const __m512i v0 = _mm512_add_epi32(_mm512_shuffle_i32x4(u[0], u[1], 0x88), _mm512_shuffle_i32x4(u[0], u[1], 0xdd));
  const __m512i v1 = _mm512_add_epi32(_mm512_shuffle_i32x4(u[2], u[3], 0x88), _mm512_shuffle_i32x4(u[2], u[3], 0xdd));
  return _mm512_add_epi32(_mm512_shuffle_i32x4(v0, v1, 0x88), _mm512_shuffle_i32x4(v0, v1, 0xdd));
}

template <int NK>
static inline __m512 repeat(const float* g) {
  if constexpr (NK == 16) return _mm512_loadu_ps(g);
  if constexpr (NK == 8) return _mm512_broadcast_f32x8(_mm256_loadu_ps(g));
  return _mm512_broadcast_f32x4(_mm_loadu_ps(g));
}

struct ScoreTile {  // up to 16 keys
  const uint8_t* codes;
  uint64_t pitch, n;
  const float* g;             // 16
  const uint8_t (*unpacked)[kMaxDim];  // or null
};

// NQ queries by keys first .. first + NK - 1 of the tile. Past its end the last key is repeated and the copies dropped.
template <int B, int NQ, int NK, bool kUnpacked>
static void tile_scores(const Scheme& s, const LevelBytes& t, const ScoreTile& tile, uint64_t first, const float* queries, uint64_t query_stride,
                        float* scores, uint64_t score_stride) {
  static_assert(NQ * NK == 16);
  const uint8_t* key[NK];
  TURBO_UNROLL
  for (int k = 0; k < NK; ++k) {
    const uint64_t row = first + k < tile.n ? first + k : tile.n - 1;
    key[k] = kUnpacked ? tile.unpacked[row] : tile.codes + row * tile.pitch;
  }
  __m512i acc[16];
  TURBO_UNROLL
  for (int i = 0; i < 16; ++i) acc[i] = _mm512_setzero_si512();
  for (uint64_t chunk = 0; chunk * 64 < s.d; ++chunk) {
    __m512i q[NQ];
    TURBO_UNROLL
    for (int a = 0; a < NQ; ++a) q[a] = _mm512_loadu_si512(queries + a * query_stride + chunk * 16);
    TURBO_UNROLL
    for (int k = 0; k < NK; ++k) {
      const __m512i x = kUnpacked ? _mm512_loadu_si512(key[k] + chunk * 64) : unpack_levels<B>(t, key[k] + chunk * 8 * B);
      TURBO_UNROLL
      for (int a = 0; a < NQ; ++a) acc[a * NK + k] = _mm512_dpbusd_epi32(acc[a * NK + k], x, q[a]);
    }
  }
  __m512i offset = _mm512_setzero_si512();
  __m512 unit = _mm512_setzero_ps();
  TURBO_UNROLL
  for (int a = 0; a < NQ; ++a) {
    const QueryTail tail = tail_of(s, queries + a * query_stride);
    const __mmask16 own = static_cast<__mmask16>(((1u << NK) - 1u) << (a * NK));
    offset = _mm512_mask_set1_epi32(offset, own, tail.sum * 128);
    unit = _mm512_mask_mov_ps(unit, own, _mm512_set1_ps(tail.unit));
  }
  const __m512 dot = _mm512_cvtepi32_ps(_mm512_sub_epi32(sum_x16(acc), offset));
  const __m512 score = _mm512_mul_ps(_mm512_mul_ps(dot, repeat<NK>(tile.g + first)), unit);
  float all[16];
  _mm512_storeu_ps(all, score);
  const uint64_t left = tile.n - first, n = left < NK ? left : NK;
  TURBO_UNROLL
  for (int a = 0; a < NQ; ++a) {
    if (n == NK) memcpy(scores + a * score_stride + first, all + a * NK, NK * sizeof(float));
    else
      for (uint64_t k = 0; k < n; ++k) scores[a * score_stride + first + k] = all[a * NK + k];
  }
}

// Queries from q on, NQ at a time while they last; returns the first left over.
template <int B, int NQ>
static uint64_t tile_scores_by(const Scheme& s, const LevelBytes& t, const ScoreTile& tile, uint64_t q, uint64_t n_queries, const float* queries,
                               uint64_t query_stride, float* scores, uint64_t score_stride) {
  constexpr int NK = 16 / NQ;
  for (; q + NQ <= n_queries; q += NQ)
    for (uint64_t first = 0; first < tile.n; first += NK)
      (tile.unpacked ? &tile_scores<B, NQ, NK, true> : &tile_scores<B, NQ, NK, false>)(
          s, t, tile, first, queries + q * query_stride, query_stride, scores + q * score_stride, score_stride);
  return q;
}

template <int B>
static void plain_scores(const Scheme& s, const PackedRun& run, const float* queries, uint64_t query_stride, float* scores, uint64_t score_stride) {
  const LevelBytes t = level_bytes<B>(s);
  float g[64];
  load_scales(s, run, g);
  alignas(64) uint8_t unpacked[16][kMaxDim];
  const bool buffered = run.n_queries != 1 && run.n_queries != 2 && run.n_queries != 4;
  for (uint64_t first = 0; first < run.n_rows; first += 16) {
    const uint64_t left = run.n_rows - first;
    const ScoreTile tile = {run.page + code_offset(s.page, run.row_begin + first), s.page.code_pitch, left < 16 ? left : 16, g + first,
                            buffered ? unpacked : nullptr};
    for (uint64_t i = 0; i < tile.n; ++i) {
      if (run.ahead) fetch_row(s, run, first + i);
      if (buffered)
        for (uint64_t chunk = 0; chunk * 64 < s.d; ++chunk)
          _mm512_store_si512(unpacked[i] + chunk * 64, unpack_levels<B>(t, tile.codes + i * tile.pitch + chunk * 8 * B));
    }
    float* to = scores + first;
    uint64_t q = tile_scores_by<B, 4>(s, t, tile, 0, run.n_queries, queries, query_stride, to, score_stride);
    q = tile_scores_by<B, 2>(s, t, tile, q, run.n_queries, queries, query_stride, to, score_stride);
    tile_scores_by<B, 1>(s, t, tile, q, run.n_queries, queries, query_stride, to, score_stride);
  }
}
