// One vector to codes and scales, and one query to int8. Part of kernels.inl.
//
// Everything from the load to the code is f32 in Vec16: the norm and the sums of the scale rule run in sixteen lanes
// and the fixed tree, so all ISAs store the same bits.

static constexpr float kLargest = 3.402823466e38f;

// Number of boundaries <= u, by bisection.
template <int B>
static inline Codes16 code_of(Vec16 u, Table16 boundary) {
  Codes16 c = add_where_ge<(1 << B) / 2>(no_codes(), u, zero());  // the middle boundary is 0
  if constexpr (B > 3) c = add_where_ge<4>(c, u, look_up<B>(boundary, add_each<3>(c)));
  if constexpr (B > 2) c = add_where_ge<2>(c, u, look_up<B>(boundary, add_each<1>(c)));
  return add_where_ge<1>(c, u, look_up<B>(boundary, c));
}

struct SliceSums { float uc, cc; };  // <u, c> and <c, c>

template <int B>
static SliceSums encode_slice(const Scheme& s, const float* y, uint64_t n, float to_unit, uint8_t* bytes) {
  const Table16 boundary = load_table(s.boundary), level = load_table(s.level);
  const Vec16 by = set1(to_unit);
  Vec16 uc = zero(), cc = zero();
  for (uint64_t i = 0; i < n; i += 16) {
    const Vec16 u = mul(load(y + i), by);
    const Codes16 code = code_of<B>(u, boundary);
    const Vec16 c = look_up<B>(level, code);
    uc = fma(u, c, uc);
    cc = fma(c, c, cc);
    store_bytes(bytes + i, code);
  }
  return {sum_lanes(uc), sum_lanes(cc)};
}

// Eight codes of a 64-bit word, a byte each, pushed together; little-endian hosts.
template <int B>
static void pack_codes(const uint8_t* bytes, uint64_t d, uint8_t* codes) {
  constexpr uint64_t pair = (1u << 2 * B) - 1u, quad = (1u << 4 * B) - 1u, all = B == 4 ? 0xffffffffull : (1ull << 8 * B) - 1u;
  for (uint64_t i = 0; i < d; i += 8, codes += B) {
    uint64_t v;
    memcpy(&v, bytes + i, 8);
    v = (v | v >> (8 - B)) & (pair | pair << 16 | pair << 32 | pair << 48);
    v = (v | v >> (16 - 2 * B)) & (quad | quad << 32);
    v = (v | v >> (32 - 4 * B)) & all;
    memcpy(codes, &v, B);
  }
}

// g of a slice of length n with norm `norm`; root is sqrt(n).
static float scale_of(ScaleRule rule, float norm, float root, SliceSums sums) {
  switch (rule) {
    case ScaleRule::unbiased: return norm * root / sums.uc;
    case ScaleRule::norm: return norm / sqrtf(sums.cc);
    case ScaleRule::least_squares: return norm / root * (sums.uc / sums.cc);
    case ScaleRule::raw: break;
  }
  return norm / root;
}

// Never infinity, never 0 for a vector that is not.
static uint32_t store_scale(const Page& page, float g, uint8_t* to) {
  if (page.scale_bytes == 4) {
    memcpy(to, &g, 4);
    return kEncoded;
  }
  const bool saturated = g >= 65520.0f;  // where halves round to infinity
  uint16_t half = turbo_f32_to_f16(saturated ? 65504.0f : g);
  if (half == 0 && g > 0) half = 1;
  memcpy(to, &half, 2);
  return saturated ? kSaturated : kEncoded;
}

template <int B>
static uint32_t encode_bits(const Scheme& s, const float* x, uint8_t* codes, uint8_t* scales) {
  Vec16 squares = zero();
  for (uint64_t i = 0; i < s.d; i += 16) {
    const Vec16 v = load(x + i);
    if (any_nan(sub(v, v))) return kNotFinite;
    squares = fma(v, v, squares);
  }
  const float square = sum_lanes(squares);
  if (!(square <= kLargest)) return kNotFinite;
  float y[kMaxDim];
  uint8_t bytes[kMaxDim];
  rotate_raw(s.rotation, x, y);
  uint32_t said = kEncoded;
  const uint64_t width = s.group ? s.group : s.d;
  for (uint64_t from = 0; from < s.d; from += width, scales += s.page.scale_bytes) {
    const uint64_t n = s.d - from < width ? s.d - from : width;
    const float root = sqrtf(static_cast<float>(n));
    float norm = sqrtf(square), to_unit = s.rotation.seed ? 1.0f : root;
    if (s.group) {
      Vec16 sum = zero();
      for (uint64_t i = 0; i < n; i += 16) sum = fma(load(y + from + i), load(y + from + i), sum);
      norm = sqrtf(sum_lanes(sum));
      to_unit = root;
    }
    const SliceSums sums = encode_slice<B>(s, y + from, n, norm > 0 ? to_unit / norm : 0.0f, bytes + from);
    if (s.group) norm *= s.rotation.factor;
    said |= store_scale(s.page, norm > 0 ? scale_of(s.rule, norm, root, sums) : 0.0f, scales);
  }
  pack_codes<B>(bytes, s.d, codes);
  return said;
}

static uint32_t encode(const Scheme& s, const float* x, uint8_t* codes, uint8_t* scales) {
  return s.bits == 2 ? encode_bits<2>(s, x, codes, scales) : s.bits == 3 ? encode_bits<3>(s, x, codes, scales) : encode_bits<4>(s, x, codes, scales);
}

static uint64_t tail_offset(const Scheme& s) { return (uint64_t{s.d} + 63) / 64 * 16; }

// R q as int8 of scale amax / 127. A query that is not finite gives scores that are not numbers, as plain dots would.
static void prepare_query(const Scheme& s, const float* query, float* prepared) {
  float y[kMaxDim];
  rotate_raw(s.rotation, query, y);
  Vec16 most = zero(), odd = zero();
  for (uint64_t i = 0; i < s.d; i += 16) {
    const Vec16 v = load(y + i);
    odd = add(odd, sub(v, v));
    most = max_gt(max_gt(v, negate(v)), most);
  }
  const float amax = max_lanes(most);
  const bool finite = !any_nan(odd) && amax <= kLargest;
  QueryTail tail = {finite ? amax * s.rotation.factor * (s.level8_unit / 127.0f) : __builtin_nanf(""), 0};
  int8_t* q = reinterpret_cast<int8_t*>(prepared);
  memset(q, 0, tail_offset(s) * 4);
  if (finite && amax > 1e-30f) {  // below, every score is 0
    const Vec16 by = set1(127.0f / amax), magic = set1(12582912.0f);  // 1.5 * 2^23: the sum's low byte is the rounded integer
    for (uint64_t i = 0; i < s.d; i += 16) {
      float rounded[16];
      store(rounded, add(mul(load(y + i), by), magic));
      for (int k = 0; k < 16; ++k) {
        uint32_t bits;
        memcpy(&bits, rounded + k, 4);
        q[i + k] = static_cast<int8_t>(bits);
        tail.sum += q[i + k];
      }
    }
  }
  memcpy(prepared + tail_offset(s), &tail, sizeof tail);
}

static QueryTail tail_of(const Scheme& s, const float* prepared) {
  QueryTail tail;
  memcpy(&tail, prepared + tail_offset(s), sizeof tail);
  return tail;
}
