// Sixteen 32-bit integer lanes that hold codes, and look-up by code, beside Vec16. Part of kernels.inl.
//
// A dword lane holds the 8 codes of coordinates 8 i .. 8 i + 7, the first lowest; look_up reads the low bits alone, so
// a shift by `bits` brings the next code and nothing is masked.

#if TURBO_VEC_WIDTH == 512

struct Codes16 { __m512i v; };
struct Table16 { __m512 v; };

static inline Table16 load_table(const float* t) { return {_mm512_loadu_ps(t)}; }
template <int B>
static inline Vec16 look_up(Table16 t, Codes16 c) { return {_mm512_permutexvar_ps(c.v, t.v)}; }
template <int N>
static inline Codes16 shift_right(Codes16 c) { return {_mm512_srli_epi32(c.v, N)}; }
static inline Codes16 no_codes() { return {_mm512_setzero_si512()}; }
template <int N>
static inline Codes16 add_where_ge(Codes16 c, Vec16 u, Vec16 bound) {
  return {_mm512_mask_add_epi32(c.v, _mm512_cmp_ps_mask(u.v, bound.v, _CMP_GE_OQ), c.v, _mm512_set1_epi32(N))};
}
template <int N>
static inline Codes16 add_each(Codes16 c) { return {_mm512_add_epi32(c.v, _mm512_set1_epi32(N))}; }
static inline void store_bytes(uint8_t* p, Codes16 c) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(c.v));
}
template <int B>
static inline Codes16 load_codes(const uint8_t* p) {
  if constexpr (B == 4) return {_mm512_loadu_si512(p)};
  if constexpr (B == 2) return {_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 9, 9, 10, 11, 12);  // 12 bytes to each 16
  const __m128i spread = _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1);
  return {_mm512_shuffle_epi8(_mm512_permutexvar_epi32(lanes, _mm512_loadu_si512(p)), _mm512_broadcast_i32x4(spread))};
}

template <int H>
static inline Vec16 butterfly(Vec16 x) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __mmask16 upper = _mm512_test_epi32_mask(lane, _mm512_set1_epi32(H));
  __m512 other;
  if constexpr (H == 1) other = _mm512_permute_ps(x.v, 0xb1);
  if constexpr (H == 2) other = _mm512_permute_ps(x.v, 0x4e);
  if constexpr (H == 4) other = _mm512_shuffle_f32x4(x.v, x.v, 0xb1);
  if constexpr (H == 8) other = _mm512_shuffle_f32x4(x.v, x.v, 0x4e);
  return {_mm512_mask_sub_ps(_mm512_add_ps(x.v, other), upper, other, x.v)};
}

#elif TURBO_VEC_WIDTH == 256

struct Codes16 { __m256i lo, hi; };
struct Table16 { __m256 low, high; };

static inline Table16 load_table(const float* t) { return {_mm256_loadu_ps(t), _mm256_loadu_ps(t + 8)}; }
template <int B>
static inline __m256 look_up8(Table16 t, __m256i c) {
  const __m256 low = _mm256_permutevar8x32_ps(t.low, c);
  if constexpr (B < 4) return low;
  const __m256 bit3 = _mm256_castsi256_ps(_mm256_slli_epi32(c, 28));
  return _mm256_blendv_ps(low, _mm256_permutevar8x32_ps(t.high, c), bit3);
}
template <int B>
static inline Vec16 look_up(Table16 t, Codes16 c) { return {look_up8<B>(t, c.lo), look_up8<B>(t, c.hi)}; }
template <int N>
static inline Codes16 shift_right(Codes16 c) { return {_mm256_srli_epi32(c.lo, N), _mm256_srli_epi32(c.hi, N)}; }
static inline Codes16 no_codes() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
template <int N>
static inline Codes16 add_where_ge(Codes16 c, Vec16 u, Vec16 bound) {
  const __m256i step = _mm256_set1_epi32(N);
  const __m256i lo = _mm256_castps_si256(_mm256_cmp_ps(u.lo, bound.lo, _CMP_GE_OQ)), hi = _mm256_castps_si256(_mm256_cmp_ps(u.hi, bound.hi, _CMP_GE_OQ));
  return {_mm256_add_epi32(c.lo, _mm256_and_si256(lo, step)), _mm256_add_epi32(c.hi, _mm256_and_si256(hi, step))};
}
template <int N>
static inline Codes16 add_each(Codes16 c) {
  return {_mm256_add_epi32(c.lo, _mm256_set1_epi32(N)), _mm256_add_epi32(c.hi, _mm256_set1_epi32(N))};
}
static inline void store_bytes(uint8_t* p, Codes16 c) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(c.lo, c.hi), 0xd8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}
template <int B>
static inline __m256i load_codes8(const uint8_t* p) {
  if constexpr (B == 4) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  if constexpr (B == 2) return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i halves = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
                                                 _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 12)), 1);
  const __m128i spread = _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1);
  return _mm256_shuffle_epi8(halves, _mm256_broadcastsi128_si256(spread));
}
template <int B>
static inline Codes16 load_codes(const uint8_t* p) { return {load_codes8<B>(p), load_codes8<B>(p + 8 * B)}; }

template <int H>
static inline __m256 butterfly8(__m256 x) {
  __m256 other;
  if constexpr (H == 1) other = _mm256_permute_ps(x, 0xb1);
  if constexpr (H == 2) other = _mm256_permute_ps(x, 0x4e);
  if constexpr (H == 4) other = _mm256_permute2f128_ps(x, x, 1);
  constexpr int upper = H == 1 ? 0xaa : H == 2 ? 0xcc : 0xf0;
  return _mm256_blend_ps(_mm256_add_ps(x, other), _mm256_sub_ps(other, x), upper);
}
template <int H>
static inline Vec16 butterfly(Vec16 x) {
  if constexpr (H == 8) return {_mm256_add_ps(x.lo, x.hi), _mm256_sub_ps(x.lo, x.hi)};
  else return {butterfly8<H>(x.lo), butterfly8<H>(x.hi)};
}

#else

struct Codes16 { uint32_t lane[16]; };
struct Table16 { const float* level; };

static inline Table16 load_table(const float* t) { return {t}; }
template <int B>
static inline Vec16 look_up(Table16 t, Codes16 c) {
  Vec16 out;
  for (int i = 0; i < 16; ++i) out.lane[i] = t.level[c.lane[i] & ((1u << B) - 1u)];
  return out;
}
template <int N>
static inline Codes16 shift_right(Codes16 c) {
  for (uint32_t& lane : c.lane) lane >>= N;
  return c;
}
static inline Codes16 no_codes() { return {{0}}; }
template <int N>
static inline Codes16 add_where_ge(Codes16 c, Vec16 u, Vec16 bound) {
  for (int i = 0; i < 16; ++i) c.lane[i] += u.lane[i] >= bound.lane[i] ? N : 0;
  return c;
}
template <int N>
static inline Codes16 add_each(Codes16 c) {
  for (uint32_t& lane : c.lane) lane += N;
  return c;
}
static inline void store_bytes(uint8_t* p, Codes16 c) {
  for (int i = 0; i < 16; ++i) p[i] = static_cast<uint8_t>(c.lane[i]);
}
template <int B>
static inline Codes16 load_codes(const uint8_t* p) {
  Codes16 out;
  for (int i = 0; i < 16; ++i) {
    out.lane[i] = 0;
    for (int k = 0; k < B; ++k) out.lane[i] |= static_cast<uint32_t>(p[i * B + k]) << (8 * k);
  }
  return out;
}
template <int H>
static inline Vec16 butterfly(Vec16 x) {
  Vec16 out;
  for (int i = 0; i < 16; ++i) out.lane[i] = i & H ? x.lane[i ^ H] - x.lane[i] : x.lane[i] + x.lane[i ^ H];
  return out;
}

#endif
