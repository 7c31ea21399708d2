// Packed scores with AVX2, 32 coordinates at a time. Part of scores.inl.

struct LevelBytes { __m256i level; };
constexpr int kScoreQueries = 4;

template <int B>
static LevelBytes level_bytes(const Scheme& s) {
  return {_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(s.level8)))};
}

// 32 codes, a byte each, in their own order.
template <int B>
static inline __m256i unpack_codes(const uint8_t* p) {
  if constexpr (B == 4) {  // two to a word
    const __m256i w = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm256_and_si256(_mm256_or_si256(w, _mm256_slli_epi16(w, 4)), _mm256_set1_epi8(15));
  } else if constexpr (B == 2) {  // four to a dword
    const __m256i w = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    const __m256i two = _mm256_or_si256(w, _mm256_slli_epi32(w, 12));
    return _mm256_and_si256(_mm256_or_si256(two, _mm256_slli_epi32(two, 6)), _mm256_set1_epi8(3));
  } else {  // two to a word: the bytes they lie in, pushed to the top by a product, then to the bottom
    const __m256i bytes = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m256i where = _mm256_setr_epi8(0, 1, 0, 1, 1, 2, 2, 3, 3, 4, 3, 4, 4, 5, 5, 6, 6, 7, 6, 7, 7, 8, 8, 9, 9, 10, 9, 10, 10, 11, 11, 12);
    const __m256i push = _mm256_setr_epi16(1024, 16, 64, 256, 1024, 16, 64, 256, 1024, 16, 64, 256, 1024, 16, 64, 256);
    const __m256i pair = _mm256_srli_epi16(_mm256_mullo_epi16(_mm256_shuffle_epi8(bytes, where), push), 10);
    return _mm256_and_si256(_mm256_or_si256(pair, _mm256_slli_epi16(pair, 5)), _mm256_set1_epi8(7));
  }
}

template <int B>
static inline __m256i unpack_levels(LevelBytes t, const uint8_t* p) { return _mm256_shuffle_epi8(t.level, unpack_codes<B>(p)); }

template <int B>
static void unpack_row(LevelBytes t, const uint8_t* codes, uint64_t d, int8_t* to) {
  for (uint64_t i = 0; i < d; i += 32, codes += 4 * B) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), unpack_levels<B>(t, codes));
}

// |level| <= 127 and |query| <= 127: a pair of products stays below 2^15. A level is never 0, so its sign is not lost.
template <int NQ>
static inline void add_products(__m256i level, const float* queries, uint64_t query_stride, uint64_t i, __m256i* acc) {
  const __m256i size = _mm256_abs_epi8(level);
  TURBO_UNROLL
  for (int a = 0; a < NQ; ++a) {
    const __m256i q = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(reinterpret_cast<const int8_t*>(queries + a * query_stride) + i));
    const __m256i pairs = _mm256_maddubs_epi16(size, _mm256_sign_epi8(q, level));
    acc[a] = _mm256_add_epi32(acc[a], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
}

template <int NQ>
static inline void sum_dots(const __m256i* acc, int32_t* dots) {
  TURBO_UNROLL
  for (int a = 0; a < NQ; ++a) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(acc[a]), _mm256_extracti128_si256(acc[a], 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    dots[a] = _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
  }
}

template <int NQ>
static void row_dots(const int8_t* key, uint64_t d, const float* queries, uint64_t query_stride, int32_t* dots) {
  __m256i acc[NQ];
  TURBO_UNROLL
  for (int a = 0; a < NQ; ++a) acc[a] = _mm256_setzero_si256();
  for (uint64_t i = 0; i < d; i += 32)
    add_products<NQ>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(key + i)), queries, query_stride, i, acc);
  sum_dots<NQ>(acc, dots);
}

template <int B, int NQ>
static void packed_dots(LevelBytes t, const uint8_t* codes, uint64_t d, const float* queries, uint64_t query_stride, int32_t* dots) {
  __m256i acc[NQ];
  TURBO_UNROLL
  for (int a = 0; a < NQ; ++a) acc[a] = _mm256_setzero_si256();
  for (uint64_t i = 0; i < d; i += 32, codes += 4 * B) add_products<NQ>(unpack_levels<B>(t, codes), queries, query_stride, i, acc);
  sum_dots<NQ>(acc, dots);
}
